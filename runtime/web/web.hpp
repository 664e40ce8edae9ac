#pragma once

// `parcae web`: what a manager tells, over HTTP.

namespace CLI {
class App;
}

namespace parcae {

/// Adds the subcommand; throws as those of runtime/cli do.
void add_web(CLI::App& app);

} // namespace parcae
