// Training goes on while instances arrive faster than anyone could use them.

#include "tests/support/executor_cluster.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace parcae {
namespace {

TEST(join_storm, joins_every_50_ms_for_10_s_after_a_kill) {
  // given: 2×1 loses a rank, then 200 instances join, of which at most 4 get a place. expected: the first commit after
  // the kill comes within the stall bound of 1.5 s, and training goes on between the joins.
  auto job = small_job();
  job.steps = 100'000;
  executor_cluster cluster(job);
  cluster.add_keeper("keeper");
  cluster.planner = [&](std::uint32_t slots, const auto&) { return shape(job, std::min(slots, 4u), 1); };
  cluster.add_worker("w0");
  cluster.add_worker("w1");
  ASSERT_TRUE(cluster.run_until([&] { return cluster.view().steps_done >= 3; }));
  cluster.kill("w1");
  const auto at_kill = cluster.view().steps_done;
  EXPECT_TRUE(cluster.run_until([&] { return cluster.view().steps_done > at_kill; }, milliseconds(1500)));
  auto slowest = milliseconds(0);
  for (int i = 0; i < 200; ++i) {
    const auto began = std::chrono::steady_clock::now();
    const auto before = cluster.view().steps_done;
    cluster.add_worker("j" + std::to_string(i));
    cluster.run_until([] { return false; }, milliseconds(50));
    EXPECT_TRUE(cluster.run_until([&] { return cluster.view().steps_done > before; }, milliseconds(1500)));
    slowest = std::max(slowest, std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - began));
  }
  RecordProperty("slowest_join_ms", static_cast<int>(slowest.count()));
  EXPECT_EQ(cluster.view().grid->width, 4u);
  cluster.send(cancel_requested{});
  EXPECT_TRUE(cluster.ended());
}

} // namespace
} // namespace parcae
