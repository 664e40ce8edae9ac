// Schedules of a cluster in virtual time. A seed that fails is replayed by `simulation --seed N --verbose`.

#include "tests/simulation/schedule.hpp"

#include <gmock/gmock.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <functional>

namespace parcae::simulation {
namespace {

class quiet : public testing::Environment {
  void SetUp() override { spdlog::set_level(spdlog::level::off); }
};

const auto* const set_up = testing::AddGlobalTestEnvironment(new quiet); // gtest owns it

// given: joins, notices, losses, freezes, cuts, deaths of the manager, errors of its store, by chance / expected: what
// must hold does after each event, and the job ends as an undisturbed one does
TEST(simulation, whatever_happens_the_job_ends_as_if_nothing_had) {
  std::size_t failed = 0;
  for (std::uint64_t seed = 1; seed <= 2'000 && failed < 5; ++seed) {
    const auto x = run_schedule(seed);
    failed += !x.problems.empty();
    EXPECT_THAT(x.problems, testing::IsEmpty()) << "simulation --seed " << seed << " --verbose";
  }
}

// given: a schedule twice / expected: the same messages at the same times
TEST(simulation, a_seed_replays_exactly) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto first = run_schedule(seed), second = run_schedule(seed);
    EXPECT_EQ(first.digest, second.digest) << seed;
    EXPECT_EQ(first.messages, second.messages) << seed;
  }
  EXPECT_NE(run_schedule(1).digest, run_schedule(2).digest);
}

class faulty_simulation : public testing::TestWithParam<named_fault> {};

// given: a fault / expected: it is found
TEST_P(faulty_simulation, is_found_out) {
  const auto& fault = GetParam();
  const auto finds = [&](std::uint64_t seed) {
    const auto found = run_schedule(seed, fault.what).problems;
    return std::ranges::any_of(found, [&](const auto& x) { return x.find(fault.by) != x.npos; });
  };
  std::uint64_t seed = 1;
  while (seed <= fault.seeds && !finds(seed))
    ++seed;
  EXPECT_LE(seed, fault.seeds);
}

std::vector<named_fault> common_faults() {
  std::vector<named_fault> result;
  std::ranges::copy_if(all_faults(), std::back_inserter(result), std::not_fn(is_rare));
  return result;
}

INSTANTIATE_TEST_SUITE_P(each, faulty_simulation, testing::ValuesIn(common_faults()),
                         [](const auto& x) { return std::string(x.param.name); });

} // namespace
} // namespace parcae::simulation
