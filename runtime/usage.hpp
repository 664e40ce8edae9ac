#pragma once

// How wrong usage is found and told: one line, as all other errors.

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
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

/// For CLI::Option::check: a file can be written here, as far as its folder is concerned. Found before the work is
/// done.
inline std::string in_a_folder(const std::string& file) {
  const auto folder = std::filesystem::absolute(file).parent_path();
  return std::filesystem::is_directory(folder) ? "" : "there is no folder " + folder.string();
}

} // namespace parcae
