#pragma once

// The commands that need no manager: `parcae simulate`, `parcae forecast` and `parcae advise`. Their callbacks print to
// stdout and throw std::runtime_error, one line for the user, on failure.

namespace CLI {
class App;
}

namespace parcae {

/// Adds the sub-command `simulate`.
void add_simulate(CLI::App& app);

/// Adds the sub-command `forecast`.
void add_forecast(CLI::App& app);

/// Adds the sub-command `advise`.
void add_advise(CLI::App& app);

} // namespace parcae
