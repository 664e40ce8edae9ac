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

/// A rank's number and version, and the steps whose gradients it has complete and whose result it knows.
struct heard_rank {
  std::uint32_t number;
  std::uint64_t steps, complete, known;
};

struct heard_keeper {
  std::vector<std::uint32_t> layers;
  std::uint64_t steps, by;
  bool with_result = true;
};

struct decision_case {
  std::string name;
  std::vector<heard_rank> ranks;
  std::vector<heard_keeper> keepers;
  bool commits;
  std::uint64_t at; ///< the step that is committed, or where the generation ends
};

constexpr auto none = no_step;
constexpr bool commit = true, abort_it = false;
const decision_case decisions[] = {
    // Results of step 9 belong to generation 5.
    {"nobody_exchanged", {{0, 10, none, 9}, {1, 10, 10, none}, {2, 10, none, 9}, {3, 10, 10, none}}, {}, abort_it, 10},
    {"nobody_alive_and_nothing_kept", {}, {}, abort_it, 10},
    {"everyone_exchanged_nobody_applied",
     {{0, 10, 10, 10}, {1, 10, 10, 10}, {2, 10, 10, 10}, {3, 10, 10, 10}},
     {},
     commit,
     10},
    {"result_known_to_one_that_has_not_applied",
     {{0, 12, 12, 11}, {1, 12, 12, 12}, {2, 12, 12, 11}, {3, 12, 12, 11}},
     {},
     commit,
     12},
    {"one_applied_the_others_have_gradients", {{0, 13, none, 12}, {1, 12, 12, 11}, {3, 12, 12, 11}}, {}, commit, 12},
    // Harmless: a rank applies only at version 12.
    {"everyone_applied_is_committed_again",
     {{0, 13, none, 12}, {1, 13, 13, 12}, {2, 13, none, 12}, {3, 13, none, 12}},
     {},
     commit,
     12},
    // Stage 0 applied, stage 1 died before it heard.
    {"stage_lost_after_the_other_applied", {{0, 13, none, 12}, {2, 13, none, 12}}, {}, abort_it, 12},
    {"stage_lost_but_a_replica_has_gradients", {{0, 13, none, 12}, {3, 12, 12, 11}}, {}, commit, 12},
    {"survivor_of_a_stage_without_gradients", {{0, 13, none, 12}, {3, 12, none, 11}}, {}, abort_it, 12},
    {"lost_stage_is_with_keepers_at_the_next_version",
     {{0, 13, none, 12}, {2, 12, 12, 11}},
     {{{2}, 13, 7, false}, {{3}, 13, 7, false}},
     commit,
     12},
    {"lost_stage_is_with_keepers_in_part", {{0, 13, none, 12}}, {{{2}, 13, 7}}, abort_it, 12},
    // A keeper's version of another generation says nothing about this one.
    {"void_version_of_a_keeper", {{0, 12, 12, 11}, {1, 12, 12, 11}}, {{{0, 1, 2, 3}, 13, 4}}, commit, 11},
    // The only ranks that knew the result died; a keeper got part of the snapshot of that version, and with it the
    // result.
    {"result_known_to_a_keeper_only", {{1, 12, 12, 11}, {2, 12, 12, 11}}, {{{0}, 13, 7}}, commit, 12},
    {"version_reached_without_its_result", {{1, 12, 12, 11}, {2, 12, 12, 11}}, {{{0}, 13, 7, false}}, abort_it, 12},
    // All of it is held, though ranks at 12 cannot apply.
    {"version_reached_and_held_without_its_result",
     {{1, 12, 12, 11}, {2, 12, 12, 11}},
     {{{0}, 13, 7, false}, {{0, 1, 2, 3}, 13, 7, false}},
     abort_it,
     13},
    {"all_workers_lost", {}, {{{0, 1, 2, 3}, 20, 7}}, commit, 19},
    // newest_complete then finds 20.
    {"all_workers_lost_in_a_snapshot", {}, {{{0, 1, 2, 3}, 20, 7}, {{0, 2}, 30, 7}}, abort_it, 29},
    // A result whose gradients are gone was left by a generation that was aborted at the same step.
    {"stale_result", {{0, 10, none, 10}, {1, 10, none, 10}, {2, 10, none, 10}, {3, 10, none, 10}}, {}, abort_it, 10},
};

class each_decision : public decision, public testing::WithParamInterface<decision_case> {};

TEST_P(each_decision, is_right) {
  for (const auto& x : GetParam().ranks)
    rank(x.number, x.steps, x.complete, x.known);
  for (const auto& x : GetParam().keepers)
    keeper(x.layers, x.steps, x.by, x.with_result);
  GetParam().commits ? expect_commit(GetParam().at) : expect_abort(GetParam().at);
}

INSTANTIATE_TEST_SUITE_P(of_a_step, each_decision, testing::ValuesIn(decisions),
                         [](const auto& x) { return x.param.name; });

// All had stopped at 13, and rank 0 had got the other stage for generation 8 when the manager, rank 1 and rank 3 died.
TEST_F(decision, lost_stage_was_moved_to_a_rank_of_the_other) {
  rank(0, 13, no_step, 12);
  reports[0].said.held.push_back({2, v(13, 7)});
  expect_abort(12);
  reports[0].said.held.push_back({3, v(13, 7)});
  expect_commit(12);
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
