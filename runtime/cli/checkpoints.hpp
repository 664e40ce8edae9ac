#pragma once

// Checkpoints as people name them.

#include "runtime/cli/commands.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace parcae {

/// The folder of a checkpoint: a folder that exists, else a name that `parcae checkpoints` lists, of a job (its newest
/// complete one) or of one checkpoint. The manager is asked what it knows, if there is one. Throws checkpoint_error.
std::filesystem::path find_by_name(const std::string& name, const manager_option& manager);

/// The job that runs and writes checkpoints beside this one, as far as the manager, if there is one, says so.
std::optional<std::uint64_t> writer_of(const std::filesystem::path& checkpoint, const manager_option& manager);

} // namespace parcae
