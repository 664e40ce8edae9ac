#pragma once

// Files that the commands without a manager read.

#include "planner/simulation/trace.hpp"

#include <stdexcept>
#include <string>
#include <vector>

namespace parcae {

struct trace_input {
  fleet_history intervals;
  std::vector<trace_event> events; ///< empty if the trace is of counts
};

/// From a file, or generated: "KIND:SEED" ("p3:7"), seed 1 where none is given. Throws std::runtime_error, one line for
/// the user.
trace_input load_trace(const std::string& name);

/// "a, b, c"
std::string names_of(const std::vector<std::string>& names);

/// Parses a file's content; adds its name to what is wrong with it.
template <class F>
auto from_file(const std::string& path, F parse) {
  const auto text = read_file(path);
  try {
    return parse(text);
  } catch (const parse_error& e) {
    throw std::runtime_error(path + ": " + e.what());
  }
}

} // namespace parcae
