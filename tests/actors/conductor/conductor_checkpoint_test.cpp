// Checkpoints: when they are written, and how a job goes on from one.

#include "tests/actors/conductor/dummy_cluster.hpp"

namespace parcae {
namespace {

// given: a checkpoint that no keeper answers for / expected: when it should long be written that is told, until the
// next is written
TEST(conductor_checkpoints, one_that_is_never_written_is_given_up) {
  dummy_cluster d(4, 32, 8);
  d.add_keeper_and_worker();
  d.kept_silent = true;
  d.train(8);
  for (int i = 0; i < 5; ++i) {
    d.advance(20s);
    d.train(1);
  }
  EXPECT_EQ(d.view().checkpoint.steps, 0u);
  EXPECT_EQ(d.view().checkpoint_problem, "no checkpoint of step 8: not written in time by k/0");
  d.kept_silent = false;
  for (int i = 0; i < 10; ++i) {
    d.advance(20s);
    d.train(1);
  }
  EXPECT_EQ(d.view().now, phase::running);
  EXPECT_GE(d.view().checkpoint.steps, 10u);
  EXPECT_EQ(d.view().checkpoint_problem, "");
}

// given: a checkpoint every 8 steps, a snapshot every 4 / expected: one of each second snapshot, named by job and
// version; while three would be there the oldest goes; a job that is done has its final version on disk
TEST(conductor_checkpoints, are_written_when_due) {
  dummy_cluster d(4, 32, 8);
  d.add_keeper_and_worker();
  for (int i = 0; i < 32; ++i) {
    d.step();
    if (d.view().steps_done % 4 == 0 && !d.ended())
      d.snapshot("k");
  }
  EXPECT_TRUE(d.ended());
  std::vector<std::pair<std::uint64_t, std::vector<std::uint64_t>>> written;
  for (const auto& x : d.all_told<checkpoint>("k")) {
    written.emplace_back(x.at.steps, x.kept);
    EXPECT_THAT(x.name, ::testing::MatchesRegex("job-[0-9a-f]{8}/" + to_string(x.at)));
  }
  using ::testing::ElementsAre, ::testing::IsEmpty, ::testing::Pair;
  EXPECT_THAT(written, ElementsAre(Pair(8, IsEmpty()), Pair(16, ElementsAre(8)), Pair(24, ElementsAre(16)),
                                   Pair(32, ElementsAre(24))));
  EXPECT_EQ(d.view().checkpoint.steps, 32u);
  ASSERT_EQ(d.view().checkpoint_folders.size(), 1u);
  EXPECT_THAT(d.view().checkpoint_folders[0].folder, HasSubstr("/state/job-"));
}

// given: a snapshot of step 4, and then a step that is not finite / expected: the job fails saying so, and the keeper
// is told to write what it has before it is told to forget it; nothing to write: nothing is kept
TEST(conductor_checkpoints, what_was_finite_is_written) {
  for (const bool kept : {true, false}) {
    SCOPED_TRACE(kept);
    dummy_cluster d(4, 32);
    d.add_keeper_and_worker();
    d.step(4);
    if (kept)
      d.snapshot("k");
    d.step();
    d.say("a", failed{d.view().current, failure::not_finite, 0, "the loss is not finite at step 6", {}});
    EXPECT_TRUE(d.ended());
    EXPECT_THAT(d.view().problem, ::testing::StartsWith("the loss is not finite at step 6; "));
    EXPECT_THAT(d.view().problem, HasSubstr(kept ? "the keepers write step 4 to job-" : "nothing is kept"));
    std::vector<std::string> told;
    for (const auto& x : d.told("k"))
      if (const auto* c = std::get_if<checkpoint>(&x))
        told.push_back(to_string(c->at));
      else if (std::holds_alternative<forget>(x))
        told.emplace_back("forget");
    EXPECT_EQ(told, kept ? std::vector<std::string>({"4@1", "forget"}) : std::vector<std::string>({"forget"}));
  }
}

// given: a checkpoint every 8 steps, a snapshot every 4, a disk that is full from the second one on / expected: tried
// when one is due, not with each snapshot; what was not written completely goes
TEST(conductor_checkpoints, that_failed_are_tried_when_the_next_is_due) {
  dummy_cluster d(4, 1000, 8);
  d.add_keeper_and_worker();
  for (int i = 0; i < 40; ++i) {
    d.step();
    if (i == 10)
      d.disk_problem = "No space left on device";
    if (d.view().steps_done % 4 == 0)
      d.snapshot("k");
  }
  std::vector<std::uint64_t> tried;
  for (const auto& x : d.all_told<checkpoint>("k")) {
    tried.push_back(x.at.steps);
    EXPECT_EQ(x.kept, tried.size() > 1 ? std::vector<std::uint64_t>{8} : std::vector<std::uint64_t>());
  }
  EXPECT_THAT(tried, ::testing::ElementsAre(8, 16, 24, 32, 40));
  EXPECT_EQ(d.view().checkpoint.steps, 8u);
}

// given: no checkpoint_every, a user who asks / expected: the version that the keepers hold is written, once
TEST(conductor_checkpoints, are_written_when_asked_for) {
  dummy_cluster d;
  d.add_keeper_and_worker();
  d.step();
  d.event(checkpoint_wanted{});
  d.snapshot("k");
  EXPECT_EQ(d.view().checkpoint.steps, 0u) << "there was nothing to write when it was asked for";
  d.event(checkpoint_wanted{});
  EXPECT_EQ(d.view().checkpoint.steps, 1u);
  const auto told = d.told("k").size();
  d.event(checkpoint_wanted{});
  EXPECT_EQ(d.told("k").size(), told);
}

// given: nobody trains any more, notice to the only keeper / expected: what it holds goes to its disk
TEST(conductor_checkpoints, are_written_by_a_keeper_that_leaves) {
  dummy_cluster d;
  d.add_keeper_and_worker();
  d.step();
  d.snapshot("k");
  EXPECT_EQ(d.view().protected_version.steps, 1u);
  d.lose("a");
  EXPECT_EQ(d.view().checkpoint.steps, 0u);
  d.notice("k", 30s);
  EXPECT_EQ(d.view().checkpoint.steps, 1u);
  d.lose("k");
  d.add_keeper_and_worker();
  EXPECT_EQ(d.view().steps_done, 1u);
}

// given: a disk that is full at the end / expected: the job is not done, says why, and tries again
TEST(conductor_checkpoints, final_version_waits_for_a_full_disk) {
  dummy_cluster d(4, 1);
  d.add_keeper_and_worker();
  d.disk_problem = "No space left on device";
  d.step();
  EXPECT_EQ(d.view().problem, "");
  d.lose("k");
  EXPECT_THAT(d.view().problem, HasSubstr("waiting for a keeper"));
  d.add("k", true);
  EXPECT_EQ(d.view().problem, "");
  d.snapshot("k");
  EXPECT_FALSE(d.ended());
  EXPECT_THAT(d.view().problem, HasSubstr("No space left on device"));
  d.advance(6s);
  EXPECT_FALSE(d.ended());
  EXPECT_TRUE(d.view().grid);
  d.lose("a");
  EXPECT_FALSE(d.view().grid) << "nobody trains";
  d.disk_problem.clear();
  d.advance(6s);
  EXPECT_TRUE(d.ended());
  EXPECT_EQ(d.view().problem, "");
}

// given: two keepers with half of the layers each, a checkpoint at 4; then all but one keeper are lost, which holds
// only newer layers / expected: the job waits for the other; it goes back to 4 when that is there again, not to 0
TEST(conductor_checkpoints, are_read_when_nothing_newer_is_whole) {
  dummy_cluster d(4, 1000, 4);
  d.add("k", true);
  d.add("l", true);
  d.join({"a"});
  const auto kept_by = [&](const std::string& name, std::uint32_t first) {
    const version at{d.view().steps_done, d.view().current};
    d.hold(name, {{first, at}, {first + 1, at}});
  };
  d.step(4);
  kept_by("k", 0);
  kept_by("l", 2);
  ASSERT_EQ(d.view().checkpoint.steps, 4u);
  d.step();
  kept_by("k", 0);
  kept_by("l", 2);
  d.lose("a");
  d.lose("l");
  d.join({"b"});
  EXPECT_EQ(d.view().now, phase::waiting);
  EXPECT_THAT(d.view().problem, HasSubstr("waiting for a keeper that has layers 2, 3 of the checkpoint of step 4"));
  d.add("l", true);
  d.advance(20ms);
  EXPECT_EQ(d.view().now, phase::running);
  EXPECT_EQ(d.view().steps_done, 4u);
  EXPECT_EQ(d.view().chain.back().base, 4u);
  EXPECT_THAT(d.errors(), ::testing::IsEmpty());
}

// given: the same with one keeper whose checkpoint is damaged / expected: the job fails and names the layers
TEST(conductor_checkpoints, lost_layers_are_named) {
  dummy_cluster d(4, 1000, 4);
  d.add_keeper_and_worker();
  d.train(4);
  ASSERT_EQ(d.view().checkpoint.steps, 4u);
  d.lose("a");
  d.lose("k");
  d.disks["k"] = {{{4, {1}}, {0, 3}}};
  d.disk_problem = "k.safetensors is damaged";
  d.add("k", true);
  d.join({"b"});
  EXPECT_TRUE(d.ended());
  EXPECT_EQ(d.view().problem, "layers 1, 2 of the checkpoint of step 4 are lost: k.safetensors is damaged");
}

// given: a job that goes on from step 10 of another, whose keeper has it, or none has / expected: it begins there, with
// its data and nothing from version 0; or fails and says which layers nobody has
TEST(conductor_checkpoints, a_job_goes_on_from_one) {
  dummy_cluster d(4, 1000, 0, {10, "/old/text-1/10@7", "digest"});
  d.disks["k"] = {{{10, {0}}, {0, 1, 2, 3}}};
  d.join({"a"});
  EXPECT_EQ(d.view().now, phase::waiting);
  EXPECT_THAT(d.view().problem, HasSubstr("waiting for a keeper"));
  d.add("k", true);
  d.advance(20ms);
  ASSERT_EQ(d.view().now, phase::running);
  d.step();
  EXPECT_EQ(d.view().steps_done, 11u);
  EXPECT_EQ(d.view().chain[0], (chain_link{{0}, 0, 10}));
  EXPECT_EQ(d.view().chain[1].base, 10u);
  const auto asked = d.all_told<restore>("k");
  ASSERT_FALSE(asked.empty());
  EXPECT_EQ(asked.back().folder, "/old/text-1/10@7");
  EXPECT_EQ(asked.back().at, (version{10, {0}}));
  EXPECT_THAT(d.all_told<prepare>("a"), ::testing::Each(::testing::Field(&prepare::data_digest, "digest")));
  EXPECT_THAT(d.errors(), ::testing::IsEmpty());

  dummy_cluster other(4, 1000, 0, {10, "/old/text-1/10@7", "digest"});
  other.disks["k"] = {{{10, {0}}, {0, 1, 2, 3}}};
  other.mend = [](const std::string&, const report& x) -> report {
    return std::holds_alternative<loaded>(x) ? report(loaded{job_id{1}, "of other files"}) : x;
  };
  other.add("k", true);
  other.add("a");
  other.advance(2s);
  EXPECT_TRUE(other.ended());
  EXPECT_THAT(other.view().problem, HasSubstr("differs from what the job started with"));

  dummy_cluster nobody(4, 1000, 0, {10, "/old/text-1/10@7", "digest"});
  nobody.add("k", true);
  nobody.join({"a"});
  EXPECT_TRUE(nobody.ended());
  EXPECT_EQ(nobody.view().problem, "layers 0, 1, 2, 3 of the checkpoint of step 10 are lost: no folder");
}

// given: the keepers do not answer RESTORE at all / expected: asked now and then, not in a hot loop
TEST(conductor_checkpoints, that_are_never_read_are_no_hot_loop) {
  dummy_cluster d(4, 1000, 0, {10, "/old/text-1/10@7", "digest"});
  d.silent = {"k"};
  d.add_keeper_and_worker();
  EXPECT_THAT(d.view().problem, HasSubstr("the keepers read"));
  const auto before = d.handled;
  d.advance(10min);
  EXPECT_FALSE(d.ended());
  EXPECT_LT(d.handled - before, 300u);
}

// given: two keepers with shares of the final version, which they cannot write, and of an older one on disk. The last
// worker and one of them are lost, the other reads, that one is back with what it held, before or after the other has
// answered, and is lost for good / expected: the other is asked to read once more, and the job goes on from there
class conductor_rereading : public testing::TestWithParam<bool> {};

TEST_P(conductor_rereading, comes_after_newer_state_was_back_for_a_while) {
  const bool late = GetParam();
  dummy_cluster d(4, 5, 4);
  const auto hold = [&](std::uint64_t steps) {
    d.hold("k", {{0, {steps, {1}}}, {1, {steps, {1}}}});
    if (d.has("l"))
      d.hold("l", {{2, {steps, {1}}}, {3, {steps, {1}}}});
  };
  d.add("k", true);
  d.add("l", true);
  d.join({"a"});
  d.step(4);
  hold(4);
  ASSERT_EQ(d.view().checkpoint.steps, 4u);
  const auto written = d.disks.at("l");
  d.disk_problem = "disk full";
  d.step();
  hold(5);
  ASSERT_EQ(d.view().now, phase::finishing);
  d.disk_problem.clear();
  d.lose("a");
  d.add("b");
  std::optional<restored> answer;
  d.hold_back = [&](const report& x) {
    const auto* r = std::get_if<restored>(&x);
    if (late && r && !answer)
      answer = *r;
    return late && r;
  };
  d.lose("l");
  d.advance(1s);
  ASSERT_EQ(d.view().now, phase::waiting) << d.view().problem;
  d.kept_silent = true; // else the final version is written
  d.come_back("l");
  d.hold("l", {{2, {5, {1}}}, {3, {5, {1}}}});
  ASSERT_EQ(d.view().now, phase::finishing);
  d.hold_back = {};
  if (answer)
    d.say("k", *answer);
  d.hold("k", {{0, {5, {1}}}, {1, {5, {1}}}}); // what it read is older than what is safe
  d.lose("l");
  d.kept_silent = false;
  d.add("new", true);
  d.disks["new"] = written;
  d.advance(1min);
  EXPECT_EQ(d.view().now, phase::running) << d.view().problem;
}

INSTANTIATE_TEST_SUITE_P(answers, conductor_rereading, testing::Bool());

// given: a checkpoint whose place cannot be reached, what the user named and what the job wrote / expected: the job
// waits and says why; it is asked for again at the planning interval, and goes on
TEST(conductor_checkpoints, that_cannot_be_reached_are_asked_for_again) {
  dummy_cluster d(4, 1000, 0, {10, "s3://bucket/text-1/10@7", "digest"});
  d.disks["k"] = {{{10, {0}}, {0, 1, 2, 3}}};
  d.store_is_away = true;
  d.add_keeper_and_worker();
  EXPECT_FALSE(d.ended());
  EXPECT_THAT(d.view().problem, HasSubstr("waiting for a keeper that has layers 0, 1, 2, 3"));
  EXPECT_THAT(d.view().problem, HasSubstr("the store is away"));
  const auto before = d.handled;
  d.advance(10min);
  EXPECT_FALSE(d.ended());
  EXPECT_LT(d.handled - before, 300u) << "no hot loop";
  d.store_is_away = false;
  d.advance(61s);
  EXPECT_EQ(d.view().now, phase::running);
}

// given: a keeper that needs ten minutes to read a checkpoint, and says each minute what it has / expected: waited for
TEST(conductor_checkpoints, may_take_long_to_read) {
  dummy_cluster d(4, 1000, 0, {10, "/old/text-1/10@7", "digest"});
  d.keep_back<restored, kept>();
  d.add_keeper_and_worker();
  for (std::uint32_t i = 0; i < 10; ++i) {
    d.advance(59s);
    d.say("k", kept{job_id{1}, {{i % 4, {10, {0}}}}, {}, {}});
  }
  EXPECT_THAT(d.view().problem, HasSubstr("the keepers read"));
  EXPECT_THAT(d.log(), ::testing::Not(::testing::Contains(HasSubstr("is not used"))));
  d.hold_back = {};
  d.hold("k", {{0, {10, {0}}}, {1, {10, {0}}}, {2, {10, {0}}}, {3, {10, {0}}}});
  d.say("k", restored{job_id{1}, {10, {0}}, false, ""});
  d.advance(20ms);
  EXPECT_EQ(d.view().now, phase::running);
}

TEST(conductor_checkpoints, newest_version_is_awaited_of_a_keeper_that_leaves_while_it_writes_another) {
  // given: version 4 is being written when version 8 becomes whole; the keeper is under notice. expected: it is needed
  // until 8 is on its disk
  dummy_cluster d(4, 1000, 4);
  d.add("k", true);
  d.add("l", true);
  d.join({"a"});
  const auto& written = d.held_back;
  d.keep_back<checkpointed>();
  d.train(4);
  ASSERT_EQ(written.size(), 2u);
  d.notice("k", 30s);
  EXPECT_TRUE(d.writes("k"));
  d.train(4);
  ASSERT_EQ(d.view().protected_version.steps, 8u);
  d.notice("k", 29s);
  d.say("k", written[0]); // its share of 4; l's is still to come
  EXPECT_TRUE(d.writes("k")) << "8 is nowhere on disk";
  d.hold_back = {};
  d.say("l", written[1]);
  EXPECT_EQ(d.view().checkpoint.steps, 8u);
  EXPECT_FALSE(d.writes("k"));
}

// given: a keeper whose disk is so slow that the next checkpoint is due whenever one is written, under notice while it
// writes / expected: it may go once what it held at the notice is on disk; without it checkpoints are due as before
TEST(conductor_checkpoints, keep_a_keeper_under_notice_for_what_it_held_then) {
  dummy_cluster d(4, 1000, 4);
  d.add_keeper_and_worker();
  d.advance(20ms);
  const auto& written = d.held_back;
  d.keep_back<checkpointed>();
  d.train(8);
  ASSERT_EQ(written.size(), 1u);
  d.notice("k", 30s);
  d.train(4);
  d.say("k", written[0]);
  ASSERT_EQ(written.size(), 2u) << "what it held then";
  EXPECT_TRUE(d.writes("k"));
  d.train(8);
  d.say("k", written[1]);
  EXPECT_GE(d.view().checkpoint.steps, 8u);
  d.train(8);
  EXPECT_EQ(written.size(), 2u);
  EXPECT_FALSE(d.writes("k"));
  d.lose("k");
  d.hold_back = {};
  d.add("k", true);
  d.train(8);
  EXPECT_EQ(d.view().checkpoint.steps, d.view().protected_version.steps);
}

} // namespace
} // namespace parcae
