// Keepers, and the final version.

#include "tests/actors/conductor/conductor_fixture.hpp"

namespace parcae {
namespace {

TEST_F(conductor_test, keeper_lost_before_its_digests_is_replaced_by_another) {
  // given: all hold the final version; the keeper is asked for digests and dies. expected: the next one is asked too.
  dummy_cluster d(4, 1);
  d.add_keeper_and_worker();
  d.step();
  ASSERT_EQ(d.view().now, phase::finishing);
  d.kept_silent = true;
  d.snapshot("k");
  EXPECT_FALSE(d.ended());
  d.lose("k");
  d.kept_silent = false;
  d.add("k2", true);
  d.snapshot("k2");
  EXPECT_TRUE(d.ended());
  EXPECT_THAT(d.errors(), ::testing::IsEmpty());
}

TEST_F(conductor_test, keeper_that_held_the_final_version_alone_is_lost) {
  // given: the worker is gone, the keeper has the final version and dies before its digests. expected: computed again.
  dummy_cluster d(4, 1);
  d.add_keeper_and_worker();
  d.step();
  d.kept_silent = true;
  d.snapshot("k");
  ASSERT_EQ(d.view().now, phase::finishing);
  d.lose("a");
  ASSERT_EQ(d.view().now, phase::finishing);
  d.lose("k");
  EXPECT_EQ(d.view().now, phase::waiting);
  d.join({"b"});
  EXPECT_EQ(d.view().now, phase::running);
  EXPECT_EQ(d.view().steps_done, 0u);
  EXPECT_THAT(d.errors(), ::testing::IsEmpty());
}

TEST_F(conductor_test, keepers_are_asked_before_steps_are_given_up) {
  // given: the generation has stopped at version 5, which the keeper has got, and its word of that is on its way; the
  // only rank is lost before anything trains. expected: no step is lost; at version 4, if the keeper does not answer
  // within its limit.
  for (const bool answers : {true, false}) {
    SCOPED_TRACE(answers);
    dummy_cluster d(4);
    d.add_keeper_and_worker();
    d.train(4);
    d.step();
    inventory newest;
    for (std::uint32_t layer = 0; layer < 4; ++layer)
      newest.push_back({layer, {5, d.view().current}});
    d.drop = [](const std::string&, const command& x) { return std::holds_alternative<activate>(x); };
    d.join({"b"});
    ASSERT_EQ(d.view().now, phase::activating);
    d.hold_unsaid("k", newest);
    d.drop = nullptr;
    if (!answers)
      d.silent = {"k"};
    d.lose("a");
    d.advance(40s);
    EXPECT_EQ(d.view().chain.front().last, answers ? 5u : 4u);
    EXPECT_THAT(d.errors(), ::testing::IsEmpty());
  }
}

TEST_F(conductor_test, notice_while_no_keeper_holds_the_final_version_moves_it) {
  dummy_cluster d(4, 1);
  d.width = 1;
  d.join({"a"});
  d.join({"b"});
  d.step();
  ASSERT_EQ(d.view().now, phase::finishing);
  d.notice("a", 30s);
  d.advance(1s);
  ASSERT_EQ(d.view().grid->participants[0].slot.instance, "b");
  EXPECT_EQ(d.view().steps_done, 1u);
}

TEST_F(conductor_test, view_tells_the_course_of_the_training) {
  // given: steps, a snapshot, more steps, the loss of all workers. expected: a loss per step, the pace, what the keeper
  // holds, when changes began; then no grid, and the steps that are lost come again in the curve.
  c.add("k", true);
  run_two();
  const auto begun = c.view().changes.at(0).at_us;
  c.step();
  c.advance(100ms);
  c.step();
  c.snapshot("k");
  c.advance(100ms);
  c.step();
  const auto steps = c.view().steps_done;
  ASSERT_EQ(c.view().losses.size(), steps);
  EXPECT_EQ(c.view().losses.back().steps, steps);
  EXPECT_NEAR(c.view().steps_per_s, 3 / 0.2, 0.01);
  ASSERT_EQ(c.view().keepers.size(), 1u);
  EXPECT_EQ(c.view().keepers[0].keeper, "k");
  EXPECT_EQ(c.view().keepers[0].steps, steps - 1);
  EXPECT_EQ(c.view().keepers[0].layers, c.view().layers);
  EXPECT_GT(begun, 0);
  c.lose("a");
  c.lose("b");
  EXPECT_EQ(c.view().now, phase::waiting);
  EXPECT_FALSE(c.view().grid);
  c.join({"d"});
  c.step();
  EXPECT_EQ(c.view().steps_done, steps);
  EXPECT_EQ(c.view().losses.size(), steps);
  EXPECT_GT(c.view().changes.back().at_us, begun);
  c.lose("k");
  EXPECT_TRUE(c.view().keepers.empty());
}

TEST_F(conductor_test, view_tells_who_waits_for_data) {
  // given: a rank that waited, and later did not. expected: its file and the time while that is so
  run_two();
  const auto g = c.view().current;
  progress said{g, {1, g}, {0}, 100, {}};
  said.data_wait_ms = 7;
  said.data_wait_for = "/data";
  const auto rank = c.view().grid->participants[0].slot.instance == "a" ? 0u : 1u;
  c.say("a", said);
  ASSERT_EQ(c.view().data_waits.size(), 1u);
  EXPECT_EQ(c.view().data_waits.at(rank), (std::pair<double, std::string>(7, "/data")));
  said.data_wait_for.clear();
  c.say("a", said);
  EXPECT_TRUE(c.view().data_waits.empty());
}

TEST_F(conductor_test, loss_that_is_not_finite_any_more_is_said_once) {
  // given: a job that diverges, and is to go on. expected: a line in its log, at the first such step.
  dummy_cluster c(4, [](job_specification& job) { job.on_not_finite = "go_on"; });
  c.join({"a"});
  c.step();
  c.loss = NAN;
  c.step();
  const auto steps = c.view().steps_done;
  c.step();
  const auto said = [&](const std::string& text) {
    return std::ranges::count_if(c.log(), [&](const auto& x) { return x.find(text) != x.npos; });
  };
  EXPECT_EQ(said("not finite"), 1);
  EXPECT_EQ(said("the loss is not finite at step " + std::to_string(steps)), 1);
}

TEST_F(conductor_test, steps_that_are_skipped_are_counted_in_the_log) {
  // given: ranks that tell, each, how many steps of their generation were skipped. expected: told once for both.
  run_two();
  const auto g = c.view().current;
  for (const std::uint64_t steps : {4, 7}) {
    progress said{g, {steps, g}, {steps - 1}, 100, {}};
    said.skipped = steps == 4 ? 1 : 3;
    c.say("a", said);
    c.say("b", said);
  }
  EXPECT_EQ(std::ranges::count(c.log(), "1 step up to step 4 changed nothing: loss or gradients were not finite"), 1);
  EXPECT_EQ(std::ranges::count(c.log(), "2 steps up to step 7 changed nothing: loss or gradients were not finite"), 1);
}

TEST_F(conductor_test, slot_that_returns_is_told_of_the_keepers_again) {
  // given: b's executor is replaced by an empty one that was told nothing. expected: PROTECT before the next PREPARE.
  c.add("k", true);
  run_two();
  c.say("b", failed{c.view().current, failure::computation, 0, "died", {}});
  const auto before = c.told("b").size();
  c.advance(2s);
  ASSERT_EQ(c.view().grid->width, 2u);
  EXPECT_TRUE(c.is_told_before_prepare<protect>("b", before));
}

TEST_F(conductor_test, keepers_are_told_only_the_part_of_the_chain_that_they_need) {
  c.add("k", true);
  run_two();
  for (int i = 0; i < 20; ++i) { // twenty generations of one step
    c.width = 1 + i % 2;
    c.event(plan_wanted{"test"});
    c.advance(20ms);
    c.step();
  }
  c.snapshot("k");
  ASSERT_GT(c.view().chain.size(), 10u);
  const auto& told = c.told("k");
  const auto* last = std::get_if<confirm>(&told.back());
  ASSERT_NE(last, nullptr);
  EXPECT_LE(last->chain.size(), 2u);
}

// given: two workers and a keeper, two generations / expected: each generation has a token of its own, each worker a
// permit of its own, which follows from the key that the keeper was told; the keeper is told of a generation before it
// begins
TEST_F(conductor_test, tokens_are_of_one_generation_or_one_sender) {
  c.add("k", true);
  run_two();
  c.width = 1;
  c.event(plan_wanted{"test"});
  c.advance(20ms);
  std::vector<data_token> tokens;
  std::map<std::string, snapshot_permit> permits;
  for (const auto* name : {"a", "b"}) {
    for (const auto& x : c.all_told<prepare>(name))
      if (std::ranges::find(tokens, x.token) == tokens.end())
        tokens.push_back(x.token);
    for (const auto& x : c.all_told<protect>(name))
      permits[name] = x.permit;
  }
  EXPECT_EQ(tokens.size(), 2u);
  ASSERT_EQ(permits.size(), 2u);
  EXPECT_FALSE(permits["a"].token == permits["b"].token);
  const auto last = c.all_told<guard>("k").back();
  EXPECT_EQ(last.newest, c.view().current);
  EXPECT_EQ(c.view().current, generation{2});
  for (const auto* name : {"a", "b"}) {
    const auto slot = c.slot(name);
    EXPECT_TRUE(permits[name].token == permit_of(last.key, slot).token);
    EXPECT_EQ(permits[name].of.life, slot.life);
    EXPECT_FALSE(std::ranges::find(tokens, permits[name].token) != tokens.end());
  }
}

// given: a worker that says what only a keeper can, and the other way round / expected: it does not count, and is
// logged
TEST(conductor_roles, what_is_of_the_other_role_is_not_heard) {
  dummy_cluster d(4);
  d.add_keeper_and_worker();
  d.step();
  const version at{1, d.view().current};
  d.say("a", kept{job_id{1}, {{0, at}, {1, at}, {2, at}, {3, at}}, {}, {}});
  EXPECT_EQ(d.view().protected_version, version{});
  d.say("k", stopped{d.view().current, at, {}, true});
  EXPECT_EQ(d.view().now, phase::running);
  EXPECT_THAT(d.errors(), ::testing::ElementsAre("a/0 reports what is not its role's to report",
                                                 "k/0 reports what is not its role's to report"));
}

// given: a keeper that says it holds the final version at step 1 / expected: it neither ends the job nor decides a step
TEST_F(conductor_test, what_cannot_have_been_committed_does_not_count) {
  c.add("k", true);
  run_two();
  const auto all_at = [](version at) { return inventory{{0, at}, {1, at}, {2, at}, {3, at}}; };
  c.hold("k", all_at({1000, c.view().current}));
  EXPECT_EQ(c.view().protected_version, version{});
  EXPECT_EQ(c.view().now, phase::running);
  c.lose("a");
  c.advance(20ms);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().steps_done, 1u);
  EXPECT_LE(c.view().replayed_steps, 1u) << "that in progress";
  EXPECT_EQ(c.view().protected_version, version{});
}

// given: a keeper that is ahead of what the ranks have reported so far / expected: it counts as soon as that can be
TEST_F(conductor_test, keepers_may_be_ahead_of_reports) {
  c.add("k", true);
  run_two(); // a step of 100 ms
  const version at{40, c.view().current};
  c.hold("k", {{0, at}, {1, at}, {2, at}, {3, at}});
  EXPECT_EQ(c.view().protected_version, version{});
  c.advance(1s);
  c.event(tick{}); // ten times as fast it would be 100 steps by now
  EXPECT_EQ(c.view().protected_version, at);
}

/// How often this slot was told of keepers, with a snapshot at the next commit.
std::ptrdiff_t snapshots_begun(dummy_cluster& c, const std::string& name) {
  return std::ranges::count(c.all_told<protect>(name), true, &protect::now);
}

// given: what the keepers had complete is lost with them and with who trained, so that the chain is cut / expected: the
// others start their streams anew, without what was on its way
TEST_F(conductor_test, void_snapshots_are_not_sent_again) {
  c.add("k", true);
  c.width = 1;
  c.join({"a", "b"});
  c.step();
  ASSERT_EQ(c.view().now, phase::running);
  const auto trains = c.view().grid->participants.at(0).slot.instance;
  const auto other = trains == "a" ? "b" : "a";
  c.snapshot("k");
  ASSERT_EQ(c.view().protected_version.steps, 1u);
  c.lose("k");
  c.add("l", true);
  const auto before = snapshots_begun(c, other);
  c.lose(trains);
  c.advance(1s);
  ASSERT_EQ(c.view().steps_done, 0u);
  EXPECT_EQ(snapshots_begun(c, other), before + 1);
}

// given: a step that one stage has applied and is dropped, since the other is lost / expected: the same
TEST_F(conductor_test, snapshots_of_a_dropped_step_are_not_sent_again) {
  c.add("k", true);
  c.width = 1;
  c.depth = 2;
  c.join({"a", "b"});
  c.step();
  c.snapshot("k");
  ASSERT_EQ(c.view().protected_version.steps, 1u);
  const auto g = c.view().current;
  const auto ahead = c.view().grid->participants.at(0).slot.instance;
  c.mend = [&](const std::string& name, const report& x) -> report {
    const auto* said = std::get_if<aborted>(&x);
    if (!said || name != ahead)
      return x;
    const version at{2, g};
    return aborted{g, at, no_step, {1}, {{0, at}, {1, at}}};
  };
  const auto before = snapshots_begun(c, ahead);
  c.lose(std::string(c.view().grid->participants.at(1).slot.instance));
  ASSERT_EQ(c.view().steps_done, 1u);
  EXPECT_EQ(snapshots_begun(c, ahead), before + 1);
}

// given: version 9 was confirmed, then all is lost and the job goes back to 0; version 4 of the new generation becomes
// complete in the keeper before all are lost again / expected: the decision knows that it was committed
TEST_F(conductor_test, version_confirmed_after_going_back_counts) {
  c.add("k", true);
  run_two();
  c.train(8);
  ASSERT_EQ(c.view().protected_version.steps, 9u);
  for (const auto* name : {"a", "b", "k"})
    c.lose(name);
  c.add("k", true);
  c.join({"d"});
  ASSERT_EQ(c.view().steps_done, 0u);
  c.train(4);
  ASSERT_EQ(c.view().protected_version.steps, 4u);
  c.lose("k");
  c.lose("d");
  EXPECT_EQ(c.view().chain.back().last, 4u);
}

// --- keepers under notice

/// The keepers named in the last PROTECT to a worker.
std::vector<std::string> protected_by(dummy_cluster& c, const std::string& worker) {
  std::vector<std::string> names;
  const auto told = c.all_told<protect>(worker).back();
  for (const auto& k : told.keepers)
    names.push_back(k.keeper.slot.instance);
  return names;
}

TEST_F(conductor_test, keeper_under_notice_is_sent_nothing_if_another_stays) {
  c.add("k", true);
  c.add("l", true);
  run_two();
  EXPECT_THAT(protected_by(c, "a"), ElementsAre("k", "l"));
  c.notice("k", 30s);
  EXPECT_THAT(protected_by(c, "a"), ElementsAre("l"));
  c.notice("l", 30s);
  EXPECT_THAT(protected_by(c, "a"), ElementsAre("k", "l")) << "better than nothing";
}

TEST_F(conductor_test, keeper_that_joins_when_all_workers_are_under_notice_is_given_their_state) {
  // given: the only worker is under notice and has stopped for a keeper that is lost then. expected: the next keeper is
  // sent all that it holds
  c.add_keeper_and_worker();
  c.step();
  c.notice("a", 30s);
  c.advance(29'999ms);
  ASSERT_EQ(c.view().now, phase::waiting);
  c.lose("k");
  const auto before = whole_stages_asked("a");
  c.add("l", true);
  EXPECT_EQ(whole_stages_asked("a"), before + 1);
  c.snapshot("l");
  c.lose("a");
  c.join({"b"});
  EXPECT_EQ(c.view().steps_done, 1u);
}

} // namespace
} // namespace parcae
