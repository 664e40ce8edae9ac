#pragma once

#include "runtime/address.hpp"
#include "runtime/logging.hpp"

namespace parcae {

/// Runs the manager until SIGTERM or SIGINT; returns the exit status. Prints "listening on HOST:PORT" on stdout once it
/// does. Throws std::runtime_error with one line if it cannot listen.
int run_manager(const address& listen, log_format log = log_format::text);

} // namespace parcae
