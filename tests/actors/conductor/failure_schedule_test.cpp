// Losses at exact moments inside a step or a change, against real executors over real TCP. Each test asserts the
// decision taken and that the final parameters have the bits of the undisturbed run.

#include "tests/actors/conductor/failure_schedule.hpp"

#include <array>
#include <thread>

namespace parcae {
namespace {

TEST_F(failure_schedule, no_shape_of_the_grid_changes_a_bit) {
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> shapes{{1, 1}, {1, 2}, {2, 1}, {3, 1}, {2, 2}, {3, 2},
                                                                    {1, 4}, {5, 1}, {1, 6}, {6, 1}, {2, 3}, {1, 3}};
  step_gate gate(shapes.size()); // outlives the cluster's executors
  begin(shapes);
  std::size_t wanted = 0; // not the next with each question: workers may join one by one
  cluster_->planner = [&](std::uint32_t slots, const auto&) {
    const auto [width, depth] = shapes[wanted];
    return width * depth > slots ? configuration{0, 0, {}, 0, "not enough slots for the test's shape"}
                                 : shape(job_, width, depth);
  };
  cluster_->on_effect = [&](const effect& x) {
    gate.see(x);
    return true;
  };
  for (int i = 0; i < 6; ++i)
    cluster_->add_worker("w" + std::to_string(i), [&](const fault_point& at) { return gate.pass(at); });
  for (std::size_t i = 0; i + 1 < shapes.size(); ++i) {
    const auto g = i + 1;
    ASSERT_TRUE(cluster_->run_until([&] {
      return cluster_->view().current.value == g && cluster_->view().now == phase::running &&
             cluster_->view().steps_done > i;
    })) << i;
    wanted = i + 1;
    cluster_->send(plan_wanted{"the test's next shape"});
  }
  expect_identical();
  EXPECT_EQ(cluster_->view().current.value, shapes.size());
  EXPECT_EQ(cluster_->view().replayed_steps, 0u);
  cluster_.reset();
}

TEST_F(failure_schedule, one_stage_has_applied_when_the_other_dies) {
  // given: 1×2, a keeper with version 4; one stage is at version 6, and only then the other, which has the result of
  // step 5 too, dies before its apply. expected: nobody can bring that to version 6, so the first one's is void; back
  // to 4.
  for (const std::size_t dies : {1u, 0u}) {
    SCOPED_TRACE(dies);
    shared_moment applied, saved; // outlive the cluster's executors
    begin({{1, 2}});
    for (const std::size_t stage : {0u, 1u})
      cluster_->add_worker("w" + std::to_string(stage),
                           stage == dies ? after({&applied, &saved}, fault_action::kill, "exchanged", 5)
                                         : reaching("committed", 6, applied));
    ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().protected_version.steps == 4; }));
    saved.reach();
    cluster_->add_worker("w2");
    expect_identical();
    EXPECT_TRUE(decided("generation 1 ends at 5: step 5 is dropped: nobody alive can bring stage " +
                        std::to_string(dies) + " to version 6"));
    EXPECT_TRUE(decided("go back to version 4@1"));
    cluster_.reset();
  }
}

TEST_F(failure_schedule, rank_dies_before_it_contributes) {
  // given: 2×2; replica 0 of stage 1 is killed before it sends any contribution to step 5's exchange.
  // expected: nobody has the result; abort of step 5; replay; same bits.
  begin({{2, 2}, {1, 2}});
  cluster_->add_worker("w0");
  cluster_->add_worker("w1", once("reduced", 5, fault_action::kill));
  add_workers({"w2", "w3"});
  expect_identical();
  EXPECT_TRUE(decided("generation 1 ends at 5: step 4 is committed"));
  EXPECT_EQ(cluster_->view().replayed_steps, 1u);
}

TEST_F(failure_schedule, contribution_missed_by_one_rank_when_the_only_informed_rank_dies) {
  // given: 3×1; rank 2 sends its contribution of step 5 to rank 0 only and freezes; rank 0 alone completes the
  // exchange, and is killed before its apply. expected: the result is lost with it: abort, one step replayed.
  begin({{3, 1}, {1, 1}});
  shared_moment informed;
  cluster_->add_worker("w0", [&](const fault_point& at) {
    if (std::string(at.phase) != "exchanged" || at.step != 5)
      return fault_action::none;
    informed.reach();
    return fault_action::kill;
  });
  cluster_->add_worker("w1");
  cluster_->add_worker("w2", after({&informed}, fault_action::freeze, "exchange_send", 5, 1));
  expect_identical();
  EXPECT_TRUE(decided("step 4 is committed"));
  EXPECT_EQ(cluster_->view().replayed_steps, 1u);
}

TEST_F(failure_schedule, informed_rank_lives_and_tells_the_others) {
  // given: 3×1; rank 2 sends its contribution of step 5 to rank 0 only and is killed.
  // expected: rank 0 knows the result, ranks 0 and 1 have the gradients: commit, which both are told; nothing replayed.
  begin({{3, 1}, {2, 1}});
  int decisions = 0;
  on_told<decide>([&] { ++decisions; });
  shared_moment informed;
  cluster_->add_worker("w0", reaching("exchanged", 5, informed));
  cluster_->add_worker("w1");
  cluster_->add_worker("w2", after({&informed}, fault_action::kill, "exchange_send", 5, 1));
  expect_identical();
  EXPECT_TRUE(decided("step 5 is committed"));
  EXPECT_EQ(cluster_->view().replayed_steps, 0u);
  EXPECT_EQ(decisions, 2);
}

TEST_F(failure_schedule, frozen_rank_thaws_with_a_step_that_was_dropped) {
  // given: 3×1; rank 2 sends its contribution of step 5 to rank 0 only, which applies it and freezes; rank 2 is killed.
  // expected: rank 1 has nothing to apply, and is told no decision; it goes on from version 5. When rank 0 thaws, what
  // it holds is void, and what it says changes nothing.
  begin({{3, 1}, {1, 1}});
  int decisions = 0;
  on_told<decide>([&] { ++decisions; });
  shared_moment applied, heard;
  cluster_->add_worker("w0", [&](const fault_point& at) {
    if (std::string(at.phase) != "committed" || at.step != 6 || at.at.value != 1)
      return fault_action::none;
    applied.reach();
    return fault_action::freeze;
  });
  cluster_->add_worker("w1", [&](const fault_point& at) {
    if (at.at.value > 1 && std::string(at.phase) == "forward" && at.step >= 12)
      heard.wait();
    return fault_action::none;
  });
  cluster_->add_worker("w2", after({&applied}, fault_action::kill, "exchange_send", 5, 1));
  ASSERT_TRUE(
      cluster_->run_until([&] { return cluster_->view().current.value == 2 && cluster_->view().steps_done > 5; }));
  EXPECT_TRUE(decided("generation 1 ends at 5: step 4 is committed"));
  EXPECT_EQ(decisions, 0);
  cluster_->thaw("w0");
  EXPECT_TRUE(cluster_->run_until([&] { return cluster_->late_reports() >= 1; }));
  EXPECT_EQ(cluster_->view().current.value, 2u);
  heard.reach();
  expect_identical();
}

TEST_F(failure_schedule, loss_between_two_layers_of_the_apply) {
  // given: 2×1; rank 1 is killed when it has applied 2 of its layers. expected: rank 0 has applied: commit.
  begin({{2, 1}, {1, 1}});
  shared_moment informed; // else the abort may be faster than w0
  cluster_->add_worker("w0", reaching("exchanged", 5, informed));
  cluster_->add_worker("w1", after({&informed}, fault_action::kill, "apply", 5, 2));
  expect_identical();
  EXPECT_TRUE(decided("step 5 is committed"));
}

TEST_F(failure_schedule, death_after_the_decision_to_commit_before_its_apply) {
  // given: 2×2; rank 3 tells only rank 0 of step 6 and dies, so rank 0 alone knows the result; rank 1, the last of
  // stage 1, dies in the apply that DECIDE(commit) asks for. expected: version 7 of stage 1 is lost for good, the chain
  // is cut back to the newest version the keeper has of all layers.
  begin({{2, 2}, {1, 2}});
  shared_moment informed;
  cluster_->add_worker("w0", reaching("exchanged", 6, informed));
  cluster_->add_worker("w1", once("apply", 6, fault_action::kill, 1));
  cluster_->add_worker("w2");
  cluster_->add_worker("w3", after({&informed}, fault_action::kill, "exchange_send", 6, 1));
  expect_identical();
  EXPECT_TRUE(decided("step 6 is committed"));
  EXPECT_TRUE(decided("steps are lost"));
}

TEST_F(failure_schedule, frozen_rank_that_applied_thaws_two_generations_later) {
  // given: 2×1; rank 1 freezes when both have applied step 5, and goes on in generation 3. expected: commit; what it
  // then reports reaches the conductor, while that generation trains, and changes nothing.
  begin({{2, 1}, {1, 1}, {2, 1}});
  shared_moment applied, heard;
  const auto wait_in_the_third = [&](const fault_point& at) {
    if (at.at.value >= 3 && std::string(at.phase) == "forward" && at.step >= 12)
      heard.wait();
    return fault_action::none;
  };
  cluster_->add_worker("w0", [&](const fault_point& at) {
    if (std::string(at.phase) == "committed" && at.step == 6)
      applied.reach();
    if (at.at.value == 2 && std::string(at.phase) == "forward") // else a quick machine is done before w2 has joined
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return wait_in_the_third(at);
  });
  cluster_->add_worker("w1", after({&applied}, fault_action::freeze, "committed", 6));
  ASSERT_TRUE(
      cluster_->run_until([&] { return cluster_->view().current.value == 2 && cluster_->view().steps_done > 7; }));
  EXPECT_TRUE(decided("generation 1 ends at 6: step 5 is committed"));
  cluster_->add_worker("w2", wait_in_the_third);
  ASSERT_TRUE(cluster_->run_until(
      [&] { return cluster_->view().current.value >= 3 && cluster_->view().now == phase::running; }));
  const auto before = cluster_->view().current;
  cluster_->thaw("w1");
  EXPECT_TRUE(cluster_->run_until([&] { return cluster_->late_reports() >= 2; })); // of its commit, of the connection
  EXPECT_EQ(cluster_->view().now, phase::running);
  EXPECT_EQ(cluster_->view().current, before);
  heard.reach();
  expect_identical();
  EXPECT_EQ(cluster_->view().replayed_steps, 1u); // that in progress when the freeze was seen
}

TEST_F(failure_schedule, spare_dies_while_it_makes_room) {
  // given: 1×1; a spare is told what to have room for, and dies at once; another one has made room, and takes over when
  // the rank is lost. expected: nothing comes of the first, the same bits.
  begin({{1, 1}});
  std::vector<std::string> told;
  cluster_->on_effect = [&](const effect& x) {
    if (const auto* t = std::get_if<tell>(&x))
      if (const auto* r = std::get_if<release>(t->what.get()); r && !r->room.empty())
        told.push_back(t->to.instance);
    return true;
  };
  const auto is_told = [&](const std::string& name) { return std::ranges::find(told, name) != told.end(); };
  cluster_->add_worker("w0");
  cluster_->add_worker("w1");
  ASSERT_TRUE(cluster_->run_until([&] { return is_told("w1"); }));
  cluster_->kill("w1");
  cluster_->add_worker("w2");
  ASSERT_TRUE(cluster_->run_until([&] { return is_told("w2"); }));
  cluster_->kill("w0");
  expect_identical();
}

TEST_F(failure_schedule, stop_bit_that_meets_an_abort) {
  // given: STOP was sent for a change to 1×2, and a rank is killed in the same step's exchange, or at its end.
  // expected: abort and decide.
  begin({{2, 1}, {1, 2}, {1, 1}});
  auto armed = std::make_shared<std::atomic<bool>>(false);
  on_told<stop>([armed] { *armed = true; });
  cluster_->add_worker("w0");
  cluster_->add_worker("w1", [armed](const fault_point& at) {
    const std::string phase = at.phase;
    return *armed && (phase == "exchange_send" || phase == "committed") ? fault_action::kill : at_a_pace(at);
  });
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().steps_done >= 4; }));
  cluster_->send(plan_wanted{"the test"});
  expect_identical();
  EXPECT_TRUE(decided("generation 1 ends at "));
  EXPECT_FALSE(decided("generation 1 stopped at "));
}

TEST_F(failure_schedule, joiner_lost_after_stop_was_sent) {
  begin({{1, 1}, {2, 1}, {1, 1}});
  cluster_->add_worker("w0");
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().steps_done >= 4; }));
  bool stopping = false;
  on_told<stop>([&] { stopping = true; });
  cluster_->add_worker("w1");
  ASSERT_TRUE(cluster_->run_until([&] { return stopping; }));
  cluster_->kill("w1");
  expect_identical();
  EXPECT_TRUE(decided("generation 1 stopped at version "));
  EXPECT_EQ(cluster_->view().replayed_steps, 0u);
}

TEST_F(failure_schedule, source_that_dies_half_way_through_its_transfer) {
  // given: version 6 is held by one worker, 4 by the keeper; the worker sends two of the three layers that another is
  // to take over, and is killed. expected: what arrived counts for nothing; back to 4.
  begin({{1, 1}, {1, 2}, {2, 1}});
  shared_moment protecting, in_step_5, stopping;
  cluster_->on_effect = [&](const effect& x) {
    const auto* t = std::get_if<tell>(&x);
    if (const auto* p = t ? std::get_if<protect>(t->what.get()) : nullptr; p && !p->keepers.empty())
      protecting.reach();
    if (t && std::holds_alternative<stop>(*t->what))
      stopping.reach();
    return true;
  };
  cluster_->add_worker("w0", [&](const fault_point& at) {
    if (std::string(at.phase) == "forward" && at.step == 1)
      protecting.wait(); // else there may be no snapshot of version 4
    if (std::string(at.phase) == "forward" && at.step == 5) {
      in_step_5.reach();
      stopping.wait();
    }
    return std::string(at.phase) == "transfer_send" && at.index == 2 ? fault_action::kill : fault_action::none;
  });
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().protected_version.steps == 4; }));
  ASSERT_TRUE(cluster_->run_until([&] { return in_step_5.reached(); }));
  cluster_->add_worker("w1");
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().now == phase::waiting; }));
  cluster_->add_worker("w2"); // the state comes from the keeper
  expect_identical();
  EXPECT_TRUE(decided("generation 1 stopped at version 6@1"));
  EXPECT_TRUE(decided("go back to version 4@1"));
}

TEST_F(failure_schedule, loss_of_everything_before_the_first_snapshot) {
  // given: no keeper, and both stages are lost in step 2. expected: all begins anew.
  begin({{1, 2}});
  cluster_->kill("keeper");
  std::array<shared_moment, 2> there;
  const char* const phases[] = {"forward", "committed"}; // in its forward pass stage 1 would wait for stage 0
  for (const std::size_t i : {0, 1})
    cluster_->add_worker("w" + std::to_string(i), [&, i](const fault_point& at) {
      if (at.at.value > 1 || std::string(at.phase) != phases[i] || at.step != 2)
        return fault_action::none;
      there[i].reach();
      there[1 - i].wait();
      return fault_action::kill;
    });
  ASSERT_TRUE(cluster_->run_until(
      [&] { return cluster_->view().now == phase::waiting && cluster_->view().current.value == 1; }));
  cluster_->add_keeper("keeper1");
  add_workers({"w2", "w3"});
  expect_identical();
  EXPECT_TRUE(decided("generation 1 ends at 0"));
}

TEST_F(failure_schedule, loss_after_the_last_exchange_and_before_the_last_apply) {
  const auto last = small_job().steps - 1;
  begin({{2, 1}, {1, 1}});
  shared_moment informed;
  cluster_->add_worker("w0", reaching("exchanged", last, informed));
  cluster_->add_worker("w1", after({&informed}, fault_action::kill, "exchanged", last));
  expect_identical();
  EXPECT_TRUE(decided("step " + std::to_string(last) + " is committed"));
}

TEST_F(failure_schedule, loss_of_all_workers_right_after_the_last_commit) {
  // given: 2×1, the keeper has version 20; both have applied the last step, and die before they send what it made.
  // expected: back to 20.
  const auto steps = small_job().steps;
  begin({{2, 1}});
  shared_moment saved;
  std::array<shared_moment, 2> applied;
  for (const std::size_t i : {0, 1})
    cluster_->add_worker("w" + std::to_string(i), [&, i](const fault_point& at) {
      if (at.at.value > 1 || std::string(at.phase) != "committed" || at.step != steps)
        return fault_action::none;
      applied[i].reach();
      applied[1 - i].wait();
      saved.wait();
      return fault_action::kill;
    });
  ASSERT_TRUE(cluster_->run_until([&] { return cluster_->view().protected_version.steps == 20; }));
  saved.reach();
  ASSERT_TRUE(cluster_->run_until(
      [&] { return cluster_->view().now == phase::waiting && cluster_->view().current.value == 1; }));
  add_workers({"w2", "w3"});
  expect_identical();
  EXPECT_TRUE(decided("generation 1 ends at 20: step 19 is committed"));
}

} // namespace
} // namespace parcae
