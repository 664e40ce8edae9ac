#pragma once

#include "protocols/store/store.hpp"

#include <filesystem>

namespace parcae {

/// A folder of this machine, which is made when something is written. Files are their owner's alone.
std::shared_ptr<object_store> open_folder_store(std::filesystem::path folder);

} // namespace parcae
