#pragma once

// The subcommands of `parcae` that talk to a manager, and the manager itself. Sources: commands.cpp, submit.cpp,
// checkpoints.cpp, init.cpp, trace.cpp.

#include "runtime/process/address.hpp"

#include <memory>
#include <string>

namespace CLI {
class App;
}

namespace parcae {

/// Each adds its subcommand; what it does runs when the command line is parsed, and throws on failure:
/// std::invalid_argument for wrong usage (exit status 2), other exceptions for failures (1).
void add_manager(CLI::App& app);
void add_submit(CLI::App& app);
void add_status(CLI::App& app);
void add_watch(CLI::App& app);
void add_preempt(CLI::App& app);
void add_cancel(CLI::App& app);
void add_export(CLI::App& app);
void add_checkpoints(CLI::App& app);
void add_logs(CLI::App& app);
void add_job_keys(CLI::App& app);
void add_trace(CLI::App& app);
void add_init(CLI::App& app);

/// What a command is told of the manager; for those sources.
struct manager_option {
  std::string where = "127.0.0.1:4242";
  std::string bundle;

  manager_access access() const { return parse_access(where, bundle); }      ///< throws std::invalid_argument
  address listening() const { return parse_manager_address(where, bundle); } ///< likewise
};

/// The options for it.
std::shared_ptr<manager_option> add_manager_option(CLI::App& command);

} // namespace parcae
