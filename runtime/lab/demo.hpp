#pragma once

// `parcae demo`: trains on this machine through preemptions, then undisturbed, and compares.

#include <cstdint>
#include <filesystem>

namespace CLI {
class App;
}

namespace parcae {

struct demo_options {
  int instances = 6;
  std::uint64_t steps = 1000;
  std::filesystem::path trace; ///< empty: made up, plus preemptions aimed by (phase, stage)
  double speed = 60;           ///< time of the trace runs this much faster
  std::uint64_t seed = 1;
  bool web = false; ///< the page is served meanwhile
  bool json = false;
};

/// Returns the exit status: 0 if the parameters are identical. Throws std::runtime_error with one line on failure; the
/// logs are kept then, and named.
int run_demo(const demo_options& options);

void add_demo(CLI::App& app);

} // namespace parcae
