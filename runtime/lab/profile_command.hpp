#pragma once

namespace CLI {
class App;
}

namespace parcae {

/// `parcae profile`; what it does runs when the command line is parsed, and throws as those of commands.hpp do.
void add_profile(CLI::App& app);

} // namespace parcae
