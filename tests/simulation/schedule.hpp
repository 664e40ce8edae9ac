#pragma once

// One schedule: a cluster, a job, and harm done to them, all drawn from a seed.

#include "tests/simulation/faults.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace parcae::simulation {

struct schedule_outcome {
  std::vector<std::string> problems; ///< what did not hold
  std::uint64_t digest = 0;          ///< of all that was sent, and when
  std::uint64_t messages = 0;        ///< that actors handled
  double virtual_s = 0;
  std::size_t generations = 0; ///< that were activated
  std::size_t harms = 0;
};

schedule_outcome run_schedule(std::uint64_t seed, fault wrong = fault::none, bool tells = false);

/// The same of a job that serves. One in four has notices of 5 s and more, and joins, and nothing else: then no
/// position may be computed twice.
schedule_outcome run_service_schedule(std::uint64_t seed, fault wrong = fault::none, bool tells = false);

} // namespace parcae::simulation
