#pragma once

// What subcommands with many options have in common; for the sources of commands.hpp.

#include "runtime/cli/commands.hpp"

#include <CLI/CLI.hpp>

#include <memory>

namespace parcae {

/// The values of a subcommand's options, which `run` is called with; with the option for their `manager`.
template <class Options>
std::shared_ptr<Options> add_options(CLI::App& command, void (*run)(const Options&)) {
  const auto manager = add_manager_option(command);
  const auto result = std::make_shared<Options>();
  command.callback([=] {
    result->manager = *manager;
    run(*result);
  });
  return result;
}

} // namespace parcae
