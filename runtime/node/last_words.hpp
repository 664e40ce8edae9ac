#pragma once

// What a node that died of a failure tells the manager: the end of its log, by its guardian. (What fails in a node that
// lives on its INSTANCE tells.)

#include "runtime/node/black_box.hpp"
#include "runtime/process/address.hpp"

#include <functional>
#include <string>

namespace parcae {

/// For the guardian: if the box says that the process failed, becomes another run of this program, which calls
/// deliver_last_words with the same box. Else returns at once.
std::function<void()> last_words_of(const black_box& box, const std::string& instance, const manager_access& manager);

/// False if the manager cannot be told. The failure has been printed already, so nothing is.
bool deliver_last_words(const black_box& box, const std::string& instance, const manager_access& manager);

} // namespace parcae
