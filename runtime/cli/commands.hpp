#pragma once

// The subcommands of `parcae` that talk to a manager, and the manager itself. Sources: commands.cpp, submit.cpp,
// checkpoints.cpp.

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

/// The option that names the manager; for those sources.
std::shared_ptr<std::string> add_manager_option(CLI::App& command);

} // namespace parcae
