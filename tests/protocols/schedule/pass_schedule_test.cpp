// Which rows go next: by hand, and what holds for any requests.

#include "protocols/schedule/pass_schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

namespace parcae {
namespace {

using testing::ElementsAre;

// given: prompts of 5 and 3, chunks of 2 / expected: the first is filled first, what decodes goes before chunks, a
// chunk may be of two requests, the token of a prompt comes with its last row
TEST(pass_schedule, one_stage_by_hand) {
  pass_schedule x({1, 4, 2, 192, UINT64_MAX});
  x.enter({1, 5, 0, 7});
  x.enter({2, 3, 0, 4});
  const auto pass = [&] {
    const auto* rows = x.next();
    EXPECT_TRUE(rows);
    EXPECT_FALSE(x.next()); // one stage, one pass
    const auto copy = rows ? *rows : std::vector<pass_rows>{};
    x.done();
    return copy;
  };
  EXPECT_EQ(x.rows_left(), 6u + 3u);
  EXPECT_THAT(pass(), ElementsAre(pass_rows{1, 0, 2, false}));
  EXPECT_THAT(pass(), ElementsAre(pass_rows{1, 2, 2, false}));
  EXPECT_THAT(pass(), ElementsAre(pass_rows{1, 4, 1, true}, pass_rows{2, 0, 2, false}));
  EXPECT_THAT(pass(), ElementsAre(pass_rows{1, 5, 1, true}, pass_rows{2, 2, 1, true}));
  EXPECT_TRUE(x.requests().empty()); // 7 and 4 positions are known
  EXPECT_FALSE(x.next());
}

// given: six that decode, three stages / expected: two in each pass, none twice; a chunk follows its own request's
TEST(pass_schedule, stages_work_side_by_side) {
  pass_schedule x({3, 8, 4, 192, UINT64_MAX});
  for (std::uint64_t id = 1; id <= 6; ++id)
    x.enter({id, 10, 9, 20});
  EXPECT_THAT(*x.next(), ElementsAre(pass_rows{1, 9, 1, true}, pass_rows{2, 9, 1, true}));
  EXPECT_THAT(*x.next(), ElementsAre(pass_rows{3, 9, 1, true}, pass_rows{4, 9, 1, true}));
  x.enter({7, 12, 0, 20});
  EXPECT_THAT(*x.next(), ElementsAre(pass_rows{5, 9, 1, true}, pass_rows{6, 9, 1, true}, pass_rows{7, 0, 4, false}));
  EXPECT_FALSE(x.next());
  EXPECT_EQ(x.done().size(), 2u);
  EXPECT_THAT(*x.next(), ElementsAre(pass_rows{1, 10, 1, true}, pass_rows{2, 10, 1, true}, pass_rows{7, 4, 4, false}));
  EXPECT_EQ(x.under_way(), 3u);
}

// given: one that decodes, a replay of 12 of 15 known positions and a prompt of 3, chunks of 6, passes with replays of
// up to 4 rows / expected: three rows of the replay beside the one, and none of the prompt, which came later; when
// nothing decodes a whole chunk; what is behind the replay is none any more
TEST(pass_schedule, replays_do_not_hold_up_who_decodes) {
  pass_schedule x({1, 8, 6, 192, UINT64_MAX});
  const auto pass = [&] {
    x.replay_within(4);
    const auto copy = *x.next();
    x.done();
    return copy;
  };
  x.enter({1, 10, 9, 20});
  x.enter({.id = 2, .known = 15, .sent = 0, .most = 20, .was = 12});
  x.enter({3, 3, 0, 4});
  EXPECT_EQ(x.decoding(), 1u);
  EXPECT_THAT(pass(), ElementsAre(pass_rows{1, 9, 1, true}, pass_rows{2, 0, 3, false}));
  EXPECT_THAT(pass(), ElementsAre(pass_rows{1, 10, 1, true}, pass_rows{2, 3, 3, false}));
  x.leave(1);
  EXPECT_THAT(pass(), ElementsAre(pass_rows{2, 6, 6, false}));
  x.enter({4, 10, 9, 20});
  x.replay_within(1);
  EXPECT_THAT(*x.next(), ElementsAre(pass_rows{4, 9, 1, true}, pass_rows{2, 12, 3, true}, pass_rows{3, 0, 3, true}));
}

// given: one that decodes, two stages, and a replay / expected: a pass with no row that decodes has few of the
// replay, too, as others wait behind it
TEST(pass_schedule, replays_do_not_hold_up_who_waits_for_a_stage) {
  pass_schedule x({2, 8, 6, 192, UINT64_MAX});
  x.replay_within(3);
  x.enter({1, 10, 9, 20});
  x.enter({.id = 2, .known = 15, .sent = 0, .most = 20, .was = 12});
  EXPECT_THAT(*x.next(), ElementsAre(pass_rows{1, 9, 1, true}, pass_rows{2, 0, 2, false}));
  EXPECT_THAT(*x.next(), ElementsAre(pass_rows{2, 2, 3, false}));
}

// given: four that decode and a prompt of 100, passes of 4, 16, 64 and 96 / expected: no pass of 96 for four rows more
// than 64, but one of 64 for 44, and of 16 for 14; where nothing decodes whole chunks
TEST(pass_schedule, rows_wait_that_would_be_padding_most_of_all) {
  pass_schedule x({1, 8, 64, 192, UINT64_MAX, {4, 16, 64, 96}});
  for (std::uint64_t id = 1; id <= 4; ++id)
    x.enter({id, 10, 9, 20});
  const auto rows_of_prompt = [&] {
    const auto rows = x.next()->back();
    x.done();
    return rows;
  };
  x.enter({5, 100, 0, 101});
  EXPECT_EQ(rows_of_prompt(), (pass_rows{5, 0, 60, false}));
  EXPECT_EQ(rows_of_prompt(), (pass_rows{5, 60, 40, true}));
  x.enter({6, 10, 0, 11});
  EXPECT_EQ(rows_of_prompt(), (pass_rows{6, 0, 10, true}));
  for (std::uint64_t id = 1; id <= 4; ++id)
    x.leave(id);
  x.enter({7, 70, 0, 71});
  EXPECT_EQ(rows_of_prompt(), (pass_rows{7, 0, 64, false}));
  EXPECT_EQ(rows_of_prompt(), (pass_rows{7, 64, 6, true}));
}

// given: one that decodes and one that does not, of which one alone is to go / expected: its rows until it leaves, then
// those of all
TEST(pass_schedule, one_may_go_alone) {
  pass_schedule x({2, 8, 4, 192, UINT64_MAX});
  x.enter({1, 10, 9, 20});
  x.enter({2, 6, 0, 8});
  x.only(2);
  EXPECT_THAT(*x.next(), ElementsAre(pass_rows{2, 0, 4, false}));
  EXPECT_THAT(*x.next(), ElementsAre(pass_rows{2, 4, 2, true}));
  x.done();
  EXPECT_FALSE(x.next());
  x.done();
  x.leave(2);
  EXPECT_THAT(*x.next(), ElementsAre(pass_rows{1, 9, 1, true}));
  x.only({});
  x.enter({3, 6, 0, 7});
  x.only(3);
  EXPECT_THAT(*x.next(), ElementsAre(pass_rows{3, 0, 4, false}));
  x.done();
  EXPECT_THAT(*x.next(), ElementsAre(pass_rows{3, 4, 2, true}));
  x.done();
  x.done(); // it has all tokens
  EXPECT_THAT(*x.next(), ElementsAre(pass_rows{1, 10, 1, true}));
}

TEST(pass_schedule, room_is_for_the_whole_request) {
  pass_schedule x({1, 2, 64, 192, 100});
  EXPECT_FALSE(x.has_room(101));
  EXPECT_TRUE(x.has_room(60));
  x.enter({1, 10, 0, 60});
  EXPECT_FALSE(x.has_room(41));
  EXPECT_TRUE(x.has_room(40));
  x.enter({2, 10, 0, 1'00 - 60});
  EXPECT_FALSE(x.has_room(1));
  x.leave(1);
  EXPECT_TRUE(x.has_room(60));
}

// given: a request that leaves while its rows are under way, and enters again / expected: they bring it no token
TEST(pass_schedule, rows_of_one_that_left_count_no_more) {
  pass_schedule x({2, 2, 64, 192, UINT64_MAX});
  x.enter({1, 3, 2, 9});
  x.enter({2, 3, 2, 9});
  x.next();
  x.leave(1);
  x.enter({1, 3, 0, 9});
  x.next();
  EXPECT_TRUE(x.done().empty());
  EXPECT_EQ(x.done().size(), 2u);
}

TEST(pass_schedule, pipeline_with_the_fewest_requests) {
  pass_schedule a({1, 2, 64, 192, UINT64_MAX}), b = a, c({1, 2, 64, 192, 50});
  const std::vector<const pass_schedule*> all{&a, &b, &c};
  EXPECT_EQ(pipeline_for(all, 20), 0u);
  a.enter({1, 5, 0, 20});
  EXPECT_EQ(pipeline_for(all, 20), 1u);
  b.enter({2, 5, 0, 19});
  EXPECT_EQ(pipeline_for(all, 20), 2u);
  EXPECT_EQ(pipeline_for(all, 60), 1u); // no room in the third; the second has fewer rows left
  a.enter({3, 5, 0, 20});
  b.enter({4, 5, 0, 20});
  EXPECT_EQ(pipeline_for(all, 60), std::nullopt);
}

// Follows what a schedule sends, as stages would compute it.
struct follower {
  struct seen {
    std::uint32_t computed = 0, known = 0, most = 0;
  };
  std::map<std::uint64_t, seen> requests;

  void pass(const std::vector<pass_rows>& rows, const pass_limits& limits) {
    std::uint32_t decoding = 0, chunk = 0;
    for (const auto& x : rows) {
      auto& request = requests.at(x.request);
      ASSERT_EQ(x.first, request.computed) << "in order, each once";
      ASSERT_GT(x.count, 0u);
      request.computed += x.count;
      ASSERT_LE(request.computed, request.known);
      ASSERT_EQ(x.yields, request.computed == request.known);
      (x.count == 1 && x.yields ? decoding : chunk) += x.count;
    }
    ASSERT_LE(decoding + chunk, limits.rows);
    ASSERT_LE(chunk, limits.chunk);
  }
};

// given: requests of all lengths that come, and leave, at any time / expected: each position is computed once and in
// order, each token comes once, limits hold, nobody waits for ever
TEST(pass_schedule, any_requests) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t n) { return static_cast<std::uint32_t>(random() % n); };
    pass_limits limits{1 + below(5), 1 + below(9), 1 + below(20), 10 + below(60), 200 + below(300)};
    for (std::uint32_t size = 0; seed % 2 == 0 && size < limits.rows;)
      limits.sizes.push_back(size += 1 + below(16));
    pass_schedule x(limits);
    follower all;
    std::uint64_t next_id = 1, left = 40, held = 0;
    for (int turn = 0; left > 0 || !x.requests().empty(); ++turn) {
      ASSERT_LT(turn, 100'000) << "seed " << seed;
      const auto known = 1 + below(60), most = known + 1 + below(60);
      if (left > 0 && below(4) == 0 && x.has_room(most)) {
        const auto cached = below(known);
        x.enter({next_id, known, cached, most, below(known)});
        all.requests[next_id++] = {cached, known, most};
        held += most;
        --left;
      } else if (x.under_way() > 0 && below(2) == 0) {
        for (const auto& y : x.done()) {
          auto& request = all.requests.at(y.id);
          ASSERT_EQ(y.known, ++request.known);
          held -= request.known == request.most ? request.most : 0;
        }
      } else if (below(50) == 0 && !x.requests().empty()) {
        const auto id = x.requests()[below(x.requests().size())].id;
        held -= all.requests.at(id).most;
        x.leave(id);
      } else if (x.replay_within(x.decoding() + 1 + below(9)); const auto* rows = x.next()) {
        all.pass(*rows, limits);
        if (HasFatalFailure())
          FAIL() << "seed " << seed;
      }
      ASSERT_LE(x.under_way(), limits.depth);
      ASSERT_LE(x.requests().size(), limits.requests);
      ASSERT_LE(held, limits.positions);
    }
  }
}

} // namespace
} // namespace parcae
