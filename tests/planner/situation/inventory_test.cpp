#include "planner/situation/inventory.hpp"

#include <gtest/gtest.h>

#include <random>

namespace parcae {
namespace {

generation g(std::uint64_t n) {
  return {n};
}

version v(std::uint64_t steps, std::uint64_t by) {
  return {steps, {by}};
}

// --- commit_chain

// given: generations 1 (0…5), 2 (nothing committed), 3 (5…9) / expected: exactly the versions (1…5, g1) and (6…9, g3)
TEST(commit_chain, tells_valid_versions) {
  commit_chain chain;
  chain.begin(g(1), 0);
  chain.end(g(1), 5);
  chain.begin(g(2), 5);
  chain.end(g(2), 5);
  chain.begin(g(3), 5);
  EXPECT_EQ(chain.newest(), v(5, 1));
  chain.end(g(3), 9);
  EXPECT_EQ(chain.newest(), v(9, 3));
  for (std::uint64_t by = 0; by <= 4; ++by)
    for (std::uint64_t steps = 0; steps <= 11; ++steps) {
      const bool good =
          (steps == 0 && by == 0) || (by == 1 && steps >= 1 && steps <= 5) || (by == 3 && steps >= 6 && steps <= 9);
      EXPECT_EQ(chain.valid(v(steps, by)), good) << steps << '@' << by;
    }
  EXPECT_EQ(chain.at(0), version{});
  EXPECT_EQ(chain.at(5), v(5, 1));
  EXPECT_EQ(chain.at(6), v(6, 3));
  EXPECT_EQ(chain.at(10), std::nullopt);
}

TEST(commit_chain, of_a_running_generation_is_open) {
  commit_chain chain;
  chain.begin(g(1), 0);
  EXPECT_TRUE(chain.valid(v(1'000'000, 1)));
  EXPECT_EQ(chain.newest(), version{});
  EXPECT_FALSE(chain.valid(v(no_step, 1)));
}

// given: chain 1 (0…5), 2 (5…9) / cut at / expected newest and validity of (5, 1), (4, 1), (6, 2)
TEST(commit_chain, cut_voids_what_is_above) {
  struct {
    std::uint64_t cut;
    version newest;
    bool five, four, six;
  } table[] = {
      {9, v(9, 2), true, true, true},   {6, v(6, 2), true, true, true},    {5, v(5, 1), true, true, false},
      {4, v(4, 1), false, true, false}, {0, v(0, 0), false, false, false}, {20, v(9, 2), true, true, true},
  };
  for (const auto& x : table) {
    commit_chain chain;
    chain.begin(g(1), 0);
    chain.end(g(1), 5);
    chain.begin(g(2), 5);
    chain.end(g(2), 9);
    chain.cut(x.cut);
    EXPECT_EQ(chain.newest(), x.newest) << x.cut;
    EXPECT_EQ(chain.valid(v(5, 1)), x.five) << x.cut;
    EXPECT_EQ(chain.valid(v(4, 1)), x.four) << x.cut;
    EXPECT_EQ(chain.valid(v(6, 2)), x.six) << x.cut;
    // The next generation continues from the cut, and its versions do not revive those of generation 2.
    chain.begin(g(3), x.newest.steps);
    chain.end(g(3), x.newest.steps + 3);
    EXPECT_EQ(chain.newest(), v(x.newest.steps + 3, 3));
    EXPECT_FALSE(chain.valid(v(x.newest.steps + 1, 2)));
  }
}

TEST(commit_chain, refuses_what_makes_no_sense) {
  commit_chain chain;
  EXPECT_THROW(chain.begin(g(1), 1), std::logic_error);
  chain.begin(g(1), 0);
  EXPECT_THROW(chain.begin(g(2), 0), std::logic_error);
  EXPECT_THROW(chain.end(g(2), 3), std::logic_error);
  chain.end(g(1), 3);
  EXPECT_NO_THROW(chain.end(g(1), 3));
  EXPECT_THROW(chain.end(g(1), 4), std::logic_error);
  EXPECT_THROW(chain.begin(g(1), 3), std::logic_error);
  EXPECT_THROW(chain.begin(g(2), 2), std::logic_error);
}

// --- decide_open_step

/// Two pipelines of two stages, two layers each; generation 7 started from version 10 of generation 5.
struct decision : testing::Test {
  placement grid{2, 2, {0, 2, 4}, {}};
  std::vector<rank_report> reports;
  std::vector<kept> keepers;

  static commit_result result(std::uint64_t step) {
    commit_result x;
    x.step = step;
    x.loss = static_cast<double>(step);
    return x;
  }

  // A rank at version `steps`; `complete` and `known` are steps, no_step for none.
  void rank(std::uint32_t number, std::uint64_t steps, std::uint64_t complete, std::uint64_t known) {
    aborted x;
    x.current = g(7);
    x.at = v(steps, steps == 10 ? 5 : 7);
    x.complete = complete;
    if (known != no_step)
      x.result = result(known);
    for (auto layer = grid.first_layer[number % 2]; layer < grid.first_layer[number % 2 + 1]; ++layer)
      x.held.push_back({layer, x.at});
    reports.push_back({number, x});
  }

  void keeper(std::vector<std::uint32_t> layers, std::uint64_t steps, std::uint64_t by, bool with_result = true) {
    kept x;
    for (auto layer : layers)
      x.held.push_back({layer, v(steps, by)});
    if (with_result)
      x.results = {result(steps - 1)};
    keepers.push_back(x);
  }

  step_decision decide() const { return decide_open_step(grid, g(7), 10, reports, keepers); }

  void expect_commit(std::uint64_t step) const {
    const auto d = decide();
    EXPECT_EQ(d.result, result(step)) << d.reason;
    EXPECT_EQ(d.last, step + 1) << d.reason;
  }

  void expect_abort(std::uint64_t last) const {
    const auto d = decide();
    EXPECT_EQ(d.result.step, no_step) << d.reason;
    EXPECT_EQ(d.last, last) << d.reason;
  }
};

TEST_F(decision, nobody_exchanged) {
  for (std::uint32_t r = 0; r < 4; ++r)
    rank(r, 10, r % 2 ? 10 : no_step, r % 2 ? no_step : 9); // results of step 9 belong to generation 5
  expect_abort(10);
}

TEST_F(decision, nobody_alive_and_nothing_kept) {
  expect_abort(10);
}

TEST_F(decision, everyone_exchanged_nobody_applied) {
  for (std::uint32_t r = 0; r < 4; ++r)
    rank(r, 10, 10, 10);
  expect_commit(10);
}

TEST_F(decision, result_known_to_one_that_has_not_applied) {
  rank(0, 12, 12, 11);
  rank(1, 12, 12, 12);
  rank(2, 12, 12, 11);
  rank(3, 12, 12, 11);
  expect_commit(12);
}

TEST_F(decision, one_applied_the_others_have_gradients) {
  rank(0, 13, no_step, 12);
  rank(1, 12, 12, 11);
  rank(3, 12, 12, 11);
  expect_commit(12);
}

TEST_F(decision, everyone_applied_is_committed_again) {
  for (std::uint32_t r = 0; r < 4; ++r)
    rank(r, 13, r == 1 ? 13 : no_step, 12);
  expect_commit(12); // harmless: a rank applies only at version 12
}

// Stage 0 applied, stage 1 died before it heard.
TEST_F(decision, stage_lost_after_the_other_applied) {
  rank(0, 13, no_step, 12);
  rank(2, 13, no_step, 12);
  expect_abort(12);
}

TEST_F(decision, stage_lost_but_a_replica_has_gradients) {
  rank(0, 13, no_step, 12);
  rank(3, 12, 12, 11);
  expect_commit(12);
}

TEST_F(decision, survivor_of_a_stage_without_gradients) {
  rank(0, 13, no_step, 12);
  rank(3, 12, no_step, 11);
  expect_abort(12);
}

TEST_F(decision, lost_stage_is_with_keepers_at_the_next_version) {
  rank(0, 13, no_step, 12);
  rank(2, 12, 12, 11);
  keeper({2}, 13, 7, false);
  keeper({3}, 13, 7, false);
  expect_commit(12);
}

TEST_F(decision, lost_stage_is_with_keepers_in_part) {
  rank(0, 13, no_step, 12);
  keeper({2}, 13, 7);
  expect_abort(12);
}

// All had stopped at 13, and rank 0 had got the other stage for generation 8 when the manager, rank 1 and rank 3 died.
TEST_F(decision, lost_stage_was_moved_to_a_rank_of_the_other) {
  rank(0, 13, no_step, 12);
  reports[0].said.held.push_back({2, v(13, 7)});
  expect_abort(12);
  reports[0].said.held.push_back({3, v(13, 7)});
  expect_commit(12);
}

// A keeper's version of another generation says nothing about this one.
TEST_F(decision, void_version_of_a_keeper) {
  rank(0, 12, 12, 11);
  rank(1, 12, 12, 11);
  keeper({0, 1, 2, 3}, 13, 4);
  expect_commit(11);
}

// The only ranks that knew the result died; a keeper got part of the snapshot of that version, and with it the result.
TEST_F(decision, result_known_to_a_keeper_only) {
  rank(1, 12, 12, 11);
  rank(2, 12, 12, 11);
  keeper({0}, 13, 7);
  expect_commit(12);
}

TEST_F(decision, version_reached_without_its_result) {
  rank(1, 12, 12, 11);
  rank(2, 12, 12, 11);
  keeper({0}, 13, 7, false);
  expect_abort(12);
  keeper({0, 1, 2, 3}, 13, 7, false);
  const auto d = decide();
  EXPECT_EQ(d.last, 13u); // all of it is held, though ranks at 12 cannot apply
  EXPECT_EQ(d.result.step, no_step);
}

TEST_F(decision, all_workers_lost) {
  keeper({0, 1, 2, 3}, 20, 7);
  expect_commit(19);
  keeper({0, 2}, 30, 7);
  expect_abort(29); // newest_complete then finds 20
}

// An apply that threw voids the rank's shards, but not what it heard.
TEST_F(decision, rank_with_void_shards_still_tells_the_result) {
  rank(0, 12, 12, 12);
  reports[0].said.held.clear();
  rank(1, 12, 12, 11);
  expect_abort(12);
  rank(2, 12, 12, 11);
  expect_commit(12);
}

// A result whose gradients are gone was left by a generation that was aborted at the same step.
TEST_F(decision, stale_result) {
  for (std::uint32_t r = 0; r < 4; ++r)
    rank(r, 10, no_step, 10);
  expect_abort(10);
}

// Property: whatever subset of ranks survives at whatever point of a correct run, carrying out the decision leaves only
// versions that are last or older, commits iff every stage can get there, and never loses more than one step.
TEST(decide_open_step, property) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 20'000; ++round) {
    placement grid;
    grid.width = 1 + random() % 3;
    grid.depth = 1 + random() % 3;
    for (std::uint32_t s = 0; s <= grid.depth; ++s)
      grid.first_layer.push_back(2 * s);
    const std::uint64_t base = random() % 5, step = base + random() % 3;
    // All are at `step`. Either some have not completed gradients, or all have and some have the result of `step`.
    const bool exchanged = random() % 2;
    std::vector<rank_report> reports;
    bool known = false;
    for (std::uint32_t r = 0; r < grid.ranks(); ++r) {
      const bool applied = exchanged && random() % 3 == 0, heard = applied || (exchanged && random() % 3 == 0);
      rank_report x{r, {}};
      x.said.at = {step + applied, {applied || step > base ? 9u : (base == 0 ? 0u : 8u)}};
      x.said.complete = applied ? no_step : (exchanged || random() % 2 ? step : no_step);
      if (heard)
        x.said.result.step = step;
      else if (step > 0)
        x.said.result.step = step - 1;
      for (auto layer = 2 * grid.stage_of(r); layer < 2 * grid.stage_of(r) + 2; ++layer)
        x.said.held.push_back({layer, x.said.at});
      if (random() % 3 == 0)
        continue; // lost
      known = known || heard;
      reports.push_back(x);
    }
    std::vector<bool> alive(grid.depth, false);
    for (const auto& x : reports)
      alive[grid.stage_of(x.rank)] = true;
    const bool all_stages = std::find(alive.begin(), alive.end(), false) == alive.end();
    std::shuffle(reports.begin(), reports.end(), random);
    const auto d = decide_open_step(grid, {9}, base, reports, {});
    if (reports.empty())
      EXPECT_EQ(d.last, base);
    else if (known && all_stages)
      EXPECT_TRUE(d.last == step + 1 && d.result.step == step) << d.reason;
    else if (known || all_stages)
      EXPECT_EQ(d.last, step) << d.reason;
    else
      EXPECT_TRUE(d.last <= step && d.last + 1 >= step) << d.reason;
    EXPECT_GE(d.last, base);
  }
}

// --- newest_complete

holder have(const std::string& name, inventory held) {
  return {{name, {1}, 0}, false, std::move(held)};
}

TEST(newest_complete, is_the_newest_that_all_layers_have) {
  commit_chain chain;
  chain.begin(g(1), 0);
  chain.end(g(1), 8);
  chain.begin(g(2), 8);
  chain.end(g(2), 12);
  const auto a = have("a", {{0, v(12, 2)}, {1, v(12, 2)}});
  const auto b = have("b", {{2, v(12, 2)}});
  const auto old = have("k", {{0, v(8, 1)}, {0, v(12, 2)}, {1, v(8, 1)}, {2, v(8, 1)}});
  const auto beyond = have("z", {{0, v(13, 2)}, {1, v(13, 2)}, {2, v(13, 2)}});
  const auto other = have("o", {{0, v(9, 1)}, {1, v(9, 1)}, {2, v(9, 1)}});
  EXPECT_EQ(newest_complete(chain, 3, {a, b}), v(12, 2));
  EXPECT_EQ(newest_complete(chain, 3, {a, old}), v(8, 1));
  EXPECT_EQ(newest_complete(chain, 3, {b, old}), v(8, 1));
  EXPECT_EQ(newest_complete(chain, 3, {a, beyond, other}), version{});
  EXPECT_EQ(newest_complete(chain, 3, {a}), version{});
  EXPECT_EQ(newest_complete(chain, 3, {}), version{});
}

} // namespace
} // namespace parcae
