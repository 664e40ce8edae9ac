#pragma once

// Tests that put a fault into a cluster in virtual time.

#include "tests/simulation/schedule.hpp"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

namespace parcae::simulation {

inline std::ostream& operator<<(std::ostream& to, const named_fault& x) {
  return to << x.name;
}

namespace {

class quiet : public testing::Environment {
  void SetUp() override { spdlog::set_level(spdlog::level::off); }
};

const auto* const set_up = testing::AddGlobalTestEnvironment(new quiet); // gtest owns it

class faulty_simulation : public testing::TestWithParam<named_fault> {};

/// The first seed that finds it; none: one more than may take it. `run`: the problems of a seed.
template <class Run>
std::uint64_t first_to_find(const named_fault& x, const Run& run) {
  const auto finds = [&](std::uint64_t seed) {
    const std::vector<std::string> found = run(seed);
    return std::ranges::any_of(found, [&](const auto& y) { return y.find(x.by) != y.npos; });
  };
  std::uint64_t seed = 1;
  while (seed <= x.seeds && !finds(seed))
    ++seed;
  return seed;
}

std::uint64_t first_to_find(const named_fault& x) {
  return first_to_find(x, [&](std::uint64_t seed) { return run_schedule(seed, x.what).problems; });
}

std::vector<named_fault> faults_that_are(bool rare) {
  std::vector<named_fault> result;
  std::ranges::copy_if(all_faults(), std::back_inserter(result), [&](const auto& x) { return is_rare(x) == rare; });
  return result;
}

} // namespace
} // namespace parcae::simulation
