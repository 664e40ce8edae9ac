// The assignment of candidates to stages against LEMON's.

#include "planner/situation/stage_assignment.hpp"
#include "tests/planner/situation/least_cost.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace parcae {
namespace {

// given: classes of candidates that are alike, with costs that are all different or often equal, more candidates than
// places or just as many / expected: each stage is full; the sum of all costs is that of the best assignment of single
// candidates to single places, all three components
TEST(stage_assignment, costs_as_little_as_can_be) {
  std::mt19937_64 random(7);
  const auto draw = [&](std::int64_t from, std::int64_t to) {
    return from + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(to - from + 1));
  };
  int square = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto stages = static_cast<std::uint32_t>(draw(1, 6)), width = static_cast<std::uint32_t>(draw(1, 5));
    const auto places = stages * width;
    const auto candidates = places + static_cast<std::uint32_t>(round % 3 == 0 ? 0 : draw(1, 8));
    const auto max_bytes = round % 2 == 0 ? 3 : 1'000'000;
    std::vector<candidate_class> classes(static_cast<std::size_t>(draw(1, candidates)));
    for (auto& x : classes)
      for (std::uint32_t s = 0; s < stages; ++s)
        x.cost.push_back({draw(0, max_bytes), draw(0, 1), 0});
    std::vector<std::vector<cost_in_order>> single(places);
    for (std::uint32_t age = 0; age < candidates; ++age) {
      auto& mine = classes[static_cast<std::size_t>(draw(0, static_cast<std::int64_t>(classes.size()) - 1))];
      mine.members.push_back(age);
      for (std::uint32_t place = 0; place < places; ++place) {
        const auto& x = mine.cost[place % stages];
        single[place].push_back({x.bytes, x.moved, age});
      }
    }
    stage_assignment(stages, classes).fill(width);

    cost_in_order sum{};
    std::vector<std::uint32_t> filled(stages);
    for (const auto& x : classes) {
      EXPECT_EQ(x.taken, std::accumulate(x.placed.begin(), x.placed.end(), 0u));
      ASSERT_LE(x.taken, x.members.size());
      sum[2] += std::accumulate(x.members.begin(), x.members.begin() + x.taken, std::int64_t{0});
      for (std::uint32_t s = 0; s < stages; ++s) {
        filled[s] += x.placed[s];
        sum[0] += x.placed[s] * x.cost[s].bytes;
        sum[1] += x.placed[s] * x.cost[s].moved;
      }
    }
    EXPECT_EQ(filled, std::vector<std::uint32_t>(stages, width)) << "round " << round;
    EXPECT_EQ(sum, least_cost(single)) << "round " << round;
    square += candidates == places;
  }
  EXPECT_GE(square, 1000);
}

} // namespace
} // namespace parcae
