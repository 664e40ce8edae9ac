#pragma once

#include "runtime/process/address.hpp"
#include "runtime/process/logging.hpp"

#include <filesystem>

namespace parcae {

/// Runs the manager until SIGTERM or SIGINT; returns the exit status. The running job is then stopped at a step and
/// checkpointed, which takes at most 30 s, and the log says how to go on with it; a second signal ends at once. Prints
/// "listening on HOST:PORT" on stdout once it does. SIGHUP reads the certificates again. What it must not forget is in
/// the folder `state`: when it is killed, and started again with that, its jobs go on where they are. Throws
/// std::runtime_error with one line if it cannot listen, or cannot go on.
int run_manager(const manager_access& access, const std::filesystem::path& state, log_format log = log_format::text);

} // namespace parcae
