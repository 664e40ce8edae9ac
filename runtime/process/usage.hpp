#pragma once

// How wrong usage is found and told: one line, as all other errors.

#include "protocols/base/duration.hpp"
#include "protocols/base/suggestion.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace parcae {

/// For CLI::App::failure_message: what is wrong, of which command, and where to read what is right.
inline std::string usage_error(const CLI::App* app, const CLI::Error& e) {
  auto command = app->get_name().empty() ? std::string("parcae") : app->get_name();
  for (auto chosen = app->get_subcommands(); !chosen.empty(); chosen = chosen.front()->get_subcommands())
    command += " " + chosen.front()->get_name();
  std::string what = e.what();
  std::ranges::replace(what, '\n', ' ');
  if (e.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    auto chosen = app;
    while (!chosen->get_subcommands().empty())
      chosen = chosen->get_subcommands().front();
    std::vector<std::string> names;
    for (const auto* option : chosen->get_options())
      for (const auto& name : option->get_lnames())
        names.push_back("--" + name);
    const auto begin = std::min(what.find("--"), what.size());
    const auto word = what.substr(begin, what.find(' ', begin) - begin);
    if (const auto meant = word.empty() ? word : suggestion(word, {names.begin(), names.end()}); !meant.empty())
      what += "; " + meant;
  }
  return command + ": " + what + "; see `" + command + " -h`\n";
}

/// Throws std::invalid_argument for a word that is no command but resembles one, as CLI11 would not.
inline void refuse_misspelt_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || *argv[1] == '-')
    return;
  std::vector<std::string> names;
  for (const auto* command : app.get_subcommands(nullptr))
    names.push_back(command->get_name());
  if (std::ranges::find(names, argv[1]) != names.end())
    return;
  const std::string word = std::string(argv[1]).substr(0, 40);
  throw std::invalid_argument("\"" + word + "\" is not a command; " + advice(word, {names.begin(), names.end()}) +
                              "; see `" + app.get_name() + " -h`");
}

/// For CLI::Option::check: a path of this machine, not an address elsewhere.
inline std::string local_path(const std::string& path) {
  return path.find("://") == std::string::npos ? "" : path + ": local paths only";
}

/// For CLI::Option::check: a file can be written here, as far as its folder is concerned. Found before the work is
/// done.
inline std::string in_a_folder(const std::string& file) {
  if (const auto problem = local_path(file); !problem.empty())
    return problem;
  if (file.empty())
    return "must not be empty";
  const auto folder = std::filesystem::absolute(file).parent_path();
  return std::filesystem::is_directory(folder) ? "" : "there is no folder " + folder.string();
}

/// The option that names the bundle of certificates.
inline CLI::Option* add_bundle_option(CLI::App& app, std::string& value) {
  return app
      .add_option("--bundle", value, "certificates that `parcae init` has made for this process: TLS, on any address")
      ->envname("PARCAE_BUNDLE")
      ->check(CLI::ExistingFile);
}

/// An option whose value is a duration as people write it. Anything with a constructor from milliseconds holds it.
template <class Duration>
CLI::Option* add_duration(CLI::App& app, const std::string& name, Duration& value, const std::string& text) {
  return app.add_option_function<std::string>(
      name,
      [name, &value](const std::string& x) {
        const auto duration = parse_duration(x);
        if (!duration)
          throw CLI::ValidationError(name, "\"" + x + "\" must be like 500ms or 2s");
        value = *duration;
      },
      text);
}

/// An option whose value is a link's rate as people write it; bytes per second.
inline CLI::Option* add_link_rate(CLI::App& app, const std::string& name, std::uint64_t& value,
                                  const std::string& text) {
  return app.add_option_function<std::string>(
      name,
      [name, &value](const std::string& x) {
        const auto per_ms = parse_link_rate(x);
        if (!per_ms || *per_ms < 1 || *per_ms > 1e12)
          throw CLI::ValidationError(name, "\"" + x + "\" must be like 10Gb/s, 500Mb/s or 1.2GB/s");
        value = static_cast<std::uint64_t>(*per_ms * 1000);
      },
      text);
}

} // namespace parcae
