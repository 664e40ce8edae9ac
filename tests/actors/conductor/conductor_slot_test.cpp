// Slots that have no data, no room, or hiccups: whom the conductor waits for, leaves alone, and takes back.

#include "tests/actors/conductor/conductor_fixture.hpp"

namespace parcae {
namespace {

// --- data
// -------------------------------------------------------------------------------------------------------------

report without_data(const std::string&, const report& x) {
  if (std::holds_alternative<loaded>(x))
    return failed{{}, failure::data, 0, "/nowhere: no such file", {}};
  return x;
}

TEST_F(conductor_test, loading_may_take_longer_than_any_request) {
  // given: the only worker needs two hours for the data. expected: the job waits, says for what, and starts then
  c.keep_back<loaded>();
  c.add("a");
  c.advance(2h);
  EXPECT_EQ(c.view().now, phase::waiting);
  EXPECT_THAT(c.view().problem, HasSubstr("load the data"));
  c.hold_back = {};
  c.say("a", loaded{job_id{1}, "digest"});
  c.advance(20ms);
  EXPECT_EQ(c.view().now, phase::running);
}

TEST_F(conductor_test, joiner_that_loads_is_no_part_of_a_loss) {
  // given: two train, a third loads the data for long, one of the two is lost. expected: the other goes on at once; the
  // joiner takes part when it has loaded
  run_two();
  c.keep_back<loaded>();
  c.add("d");
  c.advance(1h);
  EXPECT_EQ(c.view().now, phase::running);
  c.step();
  c.lose("b");
  EXPECT_EQ(c.running(), 1u);
  c.hold_back = {};
  c.say("d", loaded{job_id{1}, "digest"});
  c.advance(20ms);
  EXPECT_EQ(c.view().grid->width, 2u);
}

TEST_F(conductor_test, data_is_loaded_again_by_a_slot_that_failed) {
  // given: b's executor died and was replaced. expected: LOAD before it gets a place
  run_two();
  c.say("b", failed{c.view().current, failure::computation, 0, "died", {}});
  const auto before = c.told("b").size();
  c.advance(2s);
  ASSERT_EQ(c.view().grid->width, 2u);
  EXPECT_TRUE(c.is_told_before_prepare<load>("b", before));
}

TEST_F(conductor_test, data_that_is_mounted_a_moment_late_is_found) {
  // given: the first attempt of the only node fails. expected: the job starts with the second
  bool mounted = false;
  c.mend = [&](const std::string& name, const report& x) {
    return std::holds_alternative<loaded>(x) && !std::exchange(mounted, true) ? without_data(name, x) : x;
  };
  c.add("a");
  c.advance(2s);
  EXPECT_FALSE(c.ended());
  EXPECT_EQ(c.view().now, phase::running);
}

TEST_F(conductor_test, node_that_ran_out_of_memory_while_loading_is_asked_again) {
  bool failed_once = false;
  c.mend = [&](const std::string&, const report& x) -> report {
    if (std::holds_alternative<loaded>(x) && !std::exchange(failed_once, true))
      return failed{{}, failure::computation, 0, "cannot load the data: std::bad_alloc", {}};
    return x;
  };
  c.add("a");
  c.advance(2s);
  EXPECT_EQ(c.view().now, phase::running);
}

TEST_F(conductor_test, data_that_no_node_has_fails_the_job) {
  c.mend = without_data;
  c.add("a");
  c.add("b");
  c.advance(5s);
  EXPECT_TRUE(c.ended());
  EXPECT_EQ(c.view().problem, "/nowhere: no such file") << "it is the data's fault, no node's";
}

TEST_F(conductor_test, data_that_was_there_under_the_manager_before_is_waited_for) {
  // given: a job has trained; its manager dies, and all who are left can read the data no more, for a while. expected:
  // it waits, as it would have done under the one before, and goes on
  c.add("k", true);
  run_two();
  c.kill_manager();
  c.lose("b");
  c.mend = without_data;
  c.restart_manager();
  c.advance(30s);
  ASSERT_FALSE(c.ended()) << c.view().problem;
  c.mend = {};
  c.advance(30s);
  EXPECT_EQ(c.view().now, phase::running);
}

TEST_F(conductor_test, node_with_other_data_is_refused_by_name) {
  run_two();
  c.mend = [](const std::string& name, const report& x) {
    return name == "d" && std::holds_alternative<loaded>(x) ? report(loaded{job_id{1}, "other"}) : x;
  };
  c.add("d");
  c.advance(1min);
  EXPECT_EQ(c.view().grid->width, 2u);
  EXPECT_THAT(c.log(), Contains(HasSubstr("d/0 is not used for now: the data at")).Times(1)) << "it tries more often";
  EXPECT_LE(c.all_told<load>("d").size(), 8u) << "but ever less so";
  ASSERT_EQ(c.view().unused.size(), 1u);
  EXPECT_EQ(to_string(c.view().unused[0].where), "d/0");
  EXPECT_THAT(c.view().unused[0].why, HasSubstr("differs from that of the others"));
  c.mend = {};
  c.advance(1min);
  EXPECT_EQ(c.view().grid->width, 3u) << "its data was made the same";
  EXPECT_THAT(c.view().unused, ::testing::IsEmpty());
}

TEST_F(conductor_test, joiner_without_the_data_waits_while_no_other_node_is_left) {
  run_two();
  c.mend = [](const std::string& name, const report& x) { return name == "d" ? without_data(name, x) : x; };
  c.lose("a");
  c.lose("b");
  c.add("d");
  c.advance(1min);
  EXPECT_FALSE(c.ended());
  EXPECT_EQ(c.view().now, phase::waiting);
  c.add("e");
  c.advance(1s);
  EXPECT_EQ(c.view().now, phase::running);
}

// given: the digests of all bytes come while it trains / expected: nothing happens while they agree; the job ends when
// they do not, and both slots are named
TEST_F(conductor_test, data_that_differs_where_it_was_not_sampled_ends_the_job) {
  run_two();
  c.say("a", loaded{job_id{1}, "digest", "whole"});
  c.say("b", loaded{job_id{1}, "digest", "whole"});
  c.advance(20ms);
  c.step();
  EXPECT_FALSE(c.ended());
  c.join({"d"});
  c.say("d", loaded{job_id{1}, "digest", "another"});
  EXPECT_TRUE(c.ended());
  EXPECT_THAT(c.view().problem, HasSubstr("differs between a/0 and d/0"));
}

TEST_F(conductor_test, sample_that_nobody_can_train_on_ends_the_job) {
  run_two();
  c.say("b", failed{c.view().current, failure::sample, 0, "data /x: token 7 is 300", {}});
  EXPECT_TRUE(c.ended());
  EXPECT_EQ(c.view().problem, "b/0: data /x: token 7 is 300");
}

// given: the data of one of two goes while it trains / expected: the other goes on; the first loads it anew
TEST_F(conductor_test, node_that_cannot_read_its_data_any_more_loses_its_place) {
  run_two();
  c.say("b", failed{c.view().current, failure::data, 0, "data /x: ends at byte 7", {}});
  c.advance(50ms);
  c.step();
  EXPECT_EQ(c.running(), 1u);
  c.advance(10s);
  EXPECT_EQ(c.view().grid->width, 2u);
}

// --- no room beside a healthy generation
// ------------------------------------------------------------------------------

TEST_F(conductor_test, rank_that_fails_to_prepare_beside_its_generation_trains_on_there) {
  // given: 1×2 trains; two more come, and a, the only holder of its stage, has no memory for what 1×4 needs beside it.
  // expected: that change is given up, a is neither aborted nor excluded, no step is lost, and it is not tried at once
  // again and again
  c.depth = 2;
  c.width = 1;
  run_two();
  c.step();
  const auto g = c.view().current;
  int tried = 0;
  c.mend = [&](const std::string& name, const report& x) -> report {
    const auto* p = std::get_if<prepared>(&x);
    if (!p || name != "a")
      return x;
    ++tried;
    return failed{p->next, failure::computation, 0, "DefaultCPUAllocator: not enough memory", {}};
  };
  c.depth = 4;
  c.add("d");
  c.add("e");
  c.advance(500ms);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().current, g);
  EXPECT_EQ(tried, 1);
  c.advance_and_step(20, 29s);
  EXPECT_EQ(c.view().current, g);
  EXPECT_EQ(c.view().replayed_steps, 0u);
  EXPECT_LT(tried, 30);
  EXPECT_THAT(c.log(), Contains(HasSubstr("a/0 gets no new place for now")));
  EXPECT_THAT(c.log(), Not(Contains(HasSubstr("a/0 is not used"))));
}

TEST_F(conductor_test, rank_that_is_late_to_prepare_beside_its_generation_trains_on_there) {
  // given: the joiner and a rank do not answer PREPARE. expected: g trains on, with both
  run_two();
  const auto g = c.view().current;
  c.silent = {"d", "b"};
  c.join({"d"});
  ASSERT_EQ(c.view().now, phase::readying);
  c.advance_and_step(4, 20s);
  EXPECT_EQ(c.view().current, g);
  EXPECT_THAT(c.view().now, AnyOf(phase::running, phase::readying));
  EXPECT_THAT(c.log(), Not(Contains(HasSubstr("abort of generation"))));
}

TEST_F(conductor_test, slot_without_room_is_planned_with_once_nothing_runs) {
  run_two();
  c.mend = [](const std::string& name, const report& x) -> report {
    const auto* p = std::get_if<prepared>(&x);
    return p && name == "b" && p->next.value == 2 ? failed{p->next, failure::computation, 0, "no memory", {}} : x;
  };
  c.join({"d"});
  ASSERT_THAT(c.log(), Contains(HasSubstr("b/0 gets no new place for now")));
  c.lose("a");
  EXPECT_EQ(c.running(), 2u) << "b and d";
}

// --- notices
// ----------------------------------------------------------------------------------------------------------

TEST_F(conductor_test, notice_does_not_wait_for_a_slow_joiner) {
  // given: a trains, d does not answer PREPARE, e is idle; then notice of 30 s to a. expected: the change that waits
  // for d is given up, and e takes over long before a is gone: no step is lost
  c.width = 1;
  c.depth = 2;
  c.join({"a", "b"});
  c.step();
  const auto steps = c.view().steps_done;
  c.depth = 4;
  const auto slow = [&](const std::string& name, const report& x) -> report {
    return name == "d" && std::holds_alternative<prepared>(x) ? report(recalled{}) : x;
  };
  c.mend = slow;
  c.join({"d", "e"});
  ASSERT_EQ(c.view().now, phase::readying);
  c.advance(10s);
  c.depth = 2;
  c.notice("a", 30s);
  c.advance(1s);
  EXPECT_EQ(c.view().now, phase::running);
  for (std::uint32_t r = 0; r < 2; ++r)
    EXPECT_THAT(c.view().grid->participants[r].slot.instance, AnyOf("b", "e"));
  c.lose("a");
  EXPECT_EQ(c.view().steps_done, steps);
  EXPECT_EQ(c.view().replayed_steps, 0u);
}

// --- back-off
// ---------------------------------------------------------------------------------------------------------

TEST_F(conductor_test, keeper_that_hiccups_now_and_then_is_waited_for_each_time) {
  // given: five times, an hour apart, all workers are lost and the only keeper fails at first. expected: its state is
  // used each time
  c.add("k", true);
  for (int i = 0; i < 5; ++i) {
    const auto name = "w" + std::to_string(i);
    bool failed_once = false;
    c.mend = [&](const std::string& who, const report& x) -> report {
      const auto* p = std::get_if<prepared>(&x);
      if (who == "k" && p && !std::exchange(failed_once, true))
        return failed{p->next, failure::computation, 0, "hiccup", {}};
      return x;
    };
    c.add(name);
    c.advance(2s);
    ASSERT_EQ(c.view().now, phase::running) << i;
    EXPECT_EQ(failed_once, i > 0) << "there was state to fetch";
    c.advance_and_step(120, 29s);
    c.snapshot("k");
    c.lose(name);
  }
  EXPECT_EQ(c.view().steps_done, 600u);
}

TEST_F(conductor_test, rank_that_comes_back_before_the_decision_counts_in_it) {
  // given: two stages; the second one's rank trains and does not say so in time, and answers again while a keeper that
  // does not is waited for. expected: the step that both have done is committed.
  c.depth = 2;
  c.keep_back<active>();
  c.add("k", true);
  c.join({"a", "b"});
  ASSERT_EQ(c.view().now, phase::activating);
  c.hold_back = {};
  c.silent = {"b", "k"};
  c.say("a", active{{1}});
  ASSERT_EQ(c.view().now, phase::activating);
  c.step();
  c.advance(60s);
  ASSERT_EQ(c.view().now, phase::aborting);
  c.silent = {"k"};
  c.advance(10s);
  EXPECT_EQ(c.view().chain.front().last, 1u);
}

TEST_F(conductor_test, what_was_said_before_release_is_not_held) {
  // given: a worker under notice is no rank any more; what it says that it holds is from before RELEASE; then the only
  // rank is lost. expected: nobody is to send what was released
  c.width = 1;
  run_two();
  c.step();
  const auto before = c.view().grid->participants[0].slot.instance;
  inventory held;
  for (std::uint32_t layer = 0; layer < 4; ++layer)
    held.push_back({layer, {c.view().steps_done, c.view().current}});
  c.notice(before, 30s);
  c.advance(20ms);
  c.step();
  const auto now = c.view().grid->participants[0].slot.instance;
  ASSERT_NE(now, before);
  c.say(before, aborted{{0}, {}, no_step, {}, held});
  c.lose(now);
  c.add("e");
  c.advance(1s);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_THAT(c.errors(), ::testing::IsEmpty());
}

TEST_F(conductor_test, what_a_rank_said_before_release_is_not_held) {
  // given: a worker had all layers, and is a rank of two; the last step is the first of that generation, so STOPPED is
  // said before RELEASE comes; then the other rank is lost. expected: the state comes from the keeper, and nobody is to
  // have what was released
  dummy_cluster d(4, 3);
  d.add_keeper_and_worker();
  d.train(2);
  d.depth = 2;
  d.join({"b"});
  ASSERT_EQ(d.view().grid->depth, 2u);
  d.step();
  ASSERT_EQ(d.view().now, phase::finishing);
  d.lose("b");
  d.join({"c"});
  EXPECT_EQ(d.view().now, phase::running);
  EXPECT_EQ(d.view().chain.back().base, 2u);
  EXPECT_THAT(d.errors(), ::testing::IsEmpty());
}

TEST_F(conductor_test, what_one_that_is_back_held_before_release_is_not_held) {
  // given: a rank was lost, and comes back to a newer generation with its stage at a version that the keeper has; it is
  // told RELEASE when it has the data; then the ranks are lost. expected: it gets its stage from the keeper
  c.depth = 2;
  c.add("k", true);
  c.join({"a", "b"});
  c.train(2);
  c.lose("b");
  c.join({"d"});
  c.step();
  ASSERT_EQ(c.view().steps_done, 3u);
  c.come_back("b");
  ASSERT_THAT(c.held("b"), IsEmpty());
  c.lose("a");
  c.lose("d");
  c.join({"e"});
  c.advance(1s);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().chain.back().base, 2u);
}

TEST_F(conductor_test, back_off_ends_at_half_a_minute) {
  // given: a slot that answers nothing for an hour. expected: asked at least twice a minute at the end too
  run_two();
  c.silent = {"b"};
  c.say("b", failed{c.view().current, failure::computation, 0, "threw", {}});
  const auto times_asked = [&] {
    return std::ranges::count(c.all_told<abort_generation>("b"), generation{}, &abort_generation::current);
  };
  const auto train = [&](int half_minutes) { c.advance_and_step(half_minutes, 29s); };
  train(120);
  const auto before = times_asked();
  train(10);
  EXPECT_GE(times_asked() - before, 7);
}

TEST_F(conductor_test, rank_that_decides_late_and_alone_holds_a_stage_is_waited_for) {
  // given: two replicas, of which one has applied a step and is lost; the other needs 20 s to apply it by DECIDE.
  // expected: it is not excluded after 5 s
  run_two();
  c.step();
  c.keep_back<decided>();
  c.half_step(1);
  c.lose("a");
  ASSERT_EQ(c.view().now, phase::deciding);
  c.advance(20s);
  ASSERT_EQ(c.view().now, phase::deciding);
  c.hold_back = {};
  c.say("b", c.held_back.back());
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().steps_done, 3u);
  EXPECT_THAT(c.log(), Not(Contains(HasSubstr("is not used"))));
}

TEST_F(conductor_test, who_has_no_place_is_told_what_to_have_room_for) {
  // given: 1×2 of a model whose layers are alike, so its second stage is as large as the first, and a spare that is
  // there at the first commit; another that comes later. expected: both are told to have room for a stage; ranks, and
  // who leaves, are not.
  c.depth = 2;
  c.width = 1;
  c.join({"a", "b", "spare", "leaving"});
  c.notice("leaving", 1h);
  c.step();
  c.join({"late"});
  const auto room = [&](const std::string& name) {
    const auto told = c.all_told<release>(name);
    return told.empty() ? std::vector<std::uint32_t>() : told.back().room;
  };
  EXPECT_THAT(room("spare"), ElementsAre(0u, 1u));
  EXPECT_THAT(room("late"), ElementsAre(0u, 1u));
  for (const auto* name : {"a", "b", "leaving"})
    EXPECT_THAT(room(name), IsEmpty()) << name;
}

// given: a worker that is lost 3 s after it came, each time, and comes at once by another process / expected: the
// others are disturbed less and less often; once they are gone it trains alone, whatever is left of its wait
TEST_F(conductor_test, who_is_lost_again_and_again_disturbs_the_others_less_and_less) {
  run_two();
  const auto changes_in_a_minute = [&] {
    const auto before = c.view().change_count;
    for (int i = 0; i < 20; ++i) {
      c.join({"d"});
      c.advance_and_step(3, 1s);
      c.lose("d");
    }
    return c.view().change_count - before;
  };
  EXPECT_LE(changes_in_a_minute(), 14u);
  EXPECT_LE(changes_in_a_minute(), 6u);
  c.join({"d"});
  c.advance_and_step(1, 1s);
  ASSERT_EQ(c.running(), 2u);
  EXPECT_THAT(c.log(), Contains(HasSubstr("d/0 gets no new place for now: lost")));
  c.lose("a");
  c.advance_and_step(1, 1s);
  EXPECT_EQ(c.running(), 2u);
}

} // namespace
} // namespace parcae
