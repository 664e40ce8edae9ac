// A job that serves: the same choreography at version 0, and gateways that are told who serves.

#include "tests/actors/conductor/serving_conductor.hpp"

#include <cmath>

namespace parcae {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// given: a gateway and two workers / expected: it is told of both pipelines, with what all ranks have proven, and their
// token; state is released once both have said that they are there, and not before
TEST_F(serving_conductor, tells_the_gateway_who_serves) {
  c.add_gateway("g");
  c.join({"a", "b"});
  ASSERT_EQ(c.running(), 2u);
  EXPECT_THAT(routes(), ElementsAre(way(0, 0), way(1, 2)));
  const auto x = c.all_told<route>("g").back();
  const auto plan = c.all_told<prepare>("a").back();
  EXPECT_EQ(x.current, plan.next);
  EXPECT_EQ(x.token, plan.token);
  EXPECT_EQ(x.target, plan.target);
  EXPECT_THAT(x.sizes, ElementsAre(4, 16, 48));
  c.say("a", served{plan.next});
  c.say("a", served{plan.next});
  EXPECT_THAT(c.all_told<release>("a"), IsEmpty());
  c.say("b", served{plan.next});
  EXPECT_EQ(c.all_told<release>("a").size(), 1u);
  EXPECT_EQ(c.view().gateway, "g");
  EXPECT_EQ(c.view().http, "http://g");
  EXPECT_EQ(c.view().problem, "");
}

// given: what a gateway says that it goes by / expected: told again if that is something else, or its connection is
// another one
TEST_F(serving_conductor, says_it_again_until_the_gateway_goes_by_it) {
  serve_by_two();
  const auto g = c.view().current;
  c.say("g", routed{job_id{1}, g, 2, {}, {}});
  EXPECT_EQ(routes().size(), 0u);
  c.say("g", routed{job_id{1}, {}, 0, {}, {}});
  EXPECT_EQ(routes().size(), 1u);
  c.say("g", routed{job_id{1}, g, 0, {}, {}});
  EXPECT_EQ(routes().size(), 2u);
  c.say("g", routed{job_id{2}, {}, 0, {}, {}});
  EXPECT_EQ(routes().size(), 2u);
  c.reconnect("g");
  EXPECT_EQ(routes().size(), 3u);
  EXPECT_THAT(routes(), Each(way(g.value, 2u)));
}

// given: a join, and ranks that have not stopped yet / expected: the gateway is told nothing while they drain, then
// that nobody serves, then of the next generation
TEST_F(serving_conductor, drains_before_a_change) {
  serve_by_two();
  const auto g = c.view().current.value;
  c.keep_back<stopped>();
  c.join({"d"});
  EXPECT_EQ(c.view().now, phase::stopping);
  EXPECT_THAT(routes(), IsEmpty());
  EXPECT_FALSE(c.all_told<stop>("a").back().snapshot);
  c.hold_back = {};
  for (const auto* name : {"a", "b"}) {
    ASSERT_FALSE(c.held_back.empty());
    c.say(name, c.held_back.front());
  }
  c.advance(20ms);
  EXPECT_EQ(c.running(), 3u);
  EXPECT_THAT(routes(), ElementsAre(way(0, 0), way(g + 1, 3)));
}

// given: what two ranks say of their passes, and the gateway of requests / expected: plans are asked for with it:
// means, of stages and sizes; what makes no sense does not count
TEST_F(serving_conductor, plans_by_what_was_measured) {
  serve_by_two();
  const auto g = c.view().current;
  const auto layers = c.view().grid->first_layer.back();
  served x{g};
  x.by_size = {{16, 10, 2}, {48, 1, 5}};
  c.say("a", x);
  x.by_size = {{16, 30, 4}, {16, 1, -1}, {16, 1, std::nan("")}, {0, 1, 1}, {48, 0, 1}};
  c.say("b", x);
  const auto known = [&] { return c.view().known.service; };
  EXPECT_THAT(known().passes,
              ElementsAre(measured_stage{0, layers, {16, 40, 3.5}}, measured_stage{0, layers, {48, 1, 5}}));
  EXPECT_THAT(known().sizes, ElementsAre(4, 16, 48));
  EXPECT_FALSE(known().is_enough());
  routed y{job_id{1}, g, 2, {}, {}};
  y.requests.arrivals_per_s = 7;
  y.answered = {{3, 4}, {0, 4}, {5, 6}};
  c.say("g", y);
  EXPECT_TRUE(known().is_enough());
  EXPECT_THAT(known().answered, ElementsAre(answered_request{3, 4}, answered_request{5, 6}));
  EXPECT_EQ(known().arrivals_per_s, 7);
  c.add_gateway("h");
  y.answered = {{9, 9}};
  c.say("h", y);
  EXPECT_EQ(known().answered.size(), 2u) << "it only stands by";
  c.lose("g");
  c.say("h", routed{job_id{1}, g, 2, {}, {}});
  EXPECT_EQ(known().arrivals_per_s, 7) << "it has just come";
}

// given: ranks that say more sizes than there are, in one generation after the other / expected: no more is kept
TEST_F(serving_conductor, bounds_what_it_keeps) {
  serve_by_two();
  for (std::uint32_t i = 0; i < 1'000; ++i) {
    served x{c.view().current};
    for (std::uint32_t k = 0; k < 100; ++k)
      x.by_size.push_back({1 + (i * 32 + k) % 1'000, UINT64_MAX, 1});
    c.say("a", x);
    if (i == 0) {
      EXPECT_EQ(c.view().known.service.passes.size(), most_pass_sizes);
    }
  }
  EXPECT_EQ(c.view().known.service.passes.size(), 256u);
}

// given: a worker is lost, then all, then others come / expected: it goes on at version 0, and nothing counts as lost
TEST_F(serving_conductor, goes_on_at_version_0) {
  serve_by_two();
  const auto g = c.view().current.value;
  c.lose("b");
  c.advance(20ms);
  EXPECT_EQ(c.running(), 1u);
  EXPECT_THAT(routes(), ElementsAre(way(0, 0), way(g + 1, 1)));
  c.serve();
  c.lose("a");
  c.advance(20ms);
  EXPECT_EQ(c.view().now, phase::waiting);
  EXPECT_EQ(routes().back().second, 0u);
  c.join({"d", "e", "f"});
  EXPECT_EQ(c.running(), 3u);
  EXPECT_EQ(c.view().steps_done, 0u);
  EXPECT_EQ(c.view().replayed_steps, 0u);
  for (const auto& x : c.view().chain)
    EXPECT_EQ(x.base, 0u);
  EXPECT_THAT(c.log(), Not(Contains(HasSubstr("lost with those"))));
}

// given: the gateway is lost, with and without another one / expected: the generation goes on, the next oldest is told;
// without any the job says so
TEST_F(serving_conductor, gateways_change_no_generation) {
  c.join({"a"});
  EXPECT_EQ(c.running(), 1u);
  EXPECT_THAT(c.view().problem, HasSubstr("there is no gateway to answer requests"));
  const auto g = c.view().current;
  c.add_gateway("g");
  c.add_gateway("h");
  EXPECT_EQ(c.view().problem, "");
  EXPECT_THAT(routes("g"), ElementsAre(way(g.value, 1)));
  EXPECT_THAT(routes("h"), ElementsAre(way(0, 0))) << "it may have been in use, and thawed";
  c.say("g", routed{job_id{1}, g, 1, {}, "tokenizer.json: no such file"});
  EXPECT_EQ(c.view().problem, "g/0: tokenizer.json: no such file");
  c.notice("g", 30s);
  EXPECT_TRUE(c.machine().can_go(c.slot("g")));
  routed busy{job_id{1}, g, 1, {}, {}};
  busy.requests.running = 1;
  c.say("g", busy);
  EXPECT_FALSE(c.machine().can_go(c.slot("g")));
  EXPECT_TRUE(c.machine().can_go(c.slot("h")));
  c.lose("g");
  EXPECT_THAT(routes("h"), ElementsAre(way(0, 0), way(g.value, 1)));
  c.come_back("g");
  EXPECT_THAT(routes("g"), ElementsAre(way(g.value, 1), way(0, 0))) << "h is in use now";
  c.lose("g");
  c.lose("h");
  EXPECT_EQ(c.view().current, g);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_THAT(c.view().problem, HasSubstr("there is no gateway"));
}

// given: a rank that says nothing more, while the other does / expected: aborted after the limit of progress; not while
// both do
TEST_F(serving_conductor, each_rank_has_to_be_heard) {
  serve_by_two();
  const auto g = c.view().current;
  for (int i = 0; i < 10; ++i) {
    c.advance(20s);
    c.serve();
  }
  EXPECT_EQ(c.view().current, g);
  for (int i = 0; i < 29; ++i) {
    c.say("a", served{g});
    c.advance(1s);
  }
  EXPECT_EQ(c.view().current, g);
  c.say("a", served{g});
  c.advance(2s);
  EXPECT_GT(c.view().current, g);
}

// given: workers with other sizes of passes, and with another reference / expected: sizes of all; that one is not used,
// and it is said why
TEST_F(serving_conductor, passes_have_the_same_bits_everywhere) {
  c.mend = [](const std::string& name, report x) {
    if (auto* l = std::get_if<loaded>(&x); l && name == "b")
      l->passes = {16, {16, 24, 48}};
    else if (l && name == "d")
      l->passes = {24, {24, 48}};
    else if (l && name == "e")
      l->passes = {};
    return x;
  };
  c.add_gateway("g");
  c.join({"a", "b", "d", "e"});
  EXPECT_EQ(c.running(), 2u);
  EXPECT_THAT(c.all_told<route>("g").back().sizes, ElementsAre(16, 48));
  ASSERT_EQ(c.view().unused.size(), 2u);
  EXPECT_EQ(c.view().unused[1].why, "it does not say in which passes rows have the same bits");
  EXPECT_EQ(c.view().unused[0].where, c.slot("d"));
  EXPECT_EQ(c.all_told<prepare>("a").back().data_digest, "");
  EXPECT_EQ(c.view().unused[0].why,
            "rows have other bits there, those of passes of 24; the job's are those of passes of 16");
}

// given: a keeper, beside a job that serves / expected: it is told nothing, as it may hold what is left of another job
TEST_F(serving_conductor, has_no_keepers) {
  c.add("k", true);
  serve_by_two();
  c.notice("k", 30s);
  c.lose("b");
  c.advance(20ms);
  EXPECT_THAT(c.told("k"), IsEmpty());
}

// given: a manager that is started again / expected: the generation goes on, and the gateway is told nothing of it
// being over meanwhile
TEST_F(serving_conductor, goes_on_under_another_manager) {
  serve_by_two();
  const auto g = c.view().current;
  const auto before = routes().size();
  c.silent = {"a", "b"};
  c.kill_manager();
  c.restart_manager();
  EXPECT_EQ(c.view().now, phase::recovering);
  EXPECT_EQ(routes().size(), before);
  c.silent.clear();
  c.reconnect("a");
  c.reconnect("b");
  c.advance(20ms);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().current, g);
  EXPECT_EQ(routes().size(), before + 1);
  EXPECT_EQ(routes().back(), way(g.value, 2u));
  EXPECT_THAT(c.all_told<route>("g").back().sizes, ElementsAre(4, 16, 48));
}

// given: a manager that is started again, and hears of one of two ranks what it has proven / expected: the gateway is
// told nothing until it has heard that of both
TEST_F(serving_conductor, waits_for_all_sizes_under_another_manager) {
  serve_by_two();
  const auto g = c.view().current;
  c.keep_back<loaded>();
  c.kill_manager();
  c.restart_manager();
  c.advance(20ms);
  EXPECT_EQ(c.view().now, phase::running);
  ASSERT_EQ(c.held_back.size(), 2u);
  EXPECT_THAT(routes(), IsEmpty());
  c.hold_back = {};
  c.say("a", c.held_back.front());
  EXPECT_THAT(routes(), IsEmpty());
  c.say("b", c.held_back.front());
  EXPECT_THAT(routes(), ElementsAre(way(g.value, 2)));
}

// given: a worker under notice / expected: it may go once the generation without it has been heard of
TEST_F(serving_conductor, who_leaves_may_go_when_others_serve) {
  serve_by_two();
  c.notice("b", 60s);
  c.advance(20ms);
  EXPECT_EQ(c.running(), 1u);
  EXPECT_FALSE(c.machine().can_go(c.slot("b")));
  c.serve();
  EXPECT_TRUE(c.machine().can_go(c.slot("b")));
  EXPECT_FALSE(c.machine().can_go(c.slot("a")));
}

// given: cancel / expected: all are told that the job is over, and the gateway before that nothing else
TEST_F(serving_conductor, ends_when_it_is_cancelled) {
  serve_by_two();
  c.event(cancel_requested{});
  EXPECT_TRUE(c.ended());
  EXPECT_EQ(c.all_told<forget>("g").size(), 1u);
  EXPECT_EQ(c.all_told<forget>("a").size(), 1u);
  EXPECT_THAT(routes(), IsEmpty());
}

// given: losses and failures of a job that trains, in each phase / expected: no row is taken that is for jobs that
// serve
TEST(training_conductor, takes_no_row_of_jobs_that_serve) {
  const auto rows = conductor::transitions();
  const auto is_for_service = [&](std::size_t row) { return rows[row].condition.starts_with("g serves"); };
  std::size_t found = 0;
  for (std::size_t i = 0; i < rows.size(); ++i)
    found += is_for_service(i);
  EXPECT_EQ(found, 11u);
  for (const auto hit : {phase::running, phase::readying, phase::stopping, phase::activating, phase::recovering})
    for (const bool dies : {true, false}) {
      dummy_cluster c;
      c.join({"a", "b"});
      c.step();
      if (hit == phase::recovering) {
        c.silent = {"a", "b"};
        c.kill_manager();
        c.restart_manager();
      }
      if (hit == phase::readying)
        c.keep_back<prepared>();
      if (hit == phase::stopping)
        c.keep_back<stopped>();
      if (hit == phase::activating)
        c.keep_back<active>();
      if (hit != phase::running && hit != phase::recovering)
        c.join({"d"});
      EXPECT_EQ(c.view().now, hit);
      if (dies)
        c.lose("b");
      else
        c.say("b", failed{c.view().current, failure::communication, 0, "closed", {}});
      for (const auto& [row, from] : c.taken)
        EXPECT_FALSE(is_for_service(row)) << rows[row].does;
    }
}

// given: a gateway beside a job that trains / expected: it is told nothing, and nothing is other for it
TEST(training_conductor, knows_no_gateways) {
  dummy_cluster c;
  c.add_gateway("g");
  c.join({"a", "b"});
  c.step(3);
  c.lose("b");
  c.advance(20ms);
  c.lose("g");
  c.event(cancel_requested{});
  c.add_gateway("g");
  EXPECT_THAT(c.told("g"), IsEmpty());
  EXPECT_EQ(c.view().gateways, 0u);
  EXPECT_THAT(c.errors(), IsEmpty());
}

} // namespace
} // namespace parcae
