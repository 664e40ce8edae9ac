// Training goes on while instances arrive faster than anyone could use them.

#include "tests/support/executor_cluster.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace parcae {
namespace {

TEST(join_storm, joins_every_50_ms_for_10_s_during_recoveries) {
  // given: a place is killed every second for 10 s; from the first kill on an instance joins every 50 ms, whatever
  // training does, of which at most 4 at once get a place. expected: the next commit after each kill comes within the
  // stall bound; the parameters at the end are those of an undisturbed run.
  constexpr auto storm = std::chrono::seconds(10);
  auto job = small_job();
  job.steps = 300;
  job.global_batch = 8;
  job.virtual_replicas = 4;
  std::atomic<bool> over = false;
  const auto slowly = [&](const fault_point& at) { // else a fast machine ends the job before the storm
    if (!over && std::string(at.phase) == "reduced")
      std::this_thread::sleep_for(milliseconds(40));
    return fault_action::none;
  };
  executor_cluster cluster(job);
  cluster.planner = [&](std::uint32_t slots, const auto&) { return shape(job, std::min(slots, 4u), 1); };
  cluster.add_keeper("keeper");
  cluster.add_workers({"w0", "w1"}, slowly);
  ASSERT_TRUE(cluster.run_until([&] { return cluster.view().steps_done >= 3; }));

  const auto begin = std::chrono::steady_clock::now();
  auto kill_at = begin, killed_at = begin;
  std::uint64_t wanted = 0; // steps that end the recovery
  int kills = 0, joins = 0, joins_during_recovery = 0;
  auto slowest = milliseconds(0);
  bool recovering = false;
  const auto look = [&] {
    if (recovering && cluster.view().steps_done >= wanted) {
      recovering = false;
      slowest =
          std::max(slowest, std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - killed_at));
    }
    return false;
  };
  while (std::chrono::steady_clock::now() - begin < storm) {
    if (std::chrono::steady_clock::now() >= kill_at && !recovering && cluster.view().now == phase::running) {
      kill_at += std::chrono::seconds(1);
      killed_at = std::chrono::steady_clock::now();
      const auto& places = cluster.view().grid->participants;
      cluster.kill(places[static_cast<std::size_t>(kills++) % places.size()].slot.instance);
      wanted = cluster.view().steps_done + 1;
      recovering = true;
    }
    cluster.add_worker("j" + std::to_string(joins), slowly);
    joins_during_recovery += recovering;
    const auto left = begin + ++joins * milliseconds(50) - std::chrono::steady_clock::now();
    cluster.run_until(look, std::chrono::duration_cast<milliseconds>(left));
  }
  over = true;
  EXPECT_GE(joins, 190);
  EXPECT_GE(kills, 5);
  EXPECT_GE(joins_during_recovery, kills);
  EXPECT_LT(slowest, milliseconds(1500));
  RecordProperty("slowest_recovery_ms", static_cast<int>(slowest.count()));
  ASSERT_TRUE(cluster.run_until_ended()) << cluster.log().back();
  EXPECT_EQ(cluster.final_digest(), undisturbed_digest(job));
}

} // namespace
} // namespace parcae
