#pragma once

// How wrong usage is told: one line, as all other errors.

#include <CLI/CLI.hpp>

#include <algorithm>
#include <string>

namespace parcae {

/// For CLI::App::failure_message: what is wrong, of which command, and where to read what is right.
inline std::string usage_error(const CLI::App* app, const CLI::Error& e) {
  auto command = app->get_name().empty() ? std::string("parcae") : app->get_name();
  for (auto chosen = app->get_subcommands(); !chosen.empty(); chosen = chosen.front()->get_subcommands())
    command += " " + chosen.front()->get_name();
  std::string what = e.what();
  std::ranges::replace(what, '\n', ' ');
  return command + ": " + what + "; see `" + command + " -h`\n";
}

} // namespace parcae
