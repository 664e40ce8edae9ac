#pragma once

#include "runtime/simulate/simulate.hpp"

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

namespace parcae {

/// Of `parcae simulate`, or `parcae advise`, with these arguments, in this process: standard output; the error's text
/// if it fails.
inline std::string simulate_run(std::vector<std::string> arguments, const char* command = "simulate") {
  CLI::App app;
  add_simulate(app);
  add_advise(app);
  arguments.insert(arguments.begin(), command);
  std::reverse(arguments.begin(), arguments.end()); // as CLI11 takes them
  testing::internal::CaptureStdout();
  std::string error;
  try {
    app.parse(arguments);
  } catch (const std::exception& e) {
    error = e.what();
  }
  const auto output = testing::internal::GetCapturedStdout();
  return error.empty() ? output : error;
}

} // namespace parcae
