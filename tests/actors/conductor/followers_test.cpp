// Layers went ahead of a change, and the generation that trains is lost before it: what follows them counts.

#include "tests/actors/conductor/dummy_cluster.hpp"

#include <gmock/gmock.h>

namespace parcae {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

conductor_options feeding() {
  conductor_options x;
  x.feed_from = 0ms;
  return x;
}

/// a and b train a stage each, and have done three steps. c, a spare, follows what b computes, as b is under notice.
struct followers : testing::Test {
  followers() {
    d.width = 1;
    d.depth = 2;
    d.join({"a", "b"});
    d.step(2);
    d.join({"c"});
    d.step();
    d.keep_back<warmed>();
    d.notice("b", 30s);
    d.advance(50ms);
    EXPECT_EQ(d.view().now, phase::warming);
    g = d.view().current;
  }
  ~followers() override { EXPECT_THAT(d.errors(), IsEmpty()); }

  bool are_lost() const {
    return std::ranges::any_of(d.log(), [](const auto& x) { return x.find("steps are lost") != x.npos; });
  }

  /// By ABORT of the generation that c was to be in.
  std::vector<bool> told_to_keep() {
    std::vector<bool> result;
    for (const auto& x : d.all_told<abort_generation>("c"))
      if (x.current > g)
        result.push_back(x.keeps_followed);
    return result;
  }

  dummy_cluster d{4, 1000, 0, {}, feeding()};
  generation g;
};

// given: b is lost, of whose stage there is no other rank, and no keeper; c follows it at the version that a is at /
// expected: c is asked, and the job goes on from there
TEST_F(followers, at_the_decided_version_are_gone_on_from) {
  d.all().followed = version{3, g};
  d.lose("b");
  d.advance(1s);
  EXPECT_EQ(d.view().now, phase::running);
  EXPECT_EQ(d.view().steps_done, 3u);
  EXPECT_EQ(d.view().replayed_steps, 1u) << "the one in progress";
  EXPECT_FALSE(are_lost());
  EXPECT_THAT(d.held("c"), Contains(layer_version{3, {3, g}}));
}

// given: the same, and c is a step behind / expected: that is no version that goes with what a has: from the beginning
TEST_F(followers, that_are_behind_are_not_used) {
  d.all().followed = version{2, g};
  d.lose("b");
  d.advance(10s);
  EXPECT_TRUE(are_lost());
  EXPECT_EQ(d.view().steps_done, 0u);
}

// given: a has applied a step of which c has heard nothing; b is lost with it / expected: the same
TEST_F(followers, that_have_not_heard_of_the_last_step_are_not_used) {
  d.all().followed = version{3, g};
  d.silent = {"b"};
  d.half_step(1);
  d.lose("b");
  d.advance(10s);
  EXPECT_TRUE(are_lost());
}

// given: what goes ahead is cut off, and g commits on; or b's loss is heard of after that / expected: what c followed
// is kept until that commit, or counts
TEST_F(followers, are_kept_until_the_generation_commits_again) {
  d.all().followed = version{3, g};
  d.hold_back = [](const report& x) { return std::holds_alternative<prepared>(x); }; // of the change that follows
  d.say("c", failed{d.all_told<prepare>("c").back().next, failure::communication, 0, "closed", {}});
  EXPECT_EQ(told_to_keep(), std::vector<bool>{true});
  d.step();
  EXPECT_EQ(told_to_keep(), (std::vector<bool>{true, false}));
  EXPECT_THAT(d.held("c"), IsEmpty());
}

TEST_F(followers, count_if_the_loss_is_heard_of_later) {
  d.all().followed = version{3, g};
  d.say("c", failed{d.all_told<prepare>("c").back().next, failure::communication, 0, "closed", {}});
  d.lose("b");
  d.advance(1s);
  EXPECT_EQ(d.view().steps_done, 3u);
  EXPECT_FALSE(are_lost());
}

// given: the only rank applies two steps that nobody has heard of and fails, so that its layers are void; it says what
// came of them, and c, which follows it, has the layers / expected: they count, and what came of them is known
TEST(followers_of_one, count_with_what_the_failed_rank_says) {
  dummy_cluster d{4, 1000, 0, {}, feeding()};
  d.width = d.depth = 1;
  d.join({"a"});
  d.step();
  d.join({"c"});
  d.keep_back<warmed, recalled>();
  d.notice("a", 30s);
  d.advance(50ms);
  ASSERT_EQ(d.view().now, phase::warming);
  d.all().followed = version{3, d.view().current};
  d.mend = [](const std::string& name, report x) {
    if (auto* said = std::get_if<aborted>(&x); said && name == "a")
      said->held.clear();
    return x;
  };
  d.progress_is_lost = true;
  d.step();
  d.half_step(1);
  d.advance(1s);
  EXPECT_EQ(d.view().steps_done, 3u);
  for (std::uint64_t step = 0; step < 3; ++step)
    EXPECT_TRUE(d.machine().losses().find(step)) << step;
  EXPECT_THAT(d.errors(), IsEmpty());
}

} // namespace
} // namespace parcae
