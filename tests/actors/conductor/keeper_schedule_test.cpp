// Losses and notices that only keepers make good: as in failure_schedule_test.

#include "tests/actors/conductor/failure_schedule.hpp"

namespace parcae {
namespace {

TEST_F(failure_schedule, loss_of_the_keeper_during_a_snapshot) {
  // given: the only keeper is killed when it has half of version 4, and another comes later. expected: training goes on
  // unprotected, with nothing replayed, and is protected again by the next keeper; same bits.
  begin({{2, 1}}, small_job(), once("snapshot", 4, fault_action::kill, 1));
  add_workers({"w0", "w1"});
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().steps_done >= 6; }));
  EXPECT_FALSE(cluster_->view().protected_now);
  EXPECT_LT(cluster_->view().protected_version.steps, 4u);
  cluster_->add_keeper("keeper2");
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().protected_version.steps >= 6; }));
  expect_identical();
  EXPECT_EQ(cluster_->view().current.value, 1u);
  EXPECT_EQ(cluster_->view().replayed_steps, 0u);
}

TEST_F(failure_schedule, keeper_killed_in_the_middle_of_a_snapshot) {
  // given: the keeper is killed when it has half of version 8, then all workers are. expected: the second keeper, sent
  // to from the next commit on, has the state.
  begin({{2, 1}});
  cluster_->add_keeper("keeper1", once("snapshot", 8, fault_action::kill, 1));
  add_workers({"w0", "w1"});
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().protected_version.steps >= 9; }));
  kill({"w0", "w1"});
  add_workers({"w2", "w3"});
  expect_identical();
  EXPECT_TRUE(decided("generation 1 ends at "));
  EXPECT_GE(cluster_->view().chain.back().base, 9u);
}

TEST_F(failure_schedule, one_of_two_keepers_and_all_workers_are_lost) {
  // given: every layer goes to both keepers; one is lost, and all workers before the next commit. expected: the state
  // comes back from the other.
  auto job = small_job();
  job.keeper_copies = 2;
  begin({{1, 2}, {2, 1}}, job);
  cluster_->add_keeper("keeper1");
  gate_.store(UINT64_MAX);
  for (const auto* name : {"w0", "w1"})
    cluster_->add_worker(name, [this](const fault_point& at) {
      return std::string(at.phase) == "exchange_send" && at.step >= gate_ ? fault_action::kill : fault_action::none;
    });
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().protected_version.steps >= 8; }));
  gate_ = 0;
  cluster_->kill("keeper");
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().now == phase::waiting; }));
  add_workers({"w2", "w3"});
  expect_identical();
  EXPECT_TRUE(decided("generation 1 ends at "));
  EXPECT_GE(cluster_->view().chain.back().base, 4u);
}

TEST_F(failure_schedule, state_spread_over_two_keepers_comes_back_from_both) {
  begin({{2, 2}, {1, 3}});
  cluster_->add_keeper("keeper1");
  add_workers({"w0", "w1", "w2", "w3"});
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().protected_version.steps >= 8; }));
  kill({"w0", "w1", "w2", "w3"});
  add_workers({"w4", "w5", "w6"});
  expect_identical();
  EXPECT_TRUE(decided("generation 1 ends at "));
  EXPECT_GE(cluster_->view().chain.back().base, 8u);
}

// given: no snapshot but the first; a notice to all workers, of two stages, that ends while they train / expected: what
// they reached is in the keeper when they are gone; at most the step at hand is computed again, where it outlasts the
// notice
TEST_F(failure_schedule, notice_to_all_workers) {
  auto job = small_job();
  job.keeper_every = 1'000'000;
  begin({{2, 2}, {1, 1}}, job);
  cluster_->add_workers({"w0", "w1", "w2", "w3"}, at_a_pace);
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().steps_done >= 3; }));
  for (int i = 0; i < 4; ++i)
    cluster_->notice("w" + std::to_string(i), milliseconds(100));
  ASSERT_TRUE(cluster_->run_until([&] {
    return cluster_->view().now == phase::waiting &&
           cluster_->view().protected_version.steps == cluster_->view().steps_done;
  })) << to_string(cluster_->view().now);
  ASSERT_LT(cluster_->view().steps_done, job.steps) << "too late to test anything";
  kill({"w0", "w1", "w2", "w3"});
  cluster_->add_worker("next");
  expect_identical();
  EXPECT_LE(cluster_->view().replayed_steps, 1u);
}

// given: no snapshot but the first; two replicas under notice, one of which is lost at once / expected: the other sends
// the keeper both shares of the stage, and nothing older is computed again
TEST_F(failure_schedule, last_replica_under_notice_saves_the_whole_stage) {
  auto job = small_job();
  job.keeper_every = 1'000'000;
  begin({{2, 1}, {1, 1}}, job);
  cluster_->add_workers({"w0", "w1"}, at_a_pace);
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().steps_done >= 3; }));
  for (const auto* name : {"w0", "w1"})
    cluster_->notice(name, milliseconds(20'000));
  cluster_->kill("w0");
  ASSERT_TRUE(cluster_->run_until([&] {
    return cluster_->view().now == phase::waiting &&
           cluster_->view().protected_version.steps == cluster_->view().steps_done;
  })) << to_string(cluster_->view().now);
  ASSERT_LT(cluster_->view().steps_done, job.steps) << "too late to test anything";
  cluster_->kill("w1");
  cluster_->add_worker("next");
  expect_identical();
  EXPECT_LE(cluster_->view().replayed_steps, 2u); // the one at hand, and one that only w0 had applied
}

// given: two copies; all workers are lost, then a keeper, whose place another takes / expected: that one is filled by
// the first, whose loss then costs nothing
TEST_F(failure_schedule, a_keeper_is_filled_by_another_when_nobody_trains) {
  auto job = small_job();
  job.keeper_copies = 2;
  begin({{2, 1}}, job);
  cluster_->add_keeper("keeper1");
  add_workers({"w0", "w1"});
  ASSERT_TRUE(
      cluster_->run_until([&] { return cluster_->view().copies == 2 && cluster_->view().copied_version.steps >= 8; }));
  kill({"w0", "w1", "keeper"});
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().now == phase::waiting; }));
  const auto held = cluster_->view().protected_version;
  EXPECT_GE(held.steps, 8u);
  EXPECT_EQ(cluster_->view().copies_problem, "there is 1 keeper");
  cluster_->add_keeper("keeper2");
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().copies == 2; }));
  EXPECT_EQ(cluster_->view().copies_problem, "");
  EXPECT_EQ(cluster_->view().protected_version, held);
  cluster_->kill("keeper1");
  add_workers({"w2", "w3"});
  expect_identical();
  EXPECT_EQ(cluster_->view().chain.back().base, held.steps);
}

// given: two machines, each with a keeper and a stage of the pipeline; one of them goes at once, when nothing was
// committed since the last snapshot / expected: the other has what it computed, and nothing is computed again
TEST_F(failure_schedule, a_machine_goes_with_a_keeper_and_its_stage) {
  std::atomic<bool> goes = false;
  begin({{1, 2}, {1, 1}});
  cluster_->machine_of = [](const std::string& name) { return name.substr(0, 1); };
  cluster_->add_keeper("a-keeper");
  cluster_->add_keeper("b-keeper");
  cluster_->kill("keeper");
  gate_ = 4;
  const auto held_back = [&](fault_action then) {
    return [this, &goes, then](const fault_point& at) {
      if (std::string(at.phase) != "forward" || at.at.value > 1)
        return fault_action::none;
      while (at.step >= gate_ && !goes)
        std::this_thread::sleep_for(milliseconds(1));
      return goes ? then : fault_action::none;
    };
  };
  cluster_->add_worker("a-worker", held_back(fault_action::kill));
  cluster_->add_worker("b-worker", held_back(fault_action::none));
  const auto kept = [&] {
    return cluster_->view().copied_version.steps == gate_ && cluster_->view().copies_problem.empty();
  };
  while (!cluster_->run_until(kept, milliseconds(500))) // a version may be made before the last one is there
    ASSERT_LT(++gate_, 20u);
  goes = true;
  cluster_->kill("a-keeper");
  expect_identical();
  EXPECT_EQ(cluster_->view().chain.back().base, gate_);
  cluster_.reset(); // before `goes`
}

// given: two copies and snapshots as often as links allow; a keeper is killed with all workers, and so are the next
// ones with the other, when a third has filled up / expected: same bits, and nothing is computed again that had two
// copies
TEST_F(failure_schedule, what_is_kept_as_often_as_links_allow_comes_back) {
  auto job = small_job();
  job.steps *= 3; // processors rest for some steps after each snapshot
  job.keeper_every = 0;
  job.keeper_copies = 2;
  begin({{2, 2}, {2, 1}, {1, 1}}, job);
  cluster_->add_keeper("keeper1");
  cluster_->add_workers({"w0", "w1", "w2", "w3"}, at_a_pace);
  const auto copied = [&](std::uint64_t least) {
    return cluster_->run_until(
        [&] { return cluster_->view().copies == 2 && cluster_->view().copied_version.steps >= least; });
  };
  ASSERT_TRUE(copied(5));
  auto held = cluster_->view().copied_version;
  kill({"keeper", "w0", "w1", "w2", "w3"});
  cluster_->add_keeper("keeper2");
  cluster_->add_workers({"w4", "w5"}, at_a_pace);
  ASSERT_TRUE(copied(held.steps + 3));
  EXPECT_GE(cluster_->view().chain.back().base, held.steps);
  held = cluster_->view().copied_version;
  ASSERT_LT(held.steps, job.steps) << "too late to test anything";
  kill({"keeper1", "w4", "w5"});
  cluster_->add_worker("w6");
  ASSERT_TRUE(cluster_->run_until_ended());
  EXPECT_EQ(cluster_->final_digest(), undisturbed_digest(job));
  EXPECT_GE(cluster_->view().chain.back().base, held.steps);
}

/// Before which shard of those that come to it a keeper dies.
class keeper_moment : public failure_schedule, public ::testing::WithParamInterface<std::uint32_t> {};

// given: two keepers with all layers, a third that layers move to, which is killed meanwhile, and then one of the
// others and all workers / expected: nothing is lost that had two copies
TEST_P(keeper_moment, of_a_rebalance_costs_nothing_that_had_copies) {
  auto job = small_job();
  job.keeper_copies = 2;
  begin({{2, 1}}, job);
  cluster_->add_keeper("keeper1");
  add_workers({"w0", "w1"});
  ASSERT_TRUE(
      cluster_->run_until([&] { return cluster_->view().copies == 2 && cluster_->view().copied_version.steps >= 4; }));
  const auto held = cluster_->view().copied_version;
  cluster_->add_keeper("keeper2", [count = std::make_shared<std::atomic<std::uint32_t>>(0)](const fault_point& at) {
    return std::string(at.phase) == "snapshot" && (*count)++ == GetParam() ? fault_action::kill : fault_action::none;
  });
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().keepers.size() == 2; }));
  kill({"w0", "w1", "keeper1"});
  add_workers({"w2", "w3"});
  expect_identical();
  EXPECT_GE(cluster_->view().chain.back().base, held.steps);
}

INSTANTIATE_TEST_SUITE_P(shards, keeper_moment, ::testing::Values(0, 1, 3));

} // namespace
} // namespace parcae
