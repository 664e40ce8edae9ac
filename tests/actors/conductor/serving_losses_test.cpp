// A job that serves, of which pipelines are lost: the others have nothing to do with that.

#include "tests/actors/conductor/serving_conductor.hpp"

namespace parcae {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// given: a worker is lost beside another pipeline, which takes its time to prepare / expected: that one serves on until
// then, its gateway is told nothing; who says nothing of it any more is not waited for
TEST_F(serving_conductor, a_whole_pipeline_serves_on) {
  serve_by_two();
  const auto g = c.view().current.value;
  c.keep_back<prepared>();
  c.lose("b");
  c.advance(20ms);
  EXPECT_EQ(c.view().now, phase::readying);
  EXPECT_EQ(c.view().current.value, g);
  EXPECT_THAT(routes(), IsEmpty());
  EXPECT_THAT(c.all_told<abort_generation>("a"), IsEmpty());
  c.serve(); // a alone
  c.advance(29s);
  c.serve();
  c.advance(29s);
  EXPECT_EQ(c.view().current.value, g);
  c.hold_back = {};
  c.say("a", c.held_back.back());
  c.advance(20ms);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().current.value, g + 1);
  EXPECT_THAT(routes(), ElementsAre(way(0, 0), way(g + 1, 1)));
}

// given: two pipelines of two stages, and one stage is lost / expected: the other of its pipeline is told ABORT, as the
// end of its connections may not reach it, the rest serve on; and when that is hit, too, all of it ends
TEST_F(serving_conductor, a_lost_stage_ends_its_pipeline_only) {
  c.depth = 2;
  c.add_gateway("g");
  c.join({"a", "b", "d", "e"});
  ASSERT_EQ(c.running(), 2u);
  c.serve();
  const auto g = c.view().current;
  const auto grid = *c.view().grid;
  const auto name = [&](std::uint32_t rank) { return grid.participants[rank].slot.instance; };
  c.slow_planner = true;
  c.lose(name(0));
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.all_told<abort_generation>(name(1)).size(), 1u);
  for (const auto rank : {2u, 3u})
    EXPECT_THAT(c.all_told<abort_generation>(name(rank)), IsEmpty());
  c.reconnect(name(1));
  EXPECT_EQ(c.all_told<abort_generation>(name(1)).size(), 2u);
  c.say(name(3), failed{g, failure::computation, 0, "it threw", {}});
  EXPECT_NE(c.view().now, phase::running);
  c.slow_planner = false;
  c.answer_plans();
  c.advance(10s);
  EXPECT_EQ(c.running(), 1u);
}

// given: the same with a spare / expected: the next generation follows at once: who has no pipeline any more is not
// asked to stop, as it would not answer
TEST_F(serving_conductor, who_has_no_pipeline_is_not_waited_for) {
  c.depth = 2;
  c.add_gateway("g");
  c.join({"a", "b", "d", "e", "spare"});
  ASSERT_EQ(c.running(), 2u);
  c.serve();
  const auto g = c.view().current.value;
  const auto grid = *c.view().grid;
  const auto name = [&](std::uint32_t rank) { return grid.participants[rank].slot.instance; };
  c.lose(name(0));
  c.advance(20ms);
  EXPECT_EQ(c.running(), 2u);
  EXPECT_EQ(c.view().current.value, g + 1);
  EXPECT_THAT(c.all_told<stop>(name(1)), IsEmpty());
  EXPECT_EQ(c.all_told<stop>(name(2)).size(), 1u);
}

// given: the same, and of two pipelines one is lost, breaks, or says nothing more / expected: the other goes on, and
// was told nothing but what it has to know of; the gateway hears of both, as it knows by itself which are whole; then
// the next generation follows without that one, which is told ABORT if it is there
TEST_F(serving_conductor, a_whole_pipeline_goes_on_under_another_manager) {
  for (const std::string fate : {"lost", "broken", "silent"}) {
    SCOPED_TRACE(fate);
    dummy_cluster x(4, describe);
    x.add_gateway("g");
    x.join({"a", "b"});
    x.serve();
    const auto g = x.view().current;
    x.silent = {"a", "b"};
    x.kill_manager();
    x.restart_manager();
    ASSERT_EQ(x.view().now, phase::recovering);
    x.slow_planner = true;
    if (fate == "lost")
      x.lose("b");
    else if (fate == "broken")
      x.say("b", failed{g, failure::communication, 0, "closed", {}});
    x.silent = {"b"};
    x.reconnect("a");
    for (int i = 0; i < 120 && x.view().now == phase::recovering; ++i)
      x.advance(1s);
    EXPECT_EQ(x.view().now, phase::running);
    EXPECT_EQ(x.view().current, g);
    EXPECT_EQ(x.all_told<route>("g").back().current, g);
    EXPECT_THAT(x.all_told<abort_generation>("a"), IsEmpty());
    if (fate != "lost") {
      EXPECT_EQ(x.all_told<abort_generation>("b").back().current, g);
    }
    x.silent.clear();
    x.slow_planner = false;
    x.answer_plans();
    x.advance(20ms);
    EXPECT_GT(x.view().current, g);
    EXPECT_THAT(x.errors(), IsEmpty());
  }
}

// given: a pipeline that breaks as soon as it begins, again and again, beside one that does not / expected: it is
// planned anew at once, then later and later, as the others stop for that; at once again when it has served since
TEST_F(serving_conductor, a_pipeline_that_breaks_again_and_again_is_put_off) {
  serve_by_two();
  const auto time_to_next = [&] {
    const auto g = c.view().current;
    const auto begun = c.now();
    c.say("b", failed{g, failure::communication, 0, "closed", {}});
    EXPECT_EQ(c.view().now, phase::running);
    while (c.view().current == g && c.now() < begun + 5min) {
      c.advance(10ms);
      c.say("a", served{g});
    }
    EXPECT_EQ(c.view().now, phase::running);
    EXPECT_EQ(c.view().grid->width, 2u);
    return c.now() - begun;
  };
  for (int i = 0; i < 3; ++i)
    EXPECT_LT(time_to_next(), 100ms);
  auto before = time_to_next();
  EXPECT_GT(before, 500ms);
  for (int i = 0; i < 3; ++i) {
    const auto next = time_to_next();
    EXPECT_GT(next, 1.5 * before);
    before = next;
  }
  c.serve();
  EXPECT_LT(time_to_next(), 100ms);
}

// given: both pipelines are lost under another manager / expected: as if all had been lost under the first
TEST_F(serving_conductor, no_pipeline_is_left_under_another_manager) {
  serve_by_two();
  const auto g = c.view().current;
  c.silent = {"a", "b"};
  c.kill_manager();
  c.restart_manager();
  c.lose("b");
  EXPECT_EQ(c.view().now, phase::recovering);
  c.say("a", failed{g, failure::communication, 0, "closed", {}});
  c.silent.clear();
  c.advance(2min);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_GT(c.view().current, g);
  EXPECT_EQ(c.view().grid->width, 1u);
}

// given: one of three pipelines is lost while they begin / expected: the others begin, and are told ABORT by nobody;
// the next generation follows without it
TEST_F(serving_conductor, a_loss_while_it_begins_ends_one_pipeline_only) {
  serve_by_two();
  const auto g = c.view().current.value;
  c.keep_back<active>();
  c.join({"d"});
  ASSERT_EQ(c.view().now, phase::activating);
  c.lose("b");
  EXPECT_EQ(c.view().now, phase::activating);
  c.hold_back = {};
  c.slow_planner = true;
  for (const auto* name : {"a", "d"}) {
    EXPECT_THAT(c.all_told<abort_generation>(name), IsEmpty());
    c.say(name, active{{g + 1}});
  }
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(routes().back(), way(g + 1, 3));
  c.serve();
  c.slow_planner = false;
  c.answer_plans();
  c.advance(20ms);
  EXPECT_EQ(c.running(), 2u);
  EXPECT_EQ(routes().back(), way(g + 2, 2));
}

} // namespace
} // namespace parcae
