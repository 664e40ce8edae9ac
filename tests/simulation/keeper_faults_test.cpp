// Rows of the keeper's table made wrong, one at a time: schedules must find each.

#include "tests/simulation/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace parcae::simulation {
namespace {

class faulty_keeper : public testing::TestWithParam<keeper_fault> {};

// given: a fault / expected: it is found, by what it does
TEST_P(faulty_keeper, is_found_out) {
  const auto& wrong = GetParam();
  const auto finds = [&](std::uint64_t seed) {
    const auto found = run_schedule(seed, fault::none, false, wrong.spoil).problems;
    return std::ranges::any_of(found, [&](const auto& x) { return x.find(wrong.by) != x.npos; });
  };
  std::uint64_t seed = 1;
  while (seed <= wrong.seeds && !finds(seed))
    ++seed;
  EXPECT_LE(seed, wrong.seeds);
}

INSTANTIATE_TEST_SUITE_P(each, faulty_keeper, testing::ValuesIn(all_keeper_faults()),
                         [](const auto& x) { return std::string(x.param.name); });

} // namespace
} // namespace parcae::simulation
