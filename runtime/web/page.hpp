#pragma once

// The page's files, which are part of the program.

#include "runtime/web/message.hpp"

namespace parcae {

/// None: there is no such file.
std::optional<web_answer> page_file(const web_target& target);

} // namespace parcae
