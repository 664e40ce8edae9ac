// What a change does when somebody is late, fails, leaves, or comes.

#include "tests/actors/conductor/conductor_fixture.hpp"

#include <cmath>
#include <limits>

namespace parcae {
namespace {

TEST_F(conductor_test, participant_that_does_not_prepare_is_left_out_and_comes_back) {
  // given: b never answers PREPARE. expected: after 60 s 1×1 with a; once b answers for its inventory, 2×1.
  c.silent = {"b"};
  c.join({"a", "b"});
  EXPECT_EQ(c.view().now, phase::preparing);
  c.advance(60s);
  EXPECT_EQ(c.running(), 1u);
  c.step();
  c.silent.clear();
  c.advance(2s);
  EXPECT_EQ(c.running(), 2u);
}

TEST_F(conductor_test, rank_that_does_not_answer_abort_is_treated_as_lost) {
  // given: a replica is lost, another does not answer ABORT, the third does. expected: it goes on alone 2 s later
  run_two();
  c.join({"d"});
  ASSERT_EQ(c.view().grid->width, 3u);
  c.step();
  c.silent = {"b"};
  c.lose("d");
  EXPECT_EQ(c.view().now, phase::aborting);
  c.advance(2s);
  EXPECT_EQ(c.running(), 1u);
}

TEST_F(conductor_test, rank_that_alone_holds_a_stage_is_waited_for) {
  // given: two replicas, one lost, the other in a long layer when ABORT comes. expected: its answer is waited for as
  // long as a step may take, and no committed step is lost
  run_two();
  c.step();
  const auto steps = c.view().steps_done;
  c.keep_back<aborted>();
  c.lose("b");
  c.advance(29s);
  EXPECT_EQ(c.view().now, phase::aborting);
  ASSERT_FALSE(c.held_back.empty());
  c.hold_back = {};
  c.say("a", c.held_back.back());
  c.advance(20ms);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().steps_done, steps);
  EXPECT_EQ(c.view().replayed_steps, 1u); // the one in progress
}

TEST_F(conductor_test, rank_that_never_answers_abort_is_given_up_and_its_steps_are_said) {
  run_two();
  c.step();
  const auto steps = c.view().steps_done;
  c.silent = {"a"};
  c.lose("b");
  c.add("d");
  c.advance(30s);
  EXPECT_THAT(c.log(), Contains(HasSubstr(std::to_string(steps) + " committed step")));
}

TEST_F(conductor_test, generation_without_progress_is_aborted) {
  run_two();
  const auto g = c.view().current;
  c.advance(29s);
  EXPECT_EQ(c.view().current, g);
  c.step();
  c.advance(29s);
  EXPECT_EQ(c.view().current, g);
  c.advance(2s);
  EXPECT_GT(c.view().current, g);
  EXPECT_THAT(c.log(), Contains(HasSubstr("no progress within 30s")));
}

// given: a loss when all have reached the final version, and not all have said that they stopped / expected: no step is
// replayed, as none was in progress
TEST(conductor_steps, none_is_in_progress_at_the_final_version) {
  dummy_cluster c(4, 2);
  c.join({"a", "b"});
  c.keep_back<stopped>();
  c.step(2);
  ASSERT_EQ(c.view().now, phase::running);
  c.lose("b");
  EXPECT_EQ(c.view().steps_done, 2u);
  EXPECT_EQ(c.view().replayed_steps, 0u);
}

TEST_F(conductor_test, instance_under_notice_loses_its_place_without_replay) {
  run_two();
  c.notice("b", 30s);
  c.advance(20ms);
  EXPECT_EQ(c.running(), 1u);
  c.step();
  c.lose("b");
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().replayed_steps, 0u);
}

TEST_F(conductor_test, step_that_outlasts_the_notice_to_the_only_holder_is_aborted) {
  // given: the first of two stages on a, which leaves in 10 s; a spare; a step that does not end. expected: before a is
  // gone, an abort, and the spare has the stage: no committed step is lost.
  c.depth = 2;
  c.width = 1;
  c.join({"a", "b", "spare"});
  ASSERT_EQ(c.view().now, phase::running);
  c.step(3);
  ASSERT_EQ(c.view().grid->participants[0].slot.instance, "a");
  c.keep_back<stopped>();
  c.notice("a", 10s);
  c.advance(9s);
  EXPECT_EQ(c.view().now, phase::stopping);
  c.advance(990ms);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_THAT(c.log(), Contains(HasSubstr("outlasts the notice")));
  c.lose("a");
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().grid->participants[0].slot.instance, "spare");
  EXPECT_EQ(c.view().steps_done, 3u);
  EXPECT_EQ(c.view().replayed_steps, 1u); // the one in progress
}

TEST_F(conductor_test, notice_to_a_holder_among_others_lets_the_step_end) {
  // given: a step that outlasts the notice to one of two replicas. expected: no abort before it is gone
  run_two();
  c.keep_back<stopped>();
  c.notice("b", 10s);
  c.advance(9'999ms);
  EXPECT_EQ(c.view().now, phase::stopping);
}

TEST_F(conductor_test, last_instance_under_notice_trains_to_its_end) {
  c.join({"a"});
  c.step();
  c.notice("a", 30s);
  c.advance(1s);
  EXPECT_EQ(c.view().now, phase::running);
  c.lose("a");
  EXPECT_EQ(c.view().now, phase::waiting);
  c.join({"b"});
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().steps_done, 0u); // no keeper: version 0
}

TEST_F(conductor_test, last_instance_under_notice_leaves_its_state_to_the_keepers) {
  // given: a notice to the only worker, a keeper without a snapshot. expected: it trains almost to its end, then stops
  // for a snapshot of where it is; no step is lost
  c.add_keeper_and_worker();
  c.step();
  c.notice("a", 30s);
  c.advance(29s);
  EXPECT_EQ(c.view().now, phase::running);
  c.step();
  c.advance(999ms);
  EXPECT_EQ(c.view().now, phase::waiting);
  EXPECT_EQ(stops_with_snapshot("a"), 1);
  EXPECT_EQ(whole_stages_asked("a"), 0) << "the snapshot is enough";
  c.snapshot("k");
  c.lose("a");
  c.join({"b"});
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().steps_done, 2u);
  EXPECT_EQ(c.view().replayed_steps, 0u);
}

TEST_F(conductor_test, who_waits_under_notice_may_go_when_the_keepers_have_all) {
  // given: short notices to all who train, a keeper that has their state a while after they stopped; then one that
  // joined meanwhile, and holds nothing. expected: they may go then, and not before; it at once; no step is lost
  c.add("k", true);
  run_two();
  for (const auto* name : {"a", "b"})
    c.notice(name, 1s);
  EXPECT_FALSE(c.machine().can_go(c.slot("a")));
  c.advance(1s);
  ASSERT_EQ(c.view().now, phase::waiting);
  for (const auto* name : {"a", "b"})
    EXPECT_FALSE(c.machine().can_go(c.slot(name))) << name;
  EXPECT_FALSE(c.machine().can_go(c.slot("k")));
  c.snapshot("k");
  for (const auto* name : {"a", "b"})
    EXPECT_TRUE(c.machine().can_go(c.slot(name))) << name;
  EXPECT_FALSE(c.machine().can_go(c.slot("k")));
  c.lose("a");
  c.lose("b");
  c.join({"d"});
  EXPECT_EQ(c.running(), 1u);
  EXPECT_EQ(c.view().steps_done, 1u);
  EXPECT_EQ(c.view().replayed_steps, 0u);
}

TEST_F(conductor_test, who_holds_nothing_may_go_while_all_wait) {
  // given: a keeper without a snapshot, the only worker lost, and another under notice before it has a place. expected:
  // it may go
  c.add_keeper_and_worker();
  c.step();
  c.lose("a");
  c.silent.insert("b");
  c.add("b");
  c.notice("b", 1s);
  c.advance(10s);
  ASSERT_EQ(c.view().now, phase::waiting);
  EXPECT_TRUE(c.machine().can_go(c.slot("b")));
}

TEST(conductor_notices, evaluation_before_the_end_of_a_notice_is_reckoned_with) {
  // given: an evaluation that may take as long as 101 steps, 99 or 999 steps away; notice to the only worker. expected:
  // it stops early enough to end the evaluation, if there is one before the end
  for (const auto& [every, stopped_after_15s] : {std::pair{100u, true}, {1000u, false}}) {
    dummy_cluster d(4, [every = every](job_specification& job) {
      job.steps = 10'000;
      job.evaluate_every = every;
      job.data.validation = 100 * job.global_batch;
    });
    d.add("k", true);
    d.join({"a"});
    d.step();
    d.notice("a", 30s);
    d.advance(1s);
    EXPECT_EQ(d.view().now, phase::running) << every;
    d.advance(14s);
    EXPECT_EQ(d.view().now, stopped_after_15s ? phase::waiting : phase::running) << every;
  }
}

TEST_F(conductor_test, last_replica_under_notice_leaves_the_whole_stage_to_the_keepers) {
  // given: two replicas under notice, one of which goes long before the other. expected: the rest of the time nothing
  // trains, but the other sends all of the stage, and no committed step is lost
  run_two();
  c.add("k", true);
  c.step();
  const auto steps = c.view().steps_done;
  c.notice("a", 3s);
  c.notice("b", 9s);
  c.advance(2s);
  EXPECT_EQ(c.view().now, phase::running);
  c.lose("a");
  EXPECT_EQ(c.view().now, phase::waiting);
  EXPECT_EQ(whole_stages_asked("b"), 1);
  c.snapshot("k");
  c.lose("b");
  c.join({"d"});
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().steps_done, steps);
}

TEST_F(conductor_test, join_that_is_not_prepared_in_time_does_not_keep_state_from_the_keepers) {
  // given: notice to all, then a join that takes longer to prepare than is left. expected: the change is given up and
  // the state goes to the keepers
  c.add_keeper_and_worker();
  c.step();
  c.notice("a", 4s);
  c.advance(1s);
  c.silent = {"d"};
  c.join({"d"});
  EXPECT_EQ(c.view().now, phase::readying);
  c.advance(2'979ms);
  EXPECT_EQ(stops_with_snapshot("a"), 1);
}

TEST_F(conductor_test, joiner_lost_while_it_prepares_leaves_the_generation_running) {
  run_two();
  const auto g = c.view().current;
  c.silent = {"d"};
  c.join({"d"});
  EXPECT_EQ(c.view().now, phase::readying);
  c.lose("d");
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().current, g);
}

TEST_F(conductor_test, of_two_that_cannot_connect_the_younger_becomes_a_spare) {
  c.mend = [](const std::string& name, const report& x) -> report {
    if (const auto* p = std::get_if<prepared>(&x); p && name == "a" && p->next.value == 1)
      return failed{p->next, failure::unreachable, 1, "b refused", {}};
    return x;
  };
  c.join({"a", "b"});
  EXPECT_EQ(c.running(), 1u);
  EXPECT_EQ(c.view().grid->participants[0].slot.instance, "a");
}

TEST_F(conductor_test, participant_that_failed_is_asked_again_before_steps_are_given_up) {
  // given: 1×2, no keeper; b's LibTorch throws once, but b still holds its stage, or answers nothing any more. d is
  // ready to take its place. expected: nothing is sent from b while it is excluded, and its return is waited for: no
  // step is lost; after some back-offs the job goes on without its state.
  for (const bool answers : {true, false}) {
    SCOPED_TRACE(answers);
    dummy_cluster d(4);
    d.depth = 2;
    d.join({"a", "b"});
    d.step(2);
    d.join({"d"});
    if (!answers)
      d.silent = {"b"};
    d.say("b", failed{d.view().current, failure::computation, 0, "threw", {}});
    EXPECT_EQ(d.view().now, answers ? phase::waiting : phase::aborting);
    EXPECT_FALSE(d.ended());
    d.advance(answers ? 1100ms : 2min);
    EXPECT_EQ(d.view().now, phase::running);
    EXPECT_EQ(d.view().steps_done, answers ? 2u : 0u);
    EXPECT_EQ(d.view().grid->depth, 2u);
  }
}

TEST_F(conductor_test, late_inventory_of_an_excluded_participant_is_not_planned_with) {
  // given: a 2×1 change fails at b, which is excluded and then says that it holds version 0 of all. expected: 1×1.
  run_two();
  c.slow_planner = true;
  c.say("b", failed{c.view().current, failure::computation, 0, "threw", {}});
  ASSERT_EQ(c.view().now, phase::planning);
  c.lose("a");
  c.add("d");
  c.say("b", aborted{c.view().current, {}, no_step, {}, {{0, {1, {1}}}, {1, {1, {1}}}, {2, {1, {1}}}, {3, {1, {1}}}}});
  c.slow_planner = false;
  c.answer_plans();
  c.advance(2s);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().steps_done, 1u);
}

TEST_F(conductor_test, every_activated_generation_has_its_record) {
  // given: a join is planned before the first commit of the generation that the join before it began.
  // expected: one record for each, of the right generation.
  run_two();
  const auto before = c.view().changes.size();
  c.join({"d"});
  ASSERT_EQ(c.view().grid->width, 3u);
  c.silent = {"e"}; // readying while g's first commit is heard
  c.join({"e"});
  ASSERT_EQ(c.view().now, phase::readying);
  c.step();
  c.silent.clear();
  c.advance(1min);
  c.step();
  const auto& changes = c.view().changes;
  ASSERT_GE(changes.size(), before + 1);
  EXPECT_EQ(changes[before].configuration, "3×1");
  EXPECT_EQ(changes[before].to, 2u);
  EXPECT_GE(changes[before].first_commit_ms, changes[before].active_ms);
}

TEST_F(conductor_test, progress_before_the_last_active_does_not_lose_the_record) {
  c.add("a");
  c.add("b");
  bool early = false;
  c.mend = [&](const std::string& name, const report& x) -> report {
    if (const auto* p = std::get_if<active>(&x); p && name == "a" && !std::exchange(early, true))
      return progress{p->current, {1, p->current}, {0}, 100, {}};
    return x;
  };
  c.advance(20ms);
  ASSERT_EQ(c.view().now, phase::activating);
  c.say("a", active{c.view().current});
  ASSERT_EQ(c.view().now, phase::running);
  ASSERT_EQ(c.view().changes.size(), 1u);
  EXPECT_GE(c.view().changes[0].active_ms, 0);
}

TEST_F(conductor_test, progress_heard_after_the_decision_does_not_count) {
  // given: a step that one of three has applied, and another applies by DECIDE; b did not answer ABORT, and its report
  // of a step after it arrives while DECIDE is answered. expected: the steps done are those decided.
  c.join({"a", "b", "d"});
  c.step();
  c.silent = {"b"};
  const auto g = c.view().current;
  c.half_step(1);
  ASSERT_EQ(c.view().now, phase::aborting);
  bool said = false;
  c.mend = [&](const std::string&, const report& x) -> report {
    if (std::holds_alternative<decided>(x) && !std::exchange(said, true))
      c.say("b", progress{g, {3, g}, {2}, 100, {}});
    return x;
  };
  c.advance(5s);
  ASSERT_TRUE(said);
  EXPECT_EQ(c.view().steps_done, 2u);
}

TEST_F(conductor_test, progress_that_cannot_be_is_not_believed) {
  // given: one of two ranks reports a step that the job does not have, or no time at all. expected: it counts for
  // nothing, its slot is used no more, and the other trains on from where they were.
  const auto g = generation{1};
  for (const auto& x : {progress{g, {std::uint64_t{1} << 62, g}, {1}, 100, {}},
                        progress{g, {2, g}, {1}, std::nan(""), {}}, progress{g, {2, g}, {1}, 1e300, {}}}) {
    SCOPED_TRACE(std::to_string(x.at.steps) + " " + std::to_string(x.step_ms));
    dummy_cluster d(4);
    d.join({"a", "b"});
    d.step();
    ASSERT_EQ(d.view().current, g);
    const auto replayed = d.view().replayed_steps;
    d.say("b", x);
    EXPECT_EQ(d.view().steps_done, 1u);
    d.advance(1s);
    d.step();
    EXPECT_EQ(d.view().now, phase::running);
    EXPECT_EQ(d.view().steps_done, 2u);
    EXPECT_LE(d.view().replayed_steps, replayed + 1);
    EXPECT_EQ(d.view().grid->ranks(), 1u);
    ASSERT_EQ(d.view().unused.size(), 1u);
    EXPECT_THAT(d.view().unused[0].why, HasSubstr("it reports step"));
  }
}

TEST_F(conductor_test, a_stall_ends_when_the_last_rank_begins) {
  // given: a loss, PREPARED of b heard 10 ms after a's, ACTIVE of both 50 ms later; what they say of the time between,
  // by their own clocks. expected: the stall ends when the later one began; what cannot be is not believed.
  struct word {
    double a_ms, b_ms, stall_ms;
  };
  const double nothing = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [a_ms, b_ms, stall_ms] :
       {word{15, 8, 18}, word{15, 3, 15}, word{-1, 8, 60}, word{15, 1e300, 60}, word{nothing, 8, 60}}) {
    SCOPED_TRACE(std::to_string(a_ms) + ", " + std::to_string(b_ms));
    dummy_cluster d(4);
    d.join({"a", "b", "d"});
    d.step();
    d.keep_back<prepared, active>();
    d.lose("d");
    ASSERT_EQ(d.view().now, phase::preparing);
    const auto told = d.all_told<prepare>("a").back();
    d.say("a", prepared{told.next, checksum_of(told)});
    d.advance(10ms);
    d.say("b", prepared{told.next, checksum_of(told)});
    ASSERT_EQ(d.view().now, phase::activating);
    d.advance(50ms);
    d.say("a", active{told.next, a_ms});
    d.say("b", active{told.next, b_ms});
    ASSERT_EQ(d.view().now, phase::running);
    d.step();
    EXPECT_NEAR(d.view().changes.back().stall_ms, stall_ms, 0.01);
  }
}

} // namespace
} // namespace parcae
