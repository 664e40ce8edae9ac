// Schedules of a cluster in virtual time. A seed that fails is replayed by `simulation --seed N --verbose`.

#include "tests/simulation/faulty_simulation.hpp"

#include <gmock/gmock.h>

namespace parcae::simulation {
namespace {

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

// given: the same, and deaths, freezes and notices of gateways, of a job that serves / expected: what must hold does,
// and it serves when it is left in peace: the gateway goes by the generation that runs; each request has its tokens,
// and after notices that suffice none of its positions is computed twice
TEST(simulation, whatever_happens_it_serves_again) {
  std::size_t failed = 0, generations = 0;
  for (std::uint64_t seed = 1; seed <= 2'000 && failed < 5; ++seed) {
    const auto x = run_service_schedule(seed);
    failed += !x.problems.empty();
    generations += x.generations;
    EXPECT_THAT(x.problems, testing::IsEmpty()) << "simulation --serve --seed " << seed << " --verbose";
  }
  EXPECT_GT(generations, 4'000u);
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

// given: a fault / expected: it is found
TEST_P(faulty_simulation, is_found_out) {
  EXPECT_LE(first_to_find(GetParam()), GetParam().seeds);
}

INSTANTIATE_TEST_SUITE_P(each, faulty_simulation, testing::ValuesIn(faults_that_are(false)),
                         [](const auto& x) { return std::string(x.param.name); });

// given: a fault where a model is served / expected: it is found
class faulty_service : public testing::TestWithParam<named_fault> {};

TEST_P(faulty_service, is_found_out) {
  const auto& x = GetParam();
  EXPECT_LE(first_to_find(x, [&](std::uint64_t seed) { return run_service_schedule(seed, x.what).problems; }), x.seeds);
}

INSTANTIATE_TEST_SUITE_P(each, faulty_service,
                         testing::ValuesIn(all_service_faults().begin(), all_service_faults().end()),
                         [](const auto& x) { return std::string(x.param.name); });

} // namespace
} // namespace parcae::simulation
