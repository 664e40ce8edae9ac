// The manager dies and is started again: what trains goes on, what was committed stays.

#include "tests/actors/conductor/conductor_fixture.hpp"

namespace parcae {
namespace {

/// What happens to a job in the scripts below.
using script = std::vector<std::function<void(dummy_cluster&)>>;

const script planned_change = {
    [](auto& d) { d.add("k", true); },   [](auto& d) { d.add("a"); },      [](auto& d) { d.add("b"); },
    [](auto& d) { d.advance(20ms); },    [](auto& d) { d.step(); },        [](auto& d) { d.step(); },
    [](auto& d) { d.add("c"); },         [](auto& d) { d.advance(20ms); }, [](auto& d) { d.step(); },
    [](auto& d) { d.notice("a", 30s); }, [](auto& d) { d.advance(20ms); }, [](auto& d) { d.step(); },
};

const script loss = {
    [](auto& d) { d.add("k", true); }, [](auto& d) { d.add("a"); },      [](auto& d) { d.add("b"); },
    [](auto& d) { d.add("c"); },       [](auto& d) { d.advance(20ms); }, [](auto& d) { d.step(); },
    [](auto& d) { d.step(); },         [](auto& d) { d.lose("b"); },     [](auto& d) { d.advance(20ms); },
    [](auto& d) { d.step(); },
};

/// The same within a step, which one of the ranks has applied, or none.
script loss_in_a_step(int applied) {
  auto result = loss;
  result[6] = [=](auto& d) { d.half_step(applied); };
  return result;
}

/// Plays it with a manager that dies after each number of effects in turn, and is started again `later` steps of the
/// script later. `check` is told of the cluster when it has been left in peace.
void with_a_death_anywhere(const script& play, std::size_t later, bool lost,
                           const std::function<void(dummy_cluster&, std::uint64_t reached)>& check) {
  for (std::uint64_t at = 0;; ++at) {
    SCOPED_TRACE("after " + std::to_string(at) + " effects");
    std::mt19937_64 random(at + 1);
    dummy_cluster d(4);
    d.kill_manager(at + 1);
    std::optional<std::size_t> died;
    std::uint64_t reached = 0;
    for (std::size_t i = 0; i < play.size(); ++i) {
      play[i](d);
      reached = std::max(reached, d.reached());
      if (d.is_dead() && !died)
        died = i;
      if (d.is_dead() && i >= *died + later)
        d.restart_manager(random, lost);
    }
    if (!died)
      return;
    if (d.is_dead())
      d.restart_manager(random, lost);
    d.advance_and_step(20, 1s);
    EXPECT_EQ(d.view().now, phase::running) << d.view().problem;
    EXPECT_GT(d.view().steps_done, reached);
    EXPECT_THAT(d.errors(), ::testing::IsEmpty());
    check(d, reached);
    ASSERT_LT(at, 1000u);
  }
}

void no_step_is_lost(dummy_cluster& d, std::uint64_t) {
  EXPECT_THAT(d.log(), ::testing::Not(::testing::Contains(::testing::HasSubstr("lost"))));
}

TEST_F(conductor_test, a_manager_may_die_anywhere_in_a_planned_change) {
  // given: joins, a change beside a healthy generation, a notice; the manager dies after each effect, and what was
  // written without waiting for it may be gone. expected: trains on, no step is lost.
  for (const bool lost : {false, true})
    for (const std::size_t later : {0, 1, 3})
      with_a_death_anywhere(planned_change, later, lost, no_step_is_lost);
}

TEST_F(conductor_test, a_manager_may_die_anywhere_in_a_change_after_a_loss) {
  // given: a rank of three is lost, with replicas of its stage left, between two steps or within one; the manager dies
  // after each effect, perhaps before the loss, and the end of the generation may not be in the journal. expected:
  // trains on, no committed step is lost.
  for (const auto& play : {loss, loss_in_a_step(0), loss_in_a_step(1)})
    for (const bool lost : {false, true})
      for (const std::size_t later : {0, 1, 3})
        with_a_death_anywhere(play, later, lost, no_step_is_lost);
}

TEST_F(conductor_test, a_generation_trains_on_without_a_change) {
  // given: two ranks train on while the manager is dead. expected: the new one finds them, asks for nothing and
  // changes nothing, also not their generation.
  run_two();
  const auto before = c.view().current;
  c.kill_manager();
  c.step(2);
  c.restart_manager();
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().current, before);
  c.step();
  EXPECT_EQ(c.view().steps_done, 4u);
  c.advance(10s);
  EXPECT_EQ(c.view().current, before);
  EXPECT_TRUE(c.view().changes.empty());
}

TEST_F(conductor_test, all_had_stopped_before_the_change_is_prepared_and_somebody_leaves) {
  // given: the manager dies before it hears STOPPED, which the next one hears while it prepares a change because of a
  // notice. expected: nobody is left to be asked to stop; the change goes on.
  run_two();
  c.hold_back = [](const report& x) { return std::holds_alternative<stopped>(x); };
  c.join({"d"});
  c.step();
  ASSERT_EQ(c.view().now, phase::stopping);
  c.kill_manager();
  c.lose("d");
  c.restart_manager();
  c.hold_back = [](const report& x) { return std::holds_alternative<prepared>(x); };
  ASSERT_EQ(c.view().now, phase::running);
  const auto g = c.view().current;
  c.notice("b", 1h);
  c.advance(20ms);
  ASSERT_EQ(c.view().now, phase::readying);
  const version at{c.reached(), g};
  for (const auto* name : {"a", "b"}) {
    stopped x{g, at, {}, false};
    for (std::uint32_t layer = 0; layer < c.view().layers; ++layer)
      x.held.push_back({layer, at});
    c.say(name, x);
  }
  ASSERT_EQ(c.view().now, phase::readying);
  c.hold_back = {};
  for (const auto* name : {"a", "b"})
    for (const auto& x : std::vector(c.told(name)))
      if (const auto* p = std::get_if<prepare>(&x); p && p->next > g)
        c.say(name, prepared{p->next, checksum_of(*p)});
  EXPECT_NE(c.view().current, g);
}

TEST_F(conductor_test, a_loss_without_a_manager_is_handled_when_it_is_back) {
  // given: one of two replicas dies while there is no manager. expected: the other is asked at once, without waiting
  // for the dead one.
  run_two();
  c.kill_manager();
  c.step();
  c.lose("b");
  c.restart_manager();
  c.advance(1s);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().steps_done, 2u);
  c.step();
  EXPECT_EQ(c.view().steps_done, 3u);
}

// given: ranks that wait for state when the manager dies; it comes back, and one says, before or after the others had
// their time to return, that nobody sends it any more / expected: they begin anew within 2 s, not when all could have
// been moved
TEST_F(conductor_test, state_that_will_not_come_is_not_waited_for) {
  for (const auto before : {1s, 6s}) {
    SCOPED_TRACE(before.count());
    dummy_cluster d(4);
    d.keep_back<active>();
    d.join({"a", "b"});
    ASSERT_EQ(d.view().now, phase::activating);
    d.kill_manager();
    d.restart_manager();
    d.advance(before);
    ASSERT_EQ(d.view().now, phase::recovering);
    d.hold_back = nullptr;
    d.say("b", failed{d.view().current, failure::communication, 0, "closed", {}});
    d.advance(2s);
    EXPECT_EQ(d.view().now, phase::running);
    EXPECT_THAT(d.errors(), ::testing::IsEmpty());
  }
}

TEST_F(conductor_test, a_loss_before_the_manager_died_is_not_waited_for) {
  // given: one of two replicas is lost, the other is told ABORT, and the manager dies before or after it has put down
  // what becomes of the open step, which the lost one had applied. expected: the new one goes on with the other within
  // 2 s of its return.
  for (const bool decided_before : {false, true}) {
    SCOPED_TRACE(decided_before);
    dummy_cluster d(4);
    d.join({"a", "b"});
    ASSERT_EQ(d.view().now, phase::running);
    d.step();
    d.hold_back = [&](const report& x) {
      return decided_before ? std::holds_alternative<decided>(x) : std::holds_alternative<aborted>(x);
    };
    if (decided_before)
      d.half_step(1);
    d.lose("a");
    EXPECT_EQ(d.view().now, decided_before ? phase::deciding : phase::aborting);
    d.kill_manager();
    d.hold_back = nullptr;
    d.restart_manager();
    d.advance(2s);
    EXPECT_EQ(d.view().now, phase::running);
    EXPECT_EQ(d.view().chain.back().base, decided_before ? 2u : 1u);
  }
}

TEST_F(conductor_test, a_loss_of_one_that_had_stopped_is_not_waited_for) {
  // given: two replicas stop for a change, the manager dies before it knows of both, and one of them dies, too.
  // expected: the new one goes on with the other within 2 s of its return.
  run_two();
  c.keep_back<stopped>();
  c.join({"d"});
  c.step();
  ASSERT_EQ(c.view().now, phase::stopping);
  const auto reached = c.reached();
  c.kill_manager();
  c.hold_back = nullptr;
  c.lose("b");
  c.restart_manager();
  c.advance(2s);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().chain.back().base, reached);
}

TEST_F(conductor_test, ranks_learn_of_keepers_that_came_before_them) {
  // given: two ranks train while there is no manager, and the keeper is replaced; the new one joins before or after
  // them. expected: their snapshots go to it.
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    dummy_cluster d(4);
    std::mt19937_64 random(seed);
    d.add("k", true);
    d.join({"a", "b"});
    d.step();
    d.kill_manager();
    d.lose("k");
    const auto keeper = d.add("k", true);
    d.restart_manager(random);
    ASSERT_EQ(d.view().now, phase::running);
    for (const auto* name : {"a", "b"}) {
      const auto told = d.all_told<protect>(name);
      ASSERT_FALSE(told.empty());
      EXPECT_THAT(told.back().keepers, ::testing::ElementsAre(::testing::Field(&keeper_share::keeper, keeper)));
    }
  }
}

TEST_F(conductor_test, who_trained_under_the_manager_before_is_stopped_when_it_returns) {
  // given: a rank goes on after the return of the manager, its connection ends, it is taken for lost and comes back.
  // expected: what it may still compute is ended, as if this manager had begun it.
  c.join({"a"});
  ASSERT_EQ(c.view().now, phase::running);
  c.step();
  const auto g = c.view().current;
  c.kill_manager();
  c.restart_manager();
  ASSERT_EQ(c.view().now, phase::running);
  c.lose("a");
  c.come_back("a");
  EXPECT_THAT(c.all_told<abort_generation>("a"), ::testing::Contains(::testing::Field(&abort_generation::current, g)));
}

TEST_F(conductor_test, no_step_is_given_up_before_all_had_time_to_return) {
  // given: the keeper has version 4, the generation ended there; of a new manager's cluster the rank is back first,
  // with what it trained alone, which is void; then the keeper. expected: version 4 is waited for, and nothing is lost.
  c.add_keeper_and_worker();
  c.train(4);
  c.lose("a");
  c.kill_manager();
  c.lose("k");
  c.restart_manager();
  c.mend = [](const std::string&, report x) {
    for (auto* held : {std::holds_alternative<aborted>(x) ? &std::get<aborted>(x).held : nullptr,
                       std::holds_alternative<decided>(x) ? &std::get<decided>(x).held : nullptr})
      for (std::size_t i = 0; held && i < held->size(); ++i)
        (*held)[i].at = {6, {1}};
    return x;
  };
  c.come_back("a");
  c.add("b");
  c.advance(3s);
  EXPECT_EQ(c.view().now, phase::waiting);
  c.come_back("k");
  c.advance(3s);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().chain.front().last, 4u);
}

/// What this worker held is void.
void empty(dummy_cluster& d, const std::string& of) {
  d.mend = [of](const std::string& name, report x) {
    if (auto* a = std::get_if<aborted>(&x); a && name == of) {
      a->at = {};
      a->held.clear();
    }
    return x;
  };
}

TEST_F(conductor_test, a_decision_waits_for_what_keepers_hold) {
  // given: the keeper has version 4; the only rank trains on under a new manager, and its computation throws, before
  // the keeper has said what it holds, or while it is still dialling. expected: no step is given up.
  for (const bool is_dialling : {false, true}) {
    SCOPED_TRACE(is_dialling);
    dummy_cluster d(4);
    d.add_keeper_and_worker();
    d.train(4);
    const auto g = d.view().current;
    d.kill_manager();
    if (is_dialling)
      d.lose("k");
    d.keep_back<kept>();
    d.restart_manager();
    ASSERT_EQ(d.view().now, phase::running);
    empty(d, "a");
    d.say("a", failed{g, failure::computation, 0, "test", {}});
    d.advance(3s);
    EXPECT_EQ(d.view().now, phase::aborting) << "somebody who has more may be dialling";
    if (is_dialling)
      d.come_back("k");
    d.advance(2s);
    EXPECT_EQ(d.view().chain.front().last, 4u);
  }
}

TEST_F(conductor_test, a_decision_waits_for_ranks_that_are_dialling) {
  // given: of two replicas one is back after the manager, and has lost what it held; then the other is. expected: what
  // that one holds counts, at once. given: it does not return. expected: the step is given up when its time is over.
  for (const bool returns : {false, true}) {
    SCOPED_TRACE(returns);
    dummy_cluster d(4);
    d.join({"a", "b"});
    d.step(2);
    d.kill_manager();
    d.lose("b");
    empty(d, "a");
    d.restart_manager();
    d.advance(4s);
    ASSERT_EQ(d.view().now, phase::aborting);
    if (returns)
      d.come_back("b");
    else
      d.advance(1s);
    EXPECT_NE(d.view().now, phase::aborting);
    EXPECT_EQ(d.view().chain.front().last, returns ? 2u : 0u);
  }
}

TEST_F(conductor_test, a_rank_that_failed_before_the_others_returned_does_not_count) {
  // given: two stages; the first is back after the manager, and says that its computation failed; then the second is.
  // expected: the generation is ended, not planned with as if it trained.
  c.depth = 2;
  c.join({"a", "b"});
  ASSERT_EQ(c.view().now, phase::running);
  c.step();
  const auto g = c.view().current;
  c.kill_manager();
  c.lose("b");
  c.restart_manager();
  c.say("a", failed{g, failure::computation, 0, "test", {}});
  c.come_back("b");
  c.advance(10s);
  EXPECT_EQ(c.view().now, phase::running) << c.view().problem;
  EXPECT_GT(c.view().current, g);
}

TEST_F(conductor_test, a_decision_goes_with_the_steps_it_was_made_for) {
  // given: a rank applied a step by the decision on its generation; then all ranks are lost, and the job goes back to
  // what the keeper has; the manager dies before another generation begins, and they are back after it. expected: that
  // rank is not told to apply anything: what it holds may be needed as it is.
  c.add("k", true);
  c.join({"a", "z"});
  c.train(4);
  c.step();
  c.slow_planner = true;
  c.half_step(1);
  ASSERT_EQ(c.view().now, phase::planning);
  ASSERT_NE(c.durable().result.step, no_step);
  c.lose("a");
  c.lose("z");
  c.silent = {"b"};
  c.add("b");
  for (int i = 0; i < 3; ++i) // for two slots, and before the keeper was asked whether it has more
    c.answer_plans();
  ASSERT_EQ(c.view().now, phase::preparing);
  ASSERT_EQ(c.view().chain.back().last, 4u);
  c.kill_manager();
  c.silent.clear();
  c.restart_manager();
  c.come_back("a");
  c.come_back("z");
  c.advance(10s);
  const auto decisions = c.all_told<decide>("z");
  ASSERT_GE(decisions.size(), 2u) << "by the first manager, and by the second";
  EXPECT_EQ(decisions.back().result.step, no_step);
}

TEST_F(conductor_test, who_returns_when_its_generation_was_given_up_is_told_so) {
  // given: a rank comes back when the next manager has given up waiting for it, and goes on without. expected: what it
  // may still compute, waiting for a peer that is gone, is ended.
  run_two();
  const auto g = c.view().current;
  c.kill_manager();
  c.step();
  c.lose("b");
  c.restart_manager();
  c.advance(10s);
  ASSERT_EQ(c.view().now, phase::running);
  ASSERT_NE(c.view().current, g);
  c.come_back("b");
  EXPECT_THAT(c.all_told<abort_generation>("b"), ::testing::Contains(::testing::Field(&abort_generation::current, g)));
}

TEST_F(conductor_test, no_number_of_a_generation_is_used_twice) {
  // given: generation 2 was prepared, and the manager died. expected: the next one prepares another number.
  run_two();
  c.keep_back<prepared>();
  c.join({"c"});
  ASSERT_EQ(c.view().now, phase::readying);
  c.kill_manager();
  c.hold_back = nullptr;
  c.restart_manager();
  c.advance(1s);
  c.step();
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_GT(c.view().current.value, 2u);
}

TEST_F(conductor_test, a_job_that_was_done_stays_so) {
  // given: the manager dies right after the job's end was put into the journal. expected: it is over.
  c.add("k", true);
  run_two();
  c.event(cancel_requested{});
  ASSERT_TRUE(c.ended());
  c.kill_manager();
  c.restart_manager();
  EXPECT_TRUE(c.ended());
}

TEST(conductor_recovery, what_was_trained_is_known_once_the_job_is_over) {
  // given: a job that reaches its end. expected: what says in the journal that it did has the digests of all layers.
  dummy_cluster d(4, 1);
  d.add_keeper_and_worker();
  d.step();
  d.snapshot("k");
  ASSERT_TRUE(d.ended());
  EXPECT_TRUE(d.durable().over);
  EXPECT_EQ(d.durable().layer_digests.size(), 4u);
  EXPECT_EQ(d.durable().layer_digests, d.view().layer_digests);
}

// given: a checkpoint of step 4, a change, 9 steps reported; then everything dies, the manager too. expected: the next
// one knows what was, and says that all since the checkpoint is computed again; what comes then is counted on
TEST_F(conductor_test, how_it_went_outlives_the_death_of_everything) {
  dummy_cluster d(4, 1000, 4);
  d.add_keeper_and_worker();
  d.train(4);
  ASSERT_EQ(d.view().checkpoint.steps, 4u);
  d.join({"b"});
  d.step(5);
  ASSERT_EQ(d.view().steps_done, 9u);
  const auto before = d.view();
  ASSERT_EQ(before.changes.size(), 2u);
  d.past = {before, before, {9, before.current}};
  d.kill_manager();
  for (const auto* name : {"k", "a", "b"})
    d.lose(name);
  d.restart_manager();
  EXPECT_EQ(d.view().changes.size(), 2u);
  EXPECT_EQ(d.view().decision_count, before.decision_count);
  d.add("k", true);
  d.add("c");
  d.advance(10s);
  ASSERT_EQ(d.view().now, phase::running);
  EXPECT_EQ(d.view().chain.back().base, 4u);
  EXPECT_EQ(d.view().replayed_steps, 6u) << "five, and the one in progress";
  d.step();
  EXPECT_EQ(d.view().changes.size(), 3u);
  EXPECT_EQ(d.view().changes.back().replayed_steps, 6u);
  EXPECT_EQ(d.view().changes.back().number, 2u);
  EXPECT_EQ(d.view().change_count, 3u);
  EXPECT_GT(d.view().decision_count, before.decision_count);
  EXPECT_EQ(d.view().losses.back().steps, 5u);
  EXPECT_EQ(d.view().losses.front().steps, 1u);
  d.past = {};
  d.kill_manager();
  d.restart_manager();
  EXPECT_EQ(d.view().replayed_steps, 6u) << "also if only the memory was kept";
}

} // namespace
} // namespace parcae
