// Nodes that say what machine they are on, as those that are started by hand do.

#include "tests/support/cluster.hpp"

#include <algorithm>
#include <vector>

namespace parcae {
namespace {

struct machine : cluster_test {
  /// Of the configuration it is in.
  static const configuration_status* row_of(const job_status& x) {
    const auto row = std::ranges::find_if(x.configurations, [&](const auto& c) {
      return c.width == x.width && c.depth == x.depth && c.measured_steps > 0;
    });
    return row == x.configurations.end() ? nullptr : &*row;
  }
};

// given: four workers and a keeper on this machine, a job that takes all four, whatever cores there are
// expected: the rate that is planned with is what the clock says, within 15 %, in the median of five stretches.
// (Before, ranks that wait for cores were planned with as if each had its own.)
TEST_F(machine, rate_planned_with_is_that_of_its_cores) {
  cluster->tell_machine();
  start_nodes({"a", "b", "c", "d"});
  auto job = small_job(1'000'000);
  job.model.layers = 3;
  job.model.width = 64;
  job.model.sequence = 64;
  job.global_batch = 16;
  job.min_width = job.max_width = 4;
  job.max_depth = 1;
  const auto id = cluster->client().submit(job);
  wait_for_training(id, 4);
  std::vector<double> ratios;
  for (int i = 0; i < 5; ++i) {
    const auto begin = cluster->client().status({.job = id});
    const auto before = job_of(begin, id);
    wait_for_job(id, "steps", [&](const job_status& j) { return j.steps_done >= before.steps_done + 50; });
    const auto end = cluster->client().status({.job = id});
    const auto after = job_of(end, id);
    const auto* row = row_of(after);
    ASSERT_TRUE(row);
    ASSERT_EQ(after.generation, before.generation);
    EXPECT_FALSE(row->measured_by_cpu);
    const auto samples = static_cast<double>(after.steps_done - before.steps_done) * job.global_batch;
    ratios.push_back(row->samples_per_s * static_cast<double>(end.now_us - begin.now_us) / 1e6 / samples);
  }
  std::ranges::sort(ratios);
  EXPECT_NEAR(ratios[2], 1, 0.15) << "planned over measured: " << testing::PrintToString(ratios);
}

} // namespace
} // namespace parcae
