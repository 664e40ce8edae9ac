#pragma once

// `parcae watch`: follows a job until it ends.

#include "runtime/process/address.hpp"

#include <cstdint>

namespace parcae {

/// Draws on the terminal, or writes lines where nothing can be drawn. `job` 0: the one that runs, else the next one,
/// else the last one; waits for one if there is none. Returns when the job is done, or the user has seen enough. Throws
/// client_error with one line if the job fails or is cancelled, or the manager is gone. A signal that ends the process
/// does so after the terminal was given back.
void watch(const manager_access& manager, std::uint64_t job);

} // namespace parcae
