// Rows of the keeper's table made wrong, one at a time: schedules must find each.

#include "tests/simulation/schedule.hpp"

#include <gtest/gtest.h>

namespace parcae::simulation {
namespace {

class faulty_keeper : public testing::TestWithParam<keeper_fault> {};

// given: a fault / expected: it is found
TEST_P(faulty_keeper, is_found_out) {
  const auto& [name, spoil, within] = GetParam();
  std::uint64_t seed = 1;
  while (seed <= within && run_schedule(seed, fault::none, false, spoil).problems.empty())
    ++seed;
  EXPECT_LE(seed, within);
}

INSTANTIATE_TEST_SUITE_P(each, faulty_keeper, testing::ValuesIn(all_keeper_faults()),
                         [](const auto& x) { return std::string(x.param.name); });

} // namespace
} // namespace parcae::simulation
