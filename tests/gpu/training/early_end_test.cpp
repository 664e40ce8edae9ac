// Jobs that end because validation does not get better: at the same version, with the same bits, whatever comes and
// goes.

#include "tests/support/executor_cluster.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <string_view>

namespace parcae {
namespace {

/// Evaluated at 0, 3, 6, …; it learns for a while, and not by a tenth each time.
job_specification patient_job() {
  auto job = small_job();
  job.steps = 60;
  job.data.validation = 12;
  job.evaluate_every = 3;
  job.patience = 2;
  job.min_delta = 0.1;
  return job;
}

struct ending {
  std::uint64_t steps = 0;
  std::string digest;

  friend bool operator==(const ending&, const ending&) = default;
};

std::ostream& operator<<(std::ostream& to, const ending& x) {
  return to << x.steps << ": " << x.digest;
}

ending end_of(executor_cluster& cluster) {
  EXPECT_TRUE(cluster.run_until_ended()) << cluster.log().back();
  return {cluster.view().steps_done, cluster.final_digest()};
}

ending undisturbed(const job_specification& job) {
  executor_cluster cluster(job);
  cluster.keep_shape(1, 1);
  cluster.add_keeper("keeper");
  cluster.add_worker("alone");
  return end_of(cluster);
}

class early_end : public testing::Test {
protected:
  /// Found once: at least two evaluations were better, and it ends before its last step.
  static const ending& expected() {
    static const ending x = undisturbed(patient_job());
    return x;
  }
};

// given: the job undisturbed / expected: as many steps as a fold over the losses that are reported says
TEST_F(early_end, is_where_the_losses_say) {
  executor_cluster cluster(patient_job());
  cluster.keep_shape(1, 1);
  cluster.add_keeper("keeper");
  cluster.add_worker("alone");
  const auto end = end_of(cluster);
  EXPECT_EQ(end, expected());
  double best = HUGE_VAL;
  std::uint32_t worse = 0;
  std::uint64_t at = 0;
  for (const auto& point : cluster.view().validation_losses) {
    at = point.steps;
    worse = point.loss < best - 0.1 ? 0 : worse + 1;
    best = worse == 0 ? point.loss : best;
    if (worse == 2)
      break;
  }
  EXPECT_EQ(end.steps, at);
  EXPECT_GT(end.steps, 6u) << "nothing was learnt: the test says little";
  EXPECT_LT(end.steps, 60u);
}

// given: a worker killed at each moment around evaluations, others that take over / expected: the same end
TEST_F(early_end, does_not_depend_on_losses_of_workers) {
  const auto last = expected().steps;
  struct fault {
    const char* phase;
    std::uint64_t step;
  };
  for (const auto& [phase, step] : {fault{"evaluate", 3}, fault{"evaluate", last}, fault{"exchanged", 3},
                                    fault{"apply", last - 3}, fault{"committed", last}, fault{"snapshot", last}}) {
    SCOPED_TRACE(std::string(phase) + " " + std::to_string(step));
    std::atomic<bool> done = false;
    const auto once = [&, phase = phase, step = step](const fault_point& at) {
      const bool now = std::string_view(at.phase) == phase && at.step == step && !done.exchange(true);
      return now ? fault_action::kill : fault_action::none;
    };
    executor_cluster cluster(patient_job());
    cluster.add_keeper("keeper");
    cluster.add_workers({"a", "b", "c", "d"}, once);
    EXPECT_EQ(end_of(cluster), expected());
    EXPECT_TRUE(done) << "nobody was killed";
  }
}

// given: all workers killed at the last version, before or after its evaluation, new ones / expected: the same end
TEST_F(early_end, is_found_again_by_others) {
  const auto last = expected().steps;
  std::atomic<int> left = 2;
  const auto all = [&](const fault_point& at) {
    return std::string_view(at.phase) == "evaluate" && at.step == last && left > 0 && left-- > 0 ? fault_action::kill
                                                                                                 : fault_action::none;
  };
  executor_cluster cluster(patient_job());
  cluster.planner = [&](std::uint32_t slots, const auto&) { return shape(patient_job(), std::min(slots, 2u), 1); };
  cluster.add_keeper("keeper");
  cluster.add_workers({"a", "b"}, all);
  ASSERT_TRUE(cluster.run_until([&] { return left <= 0; }));
  cluster.add_workers({"c", "d"});
  EXPECT_EQ(end_of(cluster), expected());
}

// given: a patience that is never at an end / expected: the bits of a job without; the course is not in its digest
TEST_F(early_end, a_course_leaves_no_trace) {
  auto job = small_job();
  job.steps = 8;
  job.data.validation = 12;
  const auto without = undisturbed_digest(job);
  job.evaluate_every = 2;
  job.patience = 100;
  EXPECT_EQ(undisturbed_digest(job), without);
}

} // namespace
} // namespace parcae
