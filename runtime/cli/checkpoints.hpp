#pragma once

// Checkpoints as people name them.

#include "gpu/checkpoint/checkpoint.hpp"
#include "runtime/cli/commands.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace parcae {

/// A checkpoint by its URL or folder, else by a name that `parcae checkpoints` lists, of a job (its newest complete
/// one) or of one checkpoint, at `where` if that names a place, or where the manager knows keepers to write, if there
/// is one. Throws checkpoint_error or store_error.
store_ptr find_by_name(const std::string& name, const manager_option& manager, const checkpoint_specification& where);

/// The job that runs and writes checkpoints beside this one, as far as the manager, if there is one, says so.
std::optional<std::uint64_t> writer_of(const std::string& checkpoint, const manager_option& manager);

} // namespace parcae
