// Who goes on with whose requests, and what moves for it.

#include "planner/serving/cache_moves.hpp"
#include "tests/planner/serving/small_service.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <numeric>
#include <random>

namespace parcae::serving {
namespace {

using testing::ElementsAre;

// given: 12 layers, two pipelines of two stages; slot 3 goes, two pipelines of one / expected: each goes on where half
// of its layers are
TEST(cache_moves, by_hand) {
  const std::vector<cached_pipeline> old{{even_stages(12, {0, 1}), 100}, {even_stages(12, {2, 3}), 50}};
  const auto plan = plan_caches(old, {even_stages(12, {2}), even_stages(12, {0})});
  EXPECT_THAT(plan.heirs, ElementsAre(1, 0));
  EXPECT_THAT(plan.moves, ElementsAre(cache_move{0, 6, 12, 1, 0, 100}, cache_move{1, 6, 12, 3, 2, 50}));
  EXPECT_EQ(plan.kept, 6u * 150);
  EXPECT_EQ(plan.moved, 6u * 150);
  EXPECT_DOUBLE_EQ(plan.transfer_ms(10, 100), 60); // slot 1 sends 600 positions' layers of 10 bytes
}

TEST(cache_moves, fewer_and_more_pipelines) {
  const std::vector<cached_pipeline> old{
      {even_stages(4, {0}), 10}, {even_stages(4, {1}), 30}, {even_stages(4, {2}), 0}, {even_stages(4, {3}), 20}};
  // Nothing stays: those with most positions find an heir; who has none needs none.
  EXPECT_THAT(plan_caches(old, {even_stages(4, {8}), even_stages(4, {9})}).heirs,
              ElementsAre(std::nullopt, 0, std::nullopt, 1));
  const auto more = plan_caches(old, {even_stages(4, {9}), even_stages(4, {8}), even_stages(4, {3}),
                                      even_stages(4, {1}), even_stages(4, {0}), even_stages(4, {2})});
  EXPECT_THAT(more.heirs, ElementsAre(4, 3, std::nullopt, 2));
  EXPECT_TRUE(more.moves.empty());
  EXPECT_THAT(plan_caches({}, {even_stages(4, {1})}).heirs, ElementsAre());
  EXPECT_THAT(plan_caches(old, {}).heirs, ElementsAre(std::nullopt, std::nullopt, std::nullopt, std::nullopt));
}

// given: three pipelines of two stages become two, of which the first has a slot of each of the others / expected: all
// have heirs, who has nothing to keep where there is least; each layer of each moves or stays, once
TEST(cache_moves, several_have_the_same_heir) {
  const std::vector<cached_pipeline> old{{even_stages(4, {0, 1}), 10},
                                         {even_stages(4, {2, 3}), 25},
                                         {even_stages(4, {4, 5}), 20},
                                         {even_stages(4, {6, 7}), 5},
                                         {even_stages(4, {8, 9}), 0}};
  const auto plan = plan_all_caches(old, {even_stages(4, {4, 1}), even_stages(4, {2, 3})});
  EXPECT_THAT(plan.heirs, ElementsAre(0, 1, 0, 1, std::nullopt));
  EXPECT_EQ(plan.kept, 2u * 10 + 4u * 25 + 2u * 20);
  EXPECT_EQ(plan.moved, 2u * 10 + 2u * 20 + 4u * 5);
  EXPECT_DOUBLE_EQ(plan.computing_ms(0.5), 15); // of 0 and of 2, in the first
  EXPECT_THAT(plan_all_caches(old, {}).heirs, testing::Each(std::nullopt));
}

TEST(cache_moves, uneven_stages) {
  const auto stages = even_stages(14, {5, 6, 7, 8}).stages;
  EXPECT_EQ(stages[0].last_layer, 4u);
  EXPECT_EQ(stages[1].last_layer, 8u);
  EXPECT_EQ(stages[2].last_layer, 11u);
  EXPECT_EQ(stages[3].last_layer, 14u);
  // 14 layers in four, then in three: as many moves as the boundaries allow.
  const auto plan = plan_caches({{even_stages(14, {0, 1, 2, 3}), 7}}, {even_stages(14, {0, 1, 2})});
  EXPECT_THAT(plan.moves,
              ElementsAre(cache_move{0, 4, 5, 1, 0, 7}, cache_move{0, 8, 10, 2, 1, 7}, cache_move{0, 11, 14, 3, 2, 7}));
}

// given: up to five old and new pipelines in drawn slots / expected: no other assignment keeps more; who has nothing to
// keep has an heir only if nobody with more positions has none; every layer of each heir stays or moves, once
TEST(cache_moves, best_of_all_assignments) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    std::mt19937_64 random(seed);
    const std::uint32_t layers = 4 + random() % 9;
    const auto pipelines = [&](std::size_t count) {
      std::vector<pipeline_places> result;
      std::vector<std::uint64_t> slots(24);
      std::iota(slots.begin(), slots.end(), 0);
      std::ranges::shuffle(slots, random);
      const std::size_t depth = 1 + random() % 4;
      for (std::size_t i = 0; i < count; ++i)
        result.push_back(even_stages(layers, {slots.begin() + static_cast<std::ptrdiff_t>(i * depth),
                                              slots.begin() + static_cast<std::ptrdiff_t>((i + 1) * depth)}));
      return result;
    };
    std::vector<cached_pipeline> old;
    for (auto& x : pipelines(1 + random() % 5))
      old.push_back({std::move(x), random() % 4});
    const auto now = pipelines(1 + random() % 5);
    const auto plan = plan_caches(old, now);
    std::uint64_t all = 0;
    std::vector<bool> taken(now.size());
    for (std::size_t i = 0; i < old.size(); ++i)
      if (plan.heirs[i]) {
        all += old[i].positions * layers;
        ASSERT_FALSE(taken[*plan.heirs[i]]);
        taken[*plan.heirs[i]] = true;
      }
    EXPECT_EQ(plan.kept + plan.moved, all);
    // All assignments: pipelines beyond what there is are none.
    std::vector<std::size_t> order(std::max(old.size(), now.size()));
    std::iota(order.begin(), order.end(), 0);
    std::uint64_t best = 0;
    do {
      std::uint64_t kept = 0;
      for (std::size_t i = 0; i < old.size(); ++i)
        if (order[i] < now.size())
          kept += plan_caches({old[i]}, {now[order[i]]}).kept;
      best = std::max(best, kept);
    } while (std::ranges::next_permutation(order).found);
    EXPECT_EQ(plan.kept, best) << "seed " << seed;
    std::uint64_t without = 0;
    for (std::size_t i = 0; i < old.size(); ++i)
      without = std::max(without, plan.heirs[i] ? 0 : old[i].positions);
    for (std::size_t i = 0; i < old.size(); ++i)
      if (plan.heirs[i] && plan_caches({old[i]}, {now[*plan.heirs[i]]}).kept == 0) {
        EXPECT_GE(old[i].positions, without) << "seed " << seed;
      }
    EXPECT_TRUE(without == 0 || std::ranges::find(taken, false) == taken.end());
  }
}

// given: 1,000 slots in pipelines that become others / expected: in less than 100 ms
TEST(cache_moves, a_thousand_slots_in_time) {
  if (!at_full_speed)
    GTEST_SKIP() << "a sanitizer takes the time, or nothing is optimised";
  for (const auto& [before, after] : {std::pair{4, 3}, std::pair{1, 1}, std::pair{3, 8}}) {
    std::mt19937_64 random(1);
    std::vector<std::uint64_t> slots(1000);
    std::iota(slots.begin(), slots.end(), 0);
    const auto pipelines = [&](int depth) {
      std::vector<pipeline_places> result;
      for (auto x = slots.begin(); slots.end() - x >= depth; x += depth)
        result.push_back(even_stages(48, {x, x + depth}));
      return result;
    };
    std::vector<cached_pipeline> old;
    for (auto& x : pipelines(before))
      old.push_back({std::move(x), 1 + random() % 5000});
    if (before == after)
      std::ranges::shuffle(slots, random);
    const auto now = pipelines(after);
    const auto begin = std::clock();
    const auto plan = plan_caches(old, now);
    EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC / 10) << before;
    const auto heirs = std::ranges::count_if(plan.heirs, [](const auto& x) { return x.has_value(); });
    EXPECT_EQ(heirs, std::min(std::ssize(old), std::ssize(now)));
  }
}

} // namespace
} // namespace parcae::serving
