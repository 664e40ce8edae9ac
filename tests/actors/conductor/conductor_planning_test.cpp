// When the planner is asked, what it is told, and what becomes of its answer.

#include "tests/actors/conductor/conductor_fixture.hpp"

namespace parcae {
namespace {

TEST_F(conductor_test, joins_are_collected_before_planning) {
  c.add("a");
  c.add("b");
  c.advance(19ms);
  EXPECT_EQ(c.plans, 0u);
  c.advance(1ms);
  EXPECT_EQ(c.plans, 1u);
  EXPECT_EQ(c.running(), 2u);
}

TEST_F(conductor_test, same_choice_changes_nothing) {
  run_two();
  const auto g = c.view().current;
  c.event(plan_wanted{"test"});
  c.advance(1s);
  EXPECT_EQ(c.view().current, g);
}

TEST_F(conductor_test, join_during_a_change_waits_for_its_end) {
  run_two();
  c.silent = {"d"};
  c.join({"d"});
  ASSERT_EQ(c.view().now, phase::readying);
  const auto plans = c.plans;
  c.add("e");
  c.advance(1s);
  EXPECT_EQ(c.plans, plans);
}

TEST_F(conductor_test, join_while_the_planner_thinks_is_planned) {
  // given: 1×2 is the least; b joins after the planner was asked about one slot. expected: it is asked again.
  c.depth = 2;
  c.slow_planner = true;
  c.join({"a"});
  ASSERT_EQ(c.view().now, phase::planning);
  c.add("b");
  c.slow_planner = false;
  c.answer_plans();
  c.advance(100ms);
  EXPECT_EQ(c.view().now, phase::running);
}

TEST_F(conductor_test, join_between_a_plan_and_its_change_is_planned_after_it) {
  // given: e joins after the planner was asked because of d, and before its answer. expected: 4×1 well before the next
  // periodic plan.
  run_two();
  c.slow_planner = true;
  c.join({"d"});
  c.add("e");
  c.slow_planner = false;
  c.answer_plans();
  c.step();
  c.advance(1s);
  EXPECT_EQ(c.view().grid->width, 4u);
}

TEST_F(conductor_test, interval_alone_starts_a_change) {
  // given: nothing happens, but after an interval the planner answers otherwise. expected: the change, once, with what
  // it was asked for and what came of it; an answer that is the present configuration changes nothing.
  c.width = 1;
  run_two();
  const auto decisions = c.view().decision_count;
  const auto before = c.view().current;
  auto pass_an_interval = [&] { c.advance_and_step(4, 15s); };
  pass_an_interval();
  EXPECT_EQ(c.view().current, before);
  EXPECT_EQ(c.view().decision_count, decisions + 1);
  EXPECT_EQ(c.view().decisions.back().generation, 0u);
  c.width = 2;
  pass_an_interval();
  EXPECT_EQ(c.view().grid->width, 2u);
  EXPECT_EQ(c.view().current.value, before.value + 1);
  EXPECT_EQ(c.view().changes.back().trigger, "the planning interval's end");
  const auto change = std::ranges::find(c.view().decisions, c.view().current.value, &decision::generation);
  ASSERT_NE(change, c.view().decisions.end());
  EXPECT_EQ(change->trigger, "the planning interval's end");
  EXPECT_EQ(change->reason, "dummy reason");
  EXPECT_EQ(change->realised_ms, 0); // dummies take no time
}

TEST_F(conductor_test, planner_is_told_where_the_job_stands) {
  c.add("k", true);
  run_two();
  EXPECT_EQ(c.asked.current.width, 0u);
  c.notice("a", 10s);
  c.advance(20ms);
  EXPECT_TRUE(c.asked.running);
  EXPECT_EQ(c.asked.slots, 1u);
  EXPECT_EQ(c.asked.current, (shape{2, 1}));
  EXPECT_EQ(c.asked.left, std::vector<std::uint32_t>{1});
  EXPECT_EQ(c.asked.keepers, 1u);
  c.step();
  c.join({"d"});
  c.step();
  c.lose("b");
  EXPECT_FALSE(c.asked.running);
  EXPECT_EQ(c.asked.slots, 1u);
  EXPECT_EQ(c.asked.current, (shape{2, 1}));
  EXPECT_EQ(c.asked.left, std::vector<std::uint32_t>{1});
}

TEST_F(conductor_test, stall_is_predicted_from_what_changes_took) {
  // given: a loss every now and then, after each of which ABORTED takes 40 ms and PREPARED 200. expected: after the
  // first ones the prediction is what is measured.
  c.join({"a", "b", "d", "e", "f"});
  c.step();
  EXPECT_EQ(c.view().changes.back().predicted_ms, 0); // nothing ran before
  for (std::string name : {"b", "d", "e", "f"}) {
    std::deque<std::pair<slot_id, report>> late;
    c.mend = [&](const std::string& from, const report& x) {
      if (std::holds_alternative<aborted>(x) || std::holds_alternative<prepared>(x))
        late.emplace_back(c.slot(from), x);
      return x;
    };
    c.keep_back<aborted, prepared>();
    c.lose(name);
    for (auto wait : {40ms, 200ms}) {
      c.advance(wait);
      for (const auto& [from, what] : std::exchange(late, {}))
        c.event(slot_reported{from, what});
    }
    c.mend = nullptr;
    c.hold_back = nullptr;
    ASSERT_EQ(c.view().now, phase::running);
    c.step();
    EXPECT_NEAR(c.view().changes.back().stall_ms, 240, 1e-6);
  }
  EXPECT_NEAR(c.view().changes.back().predicted_ms, 240, 4);
  c.advance(1s);
}

TEST_F(conductor_test, stall_is_predicted_once_from_earlier_changes_alone) {
  // given: a loss whose first change is begun anew when another participant is lost, 3 s into PREPARE; and a loss of
  // all, with an hour until somebody comes. expected: the prediction is that of the first plan, or has nothing of the
  // wait in it; the record says how often it was planned and whether it waited.
  c.join({"a", "b", "d"});
  c.step();
  c.keep_back<prepared>();
  c.lose("a");
  c.advance(3s);
  c.hold_back = nullptr;
  c.lose("b");
  c.advance(1s);
  ASSERT_EQ(c.view().now, phase::running);
  c.step();
  c.lose("d");
  c.advance(1h);
  c.add("e");
  c.advance(1s);
  ASSERT_EQ(c.view().now, phase::running);
  c.step();
  ASSERT_EQ(c.view().changes.size(), 3u);
  const auto &anew = c.view().changes[1], &late = c.view().changes[2];
  EXPECT_GE(anew.stall_ms, 3'000);
  EXPECT_GT(anew.predicted_ms, 0);
  EXPECT_LT(anew.predicted_ms, 1'000);
  EXPECT_EQ(anew.plans, 2u);
  EXPECT_FALSE(anew.waited);
  EXPECT_GE(late.stall_ms, 3'600'000);
  EXPECT_GT(late.predicted_ms, 0);
  EXPECT_LT(late.predicted_ms, 1'000);
  EXPECT_EQ(late.plans, 1u);
  EXPECT_TRUE(late.waited);
}

TEST_F(conductor_test, first_step_that_takes_longer_than_the_watchdog_is_given_more_time) {
  // given: the first step takes 100 s. expected: not aborted for ever every 30 s.
  c.join({"a"});
  auto g = c.view().current;
  int aborts = 0;
  for (milliseconds in_step{0}; in_step < 100s && aborts < 10; in_step += 1s) {
    c.advance(1s);
    if (c.view().current != std::exchange(g, c.view().current)) {
      ++aborts;
      in_step = 0s;
    }
  }
  EXPECT_EQ(aborts, 2); // after 30 s and 60 s
}

TEST_F(conductor_test, communication_that_fails_again_and_again_backs_off) {
  // given: 2×1 whose communication fails as soon as it is activated. expected: a few tries at once, then fewer.
  run_two();
  c.mend = [](const std::string& name, const report& x) -> report {
    if (const auto* p = std::get_if<active>(&x); p && name == "b")
      return failed{p->current, failure::communication, 0, "reset", {}};
    return x;
  };
  c.plans = 0;
  c.say("a", failed{c.view().current, failure::communication, 0, "reset", {}});
  c.advance(10s);
  EXPECT_LE(c.plans, 10u);
  c.mend = {};
  c.advance(1min);
  EXPECT_EQ(c.view().now, phase::running);
}

// given: two slots on a machine of two cores, one on another of eight, then two more on the first / expected: the
// planner is told of the machine with most slots for its cores; slots whose machine is not known have their own
TEST_F(conductor_test, planner_is_told_what_slots_share) {
  c.add("a", false, {"first", 2, 8'000});
  c.add("b", false, {"first", 2, 8'000});
  c.add("c", false, {"second", 8});
  c.join({"d"});
  EXPECT_EQ(c.asked.platform.machine_slots, 2u);
  EXPECT_EQ(c.asked.platform.machine_cores, 2);
  EXPECT_EQ(c.asked.memory.bytes, 4'000u);
  c.add("e", false, {"first", 2, 8'000});
  c.advance(20ms);
  EXPECT_EQ(c.asked.platform.machine_slots, 3u);
  c.lose("a");
  c.lose("b");
  c.lose("e");
  EXPECT_EQ(c.asked.platform.machine_slots, 1u);
  EXPECT_EQ(c.asked.platform.machine_cores, 8);
  c.lose("c");
  c.advance(20ms);
  EXPECT_EQ(c.asked.platform.machine_cores, 0);
}

// given: a planner that takes its time when somebody joins / expected: steps are made meanwhile, and the change follows
TEST_F(conductor_test, trains_while_the_planner_thinks) {
  run_two();
  c.slow_planner = true;
  c.join({"c"});
  const auto before = c.view().steps_done;
  const auto g = c.view().current;
  ASSERT_EQ(c.plans, 2u);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(c.view().now, phase::running);
    c.step();
  }
  EXPECT_EQ(c.view().steps_done, before + 5);
  EXPECT_EQ(c.view().current, g);
  c.slow_planner = false;
  c.answer_plans();
  EXPECT_EQ(c.running(), 3u);
  EXPECT_EQ(c.view().replayed_steps, 0u);
}

// given: 1×2, a notice to one of them, a spare that takes its time to prepare / expected: the one that leaves is to
// send its stage, to the spare alone, and trains until then; no step is computed again
TEST_F(conductor_test, who_is_under_notice_trains_until_it_sends) {
  c.depth = 2;
  c.width = 1;
  c.join({"a", "b", "s"});
  ASSERT_EQ(c.view().now, phase::running);
  c.step();
  c.silent = {"s"};
  c.notice("a", 30s);
  c.advance(20ms);
  ASSERT_EQ(c.view().now, phase::readying);
  const auto& told = c.told("s");
  const auto* plan = std::get_if<prepare>(&told.back());
  ASSERT_NE(plan, nullptr);
  ASSERT_EQ(plan->moves.size(), 2u); // layers
  for (const auto& move : plan->moves) {
    EXPECT_EQ(plan->target.participants.at(move.source).slot, c.slot("a"));
    EXPECT_EQ(plan->target.participants.at(move.destination).slot, c.slot("s"));
  }
  const auto before = c.view().steps_done;
  c.step(2);
  EXPECT_EQ(c.view().steps_done, before + 2);
  c.silent.clear();
  c.say("s", prepared{plan->next, checksum_of(*plan)});
  EXPECT_EQ(c.view().now, phase::running);
  c.step();
  EXPECT_EQ(c.view().steps_done, before + 3);
  EXPECT_EQ(c.view().replayed_steps, 0u);
  EXPECT_EQ(c.view().changes.back().bytes, 2'000u);
}

// given: steps of 100 ms of 16 samples, state whose parameters take 60 ms and all of it 180; a node joins that doubles
// the rate, or adds a thirtieth; or one is under notice, and another takes its place / expected: layers go ahead of the
// last two
struct feed_question : testing::Test {
  feed_question() {
    d.keep_back<warmed>();
    d.width = 1;
    d.join({"a"});
    d.step();
  }

  phase joined(std::uint32_t width, double samples_per_s) {
    d.width = width;
    d.samples_per_s = samples_per_s;
    d.join({"b"});
    return d.view().now;
  }

  dummy_cluster d{4, 1000, 0, {}, {}, 30'000'000};
};

TEST_F(feed_question, a_join_that_doubles_the_rate_is_not_kept_waiting) {
  EXPECT_NE(joined(2, 320), phase::warming);
  d.step();
  EXPECT_EQ(d.running(), 2u);
}

TEST_F(feed_question, layers_go_ahead_of_a_join_that_adds_little) {
  EXPECT_EQ(joined(2, 165), phase::warming);
}

TEST_F(feed_question, layers_go_ahead_of_who_leaves) {
  EXPECT_EQ(joined(1, 160), phase::running);
  d.samples_per_s = 320;
  d.notice("a", 30s);
  d.advance(50ms);
  EXPECT_EQ(d.view().now, phase::warming);
}

} // namespace
} // namespace parcae
