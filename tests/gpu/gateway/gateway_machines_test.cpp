// A gateway's rules: each row of both tables is taken, from each of its phases, and leads where it says. And whatever
// becomes of pipelines, in any order: each stream is the undisturbed one, each token comes once.

#include "tests/gpu/gateway/gateway_rig.hpp"
#include "tests/support/table_checks.hpp"

#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <random>
#include <ranges>
#include <set>
#include <span>

namespace parcae {
namespace {

using testing::Contains;
using testing::ElementsAre;

using play = std::function<void(gateway_rig&, std::uint64_t id)>;

/// By trigger and condition; the request is in the phase that the row begins in.
std::map<std::pair<request_trigger, std::string>, play> request_scenes() {
  using t = request_trigger;
  return {
      {{t::taken, ""}, [](auto& g, auto id) { g.book.taken(id); }},
      {{t::token, "it ends answers"}, [](auto& g, auto id) { g.book.token(id, 6, 250); }},
      {{t::token, "there may be no more"},
       [](auto& g, auto id) {
         g.book.token(id, 6, 1);
         g.book.token(id, 7, 2);
         g.book.token(id, 8, 3);
       }},
      {{t::token, ""}, [](auto& g, auto id) { g.book.token(id, 6, 1); }},
      {{t::no_token, ""}, [](auto& g, auto id) { g.book.no_token(id); }},
      {{t::lost, ""}, [](auto& g, auto id) { g.book.lost(id); }},
      {{t::threw, "it was alone in it, and one threw before"},
       [](auto& g, auto id) {
         g.book.threw(id, 3, false);
         g.book.taken(id);
         g.book.threw(id, 3, true);
       }},
      {{t::threw, ""}, [](auto& g, auto id) { g.book.threw(id, 3, true); }},
      {{t::unserved, "none ever did"}, [](auto& g, auto) { g.book.tick(g.now + 60'000); }},
      {{t::gone, ""}, [](auto& g, auto id) { g.book.gone(id); }},
      {{t::closed, ""}, [](auto& g, auto) { g.book.close_all(); }},
  };
}

TEST(request_book, takes_each_row_from_each_of_its_phases) {
  const auto rows = request_book::table();
  play_each_row(rows, request_scenes(), request_phase::queued, request_phase::running,
                [&](std::size_t i, request_phase from, const play& scene) {
                  gateway_rig g;
                  const auto id = g.add(6, 3, 1);
                  if (from == request_phase::running)
                    g.book.taken(id);
                  scene(g, id);
                  EXPECT_THAT(g.of_requests, Contains(std::pair(i, from)));
                  const auto* x = g.book.find(id);
                  EXPECT_EQ(x ? x->phase : request_phase::over, rows[i].to.value_or(from));
                  EXPECT_EQ(g.book.queue().contains(id), x && x->phase == request_phase::queued);
                });
}

/// The pipeline, of one that has a request, is in the phase that the row begins in.
std::map<std::pair<pipeline_trigger, std::string>, std::function<void(gateway_rig&)>> pipeline_scenes() {
  using t = pipeline_trigger;
  return {
      {{t::connected, ""}, [](auto& g) { g.connect(0); }},
      {{t::held, "that was not asked"}, [](auto& g) { g.say(0, pass_frame_kind::held, 7); }},
      {{t::held, "more was asked"}, [](auto& g) { g.answer(0); }},
      {{t::held, ""}, [](auto& g) { g.settle(0); }},
      {{t::tokens, "they do not follow from it"}, [](auto& g) { g.say(0, pass_frame_kind::rows, 9); }},
      {{t::tokens, ""}, [](auto& g) { g.answer(0); }},
      {{t::drained, ""}, [](auto& g) { g.say(0, pass_frame_kind::drained); }},
      {{t::threw, ""}, [](auto& g) { g.say(0, pass_frame_kind::failed, 2); }},
      {{t::broken, ""}, [](auto& g) { g.all.broke(0, g.now); }},
      {{t::silent, ""}, [](auto& g) { g.pass_time(pipelines::first_silence_ms); }},
  };
}

TEST(pipelines, take_each_row_from_each_of_their_phases) {
  const auto rows = pipelines::table();
  play_each_row(rows, pipeline_scenes(), pipeline_phase::opening, pipeline_phase::drained,
                [&](std::size_t i, pipeline_phase from, const auto& scene) {
                  gateway_rig g;
                  g.add(6, 3, 1);
                  for (int n = 0; n < 70; ++n) { // that have begun: two questions
                    const auto id = g.add(6, 3, 1);
                    if (from == pipeline_phase::asking)
                      g.book.went_well(id, 1);
                  }
                  g.route(1);
                  if (from != pipeline_phase::opening)
                    g.connect(0);
                  if (from == pipeline_phase::ready)
                    g.answer(0);
                  g.of_pipelines.clear();
                  scene(g);
                  EXPECT_THAT(g.of_pipelines, Contains(std::pair(i, from)));
                  EXPECT_EQ(g.all.phase_of(0), rows[i].to.value_or(from));
                });
}

TEST(gateway_machines, hide_no_row_by_one_before) {
  expect_no_row_hidden(request_book::table());
  expect_no_row_hidden(pipelines::table());
}

TEST(gateway_machines, have_their_tables_in_the_readme) {
  expect_in_file(table_of(request_book::table()), "gpu/gateway/README.md");
  expect_in_file(table_of(pipelines::table()), "gpu/gateway/README.md");
}

// given: a queue of two / expected: a third is refused; what a pipeline has taken makes room
TEST(gateway_machines, refuse_what_is_too_much) {
  gateway_rig g({.queue = 2, .wait_ms = 1'000});
  EXPECT_NE(g.add(3, 2, 1), 0u);
  EXPECT_NE(g.add(3, 2, 2), 0u);
  EXPECT_EQ(g.add(3, 2, 3), 0u);
  g.serve();
  EXPECT_NE(g.add(3, 2, 4), 0u);
}

// given: a request that a pipeline took, and one that came as early and waits / expected: after a loss and a long time
// the first still waits, the second is refused
TEST(gateway_machines, never_end_what_was_taken_for_want_of_pipelines) {
  gateway_rig g({.queue = 10, .wait_ms = 1'000});
  const auto taken = g.add(3, 5, 1);
  g.route(1, 1, 1);
  g.connect(0);
  g.answer(0);
  const auto waits = g.add(3, 5, 2);
  g.route(0);
  g.now += 100'000;
  g.all.tick(g.now);
  EXPECT_THAT(g.ends, ElementsAre(std::pair(waits, request_end::unserved)));
  g.serve();
  g.settle(0);
  EXPECT_EQ(g.streams[taken], g.right(taken, 5));
}

// given: 60 positions of a pipeline's caches / expected: a second request of 40 waits though there is a place; who
// comes after it does not pass it
TEST(gateway_machines, give_room_for_the_whole_of_a_request) {
  gateway_rig g;
  g.route(1);
  g.rings[0].room = 60;
  g.connect(0);
  g.answer(0);
  g.add(20, 20, 1);
  const auto large = g.add(20, 20, 2), small = g.add(2, 2, 3);
  EXPECT_EQ(g.all.requests_in(0), 1u);
  g.settle(0);
  EXPECT_EQ(g.streams[large], g.right(large, 20));
  EXPECT_EQ(g.streams[small], g.right(small, 2));
  EXPECT_TRUE(g.rings[0].held.empty()) << "each was said to be over";
}

// given: two pipelines that both hold something of a request, and another of which none has anything / expected: it
// goes on where most is held, no position that is held there is computed again, and in the end nobody holds anything
TEST(gateway_machines, give_a_request_to_who_holds_most) {
  gateway_rig g;
  const auto id = g.add(40, 4, 1);
  g.serve(2);
  const auto at = g.all.requests_in(0) == 1 ? 0u : 1u;
  for (int i = 0; i < 5; ++i)
    g.answer(at); // 20 positions
  g.route(2);
  g.rings[at].held[id] = 12;
  g.rings[1 - at].held[id] = 18;
  g.connect(at);
  g.answer(at);
  EXPECT_EQ(g.all.requests_in(at), 0u) << "the other one may hold more";
  g.connect(1 - at);
  g.answer(1 - at);
  EXPECT_EQ(g.all.requests_in(1 - at), 1u);
  EXPECT_EQ(g.all.counts().repeated, 2u);
  g.settle(1 - at);
  EXPECT_EQ(g.streams[id], g.right(id, 4));
  g.pass_time(100);
  EXPECT_TRUE(g.rings[at].held.empty() && g.rings[1 - at].held.empty());
}

// given: two pipelines with two requests each, then one with two places, which holds those of the first / expected: the
// two that came first go on, though it holds nothing of one of them; then the others; what it holds is computed once
TEST(gateway_machines, serve_by_arrival_who_has_no_heir) {
  gateway_rig g;
  g.serve(2);
  std::vector<std::uint64_t> ids;
  for (std::uint64_t seed = 1; seed <= 4; ++seed)
    ids.push_back(g.add(10, 20, seed)); // by turns
  ASSERT_EQ(g.all.requests_in(0), 2u);
  for (int i = 0; i < 12; ++i)
    for (std::uint32_t at = 0; at < 2; ++at)
      g.answer(at);
  const auto known = [&](std::size_t i) { return g.book.find(ids[i])->computed; };
  const auto of_second = known(1), of_fourth = known(3);
  ASSERT_GT(std::min(of_second, of_fourth), 10u);
  g.route(1, 1, 2);
  g.connect(0);
  g.answer(0);
  std::vector<request_phase> phases;
  for (const auto id : ids)
    phases.push_back(g.book.find(id)->phase);
  using enum request_phase;
  EXPECT_THAT(phases, ElementsAre(running, running, queued, queued));
  EXPECT_EQ(g.all.counts().repeated, of_second);
  g.settle(0);
  for (const auto id : ids)
    EXPECT_EQ(g.streams[id], g.right(id, 20));
  EXPECT_EQ(g.all.counts().repeated, of_second + of_fourth);
  EXPECT_TRUE(g.rings[0].held.empty());
}

// given: passes of which each row takes a millisecond, and two pipelines; one request decodes in the first while a
// prompt comes, then the second ends with another / expected: the prompt goes in whole chunks; what is computed again
// beside the one that decodes goes in passes of a size between
TEST(gateway_machines, do_not_hold_up_who_decodes_by_replays) {
  gateway_rig g;
  g.route(2, {.depth = 1, .batch = 4, .chunk = 12, .sizes = {4, 8, 16}});
  const auto go_on = [&](std::uint32_t i) {
    g.now += g.rings[i].sizes.back();
    g.answer(i);
  };
  g.pass_time(pipelines::gathering_ms);
  g.connect(0);
  g.answer(0);
  g.add(2, 200, 1); // decodes in the first until the end
  for (int i = 0; i < 5; ++i)
    go_on(0);
  const auto prompt = g.add(30, 9, 2);
  while (!g.ends.contains(prompt))
    go_on(0);
  EXPECT_EQ(std::ranges::max(g.rings[0].sizes), 16u);
  g.connect(1);
  g.answer(1);
  const auto hit = g.add(40, 60, 3);
  ASSERT_EQ(g.all.requests_in(1), 1u);
  while (g.streams[hit].size() < 3)
    go_on(1);
  g.all.broke(1, g.now);
  ASSERT_EQ(g.all.requests_in(0), 2u);
  go_on(0);
  g.rings[0].sizes.clear();
  while (g.streams[hit].size() < 4)
    go_on(0);
  EXPECT_GT(g.rings[0].sizes.size(), 40u / 8);
  EXPECT_EQ(std::ranges::max(g.rings[0].sizes), 8u);
  while (!g.ends.contains(hit))
    go_on(0);
  EXPECT_EQ(g.streams[hit], g.right(hit, 60));
}

// given: three requests side by side, one of which makes any pass throw / expected: it ends at its second time, when it
// is alone; the others have all their tokens
TEST(gateway_machines, end_who_makes_passes_throw) {
  gateway_rig g;
  const auto first = g.add(10, 9, 1), bad = g.add(10, 9, 2), last = g.add(10, 9, 3);
  g.serve();
  for (int generation = 0; generation < 4; ++generation) {
    g.rings[0].poison = {bad};
    g.settle(0);
    g.rings[0].held.clear();
    g.serve();
  }
  g.settle(0);
  EXPECT_EQ(g.ends[bad], request_end::threw);
  EXPECT_EQ(g.streams[first], g.right(first, 9));
  EXPECT_EQ(g.streams[last], g.right(last, 9));
  EXPECT_LT(g.streams[bad].size(), 9u);
}

// given: one whose logits are not finite / expected: it alone ends
TEST(gateway_machines, end_what_has_no_token) {
  gateway_rig g;
  const auto bad = g.add(10, 9, 1, 2), good = g.add(10, 9, 2);
  g.serve();
  g.settle(0);
  EXPECT_EQ(g.ends[bad], request_end::not_finite);
  EXPECT_EQ(g.streams[good], g.right(good, 9));
  EXPECT_TRUE(g.rings[0].held.empty());
}

// given: a client that goes while passes with its rows are under way / expected: their answers are taken, others go on
TEST(gateway_machines, take_answers_for_who_has_gone) {
  gateway_rig g;
  const auto goes = g.add(6, 20, 1), stays = g.add(6, 20, 2);
  g.serve();
  for (int i = 0; i < 5; ++i)
    g.answer(0);
  g.all.gone(goes, g.now);
  g.settle(0);
  EXPECT_EQ(g.streams[stays], g.right(stays, 20));
  EXPECT_EQ(g.all.counts().broken, 0u);
  EXPECT_THAT(g.ends, ElementsAre(std::pair(stays, request_end::length)));
  EXPECT_TRUE(g.rings[0].held.empty());
  EXPECT_EQ(g.book.size(), 0u);
}

// given: a gateway that stood still for long, and a pipeline that was silent meanwhile, and is / expected: that breaks
// only once it has been silent while the gateway was there
TEST(gateway_machines, blame_nobody_for_their_own_standstill) {
  gateway_rig g;
  g.add(6, 20, 1);
  g.serve();
  g.answer(0);
  g.all.tick(g.now);
  g.all.tick(g.now += 100'000);
  EXPECT_EQ(g.all.phase_of(0), pipeline_phase::ready);
  g.pass_time(pipelines::least_silence_ms);
  EXPECT_EQ(g.all.phase_of(0), pipeline_phase::opening);
}

// given: service that ends with requests in pipelines and in the queue / expected: all are told, none is left
TEST(gateway_machines, close_all_requests) {
  gateway_rig g;
  for (int i = 0; i < 9; ++i)
    g.add(6, 20, 1);
  g.serve();
  g.all.close();
  EXPECT_EQ(g.ends.size(), 9u);
  EXPECT_EQ(g.book.size(), 0u);
  g.settle(0);
  EXPECT_TRUE(g.rings[0].held.empty());
}

/// One drawn course: requests come and go while pipelines break, are drained, lose what they hold, and are routed anew.
class course {
public:
  explicit course(std::uint64_t seed) : draw_(seed) {}

  void run() {
    route();
    for (int i = 0; i < 300; ++i)
      step();
    route();
    for (int i = 0; g_.book.size() > 0; ++i) {
      ASSERT_LT(i, 5'000) << "requests do not come to their ends";
      g_.now += 10;
      answer_or_connect();
      g_.all.tick(g_.now);
    }
    check();
  }

private:
  void step() {
    g_.now += draw_() % 20;
    const auto what = draw_() % 100;
    const auto pipeline = g_.all.count() > 0 ? static_cast<std::uint32_t>(draw_() % g_.all.count()) : 0;
    if (what < 10)
      add();
    else if (what < 12)
      cancel();
    else if (what < 13)
      route();
    else if (g_.all.count() == 0)
      return;
    else if (what < 15)
      lose(pipeline);
    else if (what < 16)
      g_.say(pipeline, pass_frame_kind::drained);
    else if (what < 17)
      g_.pass_time(2'000);
    else
      answer_or_connect();
  }

  void add() {
    const auto tokens = static_cast<std::uint32_t>(1 + draw_() % 30);
    const auto id = g_.add(static_cast<std::uint32_t>(1 + draw_() % 30), tokens, draw_());
    ASSERT_NE(id, 0u);
    tokens_[id] = tokens;
  }

  void cancel() {
    if (tokens_.empty())
      return;
    const auto x = std::next(tokens_.begin(), static_cast<std::ptrdiff_t>(draw_() % tokens_.size()))->first;
    g_.all.gone(x, g_.now);
    cancelled_.insert(x);
  }

  void route() {
    depth_ = static_cast<std::uint32_t>(1 + draw_() % 3);
    g_.route(static_cast<std::uint32_t>(1 + draw_() % 3), depth_, 3);
    for (auto& x : g_.rings)
      if (draw_() % 2 == 0)
        x.held.clear();
  }

  /// A connection ends; perhaps what it held is lost. Answers may come by the next one.
  void lose(std::uint32_t pipeline) {
    if (draw_() % 2 == 0)
      g_.rings[pipeline].answers.clear();
    if (draw_() % 2 == 0)
      g_.rings[pipeline].held.clear();
    g_.all.broke(pipeline, g_.now);
  }

  void answer_or_connect() {
    for (std::uint32_t i = 0; i < g_.all.count(); ++i)
      if (g_.wanted.contains(i) && g_.all.phase_of(i) == pipeline_phase::opening && draw_() % 4 == 0)
        g_.connect(i);
      else if (!g_.rings[i].answers.empty() && g_.all.phase_of(i) != pipeline_phase::opening)
        g_.answer(i);
    if (std::ranges::all_of(std::views::iota(0u, g_.all.count()),
                            [&](auto i) { return g_.all.phase_of(i) == pipeline_phase::drained; }))
      route();
  }

  void check() {
    for (const auto& [id, tokens] : tokens_)
      if (cancelled_.contains(id)) {
        const auto all = g_.right(id, tokens);
        EXPECT_TRUE(std::ranges::equal(g_.streams[id], std::span(all).first(g_.streams[id].size())));
      } else {
        EXPECT_EQ(g_.ends[id], request_end::length);
        EXPECT_EQ(g_.streams[id], g_.right(id, tokens));
      }
    EXPECT_TRUE(g_.book.queue().empty());
    for (std::uint32_t i = 0; i < g_.all.count(); ++i)
      EXPECT_EQ(g_.all.requests_in(i), 0u);
  }

  std::mt19937_64 draw_;
  gateway_rig g_;
  std::uint32_t depth_ = 1;
  std::map<std::uint64_t, std::uint32_t> tokens_;
  std::set<std::uint64_t> cancelled_;
};

TEST(gateway_machines, keep_streams_right_whatever_happens) {
  for (std::uint64_t seed = 1; seed <= 2'000 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    course(seed).run();
  }
}

} // namespace
} // namespace parcae
