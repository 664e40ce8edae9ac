#pragma once

#include "actors/conductor/conductor.hpp"

#include <cstdint>
#include <vector>

namespace parcae {

/// What dummy_cluster knows of one of its executors.
struct dummy_executor {
  participant where;
  inventory held;
  version at;
  prepare next;
  bool running = false;
  bool stopped = false; ///< generation_running was, by STOP
  generation generation_running;
  bool keeper = false;
  std::vector<command> told;
  placement grid;                   ///< of generation_running
  std::vector<std::uint32_t> stage; ///< layers computed, while running
  std::uint64_t complete = no_step; ///< step whose gradients are complete
  bool broken = false;              ///< communication of generation_running failed
  bool aborted = false;             ///< generation_running was
};

} // namespace parcae
