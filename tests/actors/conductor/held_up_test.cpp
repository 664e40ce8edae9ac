// What is slow or has no room holds up nobody else: real executors over real TCP. The final parameters have the bits of
// the undisturbed run.

#include "tests/support/executor_cluster.hpp"
#include "tests/support/names.hpp"

#include <atomic>
#include <set>
#include <string_view>
#include <thread>

namespace parcae {
namespace {

using std::chrono::milliseconds;

void expect_identical(executor_cluster& cluster, const job_specification& job) {
  ASSERT_TRUE(cluster.run_until_ended()) << to_string(cluster.view().now) << " " << cluster.log().back();
  EXPECT_EQ(cluster.final_digest(), undisturbed_digest(job));
}

TEST(snapshots, become_complete_however_unequal_the_shares_are) {
  // given: two stages whose shares of a snapshot take about 0.7 and 4 snapshot periods on the link to the keeper.
  // expected: the keeper gets whole versions all the time, as often as the larger share gets through; it never has to
  // put them together from what two streams happened to keep
  auto job = small_job();
  job.steps = 80;
  job.keeper_every = 2;
  executor_cluster cluster(job);
  cluster.lead = milliseconds(20);
  cluster.planner = [&](std::uint32_t slots, const auto&) {
    return slots < 2 ? configuration{0, 0, {}, 0, "both stages are wanted"}
                     : configuration{1, 2, {0, 1, 6}, 1, "a small and a large stage"};
  };
  std::set<std::uint64_t> whole;
  cluster.on_effect = [&](const effect& x) {
    const auto* t = std::get_if<tell>(&x);
    const auto* c = t ? std::get_if<confirm>(t->what.get()) : nullptr;
    if (c && c->newest.steps < job.steps)
      whole.insert(c->newest.steps);
    return true;
  };
  cluster.add_keeper_behind("keeper", 2'000'000);
  const auto slowed = [](const fault_point& at) {
    if (std::string_view(at.phase) == "committed")
      std::this_thread::sleep_for(milliseconds(20)); // what a larger model would compute
    return fault_action::none;
  };
  cluster.add_workers({"a", "b"}, slowed);
  expect_identical(cluster, job);
  EXPECT_GE(whole.size(), 4u);
}

TEST(data, joiner_that_loads_for_long_holds_nobody_up) {
  // given: two replicas train, a third does not get its data loaded; one of the two is killed. expected: the other goes
  // on at once; the third takes part when its data is there
  const auto job = small_job();
  std::atomic<bool> mounted = false;
  executor_cluster cluster(job);
  cluster.lead = milliseconds(20);
  cluster.planner = [&](std::uint32_t slots, const auto&) { return shape(job, slots, 1); };
  cluster.add_keeper("keeper");
  const auto paced = [](const fault_point& at) {
    if (std::string_view(at.phase) == "committed")
      std::this_thread::sleep_for(milliseconds(20));
    return fault_action::none;
  };
  cluster.add_workers({"a", "b"}, paced);
  ASSERT_TRUE(cluster.run_until([&] { return cluster.view().steps_done >= 2; }));
  cluster.add_worker("late", [&](const fault_point& at) {
    while (std::string_view(at.phase) == "load" && !mounted)
      std::this_thread::sleep_for(milliseconds(1));
    return fault_action::none;
  });
  const auto before = cluster.view().steps_done;
  cluster.kill("b");
  EXPECT_TRUE(cluster.run_until([&] { return cluster.view().steps_done > before + 1; }, milliseconds(5'000)));
  EXPECT_EQ(cluster.view().grid->width, 1u);
  mounted = true;
  EXPECT_TRUE(cluster.run_until([&] { return cluster.view().grid && cluster.view().grid->width == 2; }));
  expect_identical(cluster, job);
}

TEST(preparation, that_fails_beside_a_healthy_generation_leaves_it_alone) {
  // given: one stage each on a and b; when more replicas are prepared beside them, a has no memory for it, twice.
  // expected: the generation trains on, a stays in it, nothing is computed again; the change comes off later
  const auto job = small_job();
  std::atomic<int> tries = 0;
  executor_cluster cluster(job, {.exclusion = milliseconds(50)});
  cluster.lead = milliseconds(20);
  cluster.planner = [&](std::uint32_t slots, const auto&) { return shape(job, slots / 2, 2); };
  cluster.add_keeper("keeper");
  const auto paced = [](const fault_point& at) {
    if (std::string_view(at.phase) == "committed")
      std::this_thread::sleep_for(milliseconds(30));
    return fault_action::none;
  };
  cluster.add_worker("a", [&](const fault_point& at) {
    if (std::string_view(at.phase) == "prepare" && at.at.value > 1 && ++tries <= 2)
      throw std::runtime_error("not enough memory");
    return paced(at);
  });
  cluster.add_worker("b", paced);
  ASSERT_TRUE(cluster.run_until([&] { return cluster.view().steps_done >= 2; }));
  cluster.add_workers({"c", "d"}, paced);
  EXPECT_TRUE(cluster.run_until([&] { return cluster.view().grid && cluster.view().grid->width == 2; }));
  EXPECT_THAT(cluster.log(), Contains(HasSubstr("a/0 gets no new place for now: not enough memory")));
  EXPECT_THAT(cluster.log(), Not(Contains(HasSubstr("is not used for now"))));
  expect_identical(cluster, job);
  EXPECT_EQ(cluster.view().replayed_steps, 0u);
}

} // namespace
} // namespace parcae
