#include "planner/cost/hypergeometric.hpp"
#include "planner/simulation/published_cost.hpp"
#include "tests/planner/workloads.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace parcae {
namespace {

using boundaries = std::vector<std::uint32_t>;

// given: layers, stages / expected: boundaries, by the rule of the published model
TEST(published_partition, by_hand) {
  EXPECT_EQ(published_partition(7, 1), (boundaries{0, 7}));
  EXPECT_EQ(published_partition(7, 2), (boundaries{0, 4, 7}));       // q 3, r 0
  EXPECT_EQ(published_partition(8, 2), (boundaries{0, 5, 8}));       // q 3, r 1: stage 0 gets one more
  EXPECT_EQ(published_partition(9, 3), (boundaries{0, 4, 7, 9}));    // q 2, r 2: stages 1 and 0
  EXPECT_EQ(published_partition(8, 3), (boundaries{0, 3, 6, 8}));    // q 2, r 1: stage 1
  EXPECT_EQ(published_partition(4, 4), (boundaries{0, 2, 3, 4, 4})); // q 0, r 3: the rule leaves the last stage empty
}

TEST(network_profile, interpolates) {
  const network_profile x{{{100, 2}, {200, 4}, {400, 5}}};
  EXPECT_EQ(x.transfer_ms(0), 2);
  EXPECT_EQ(x.transfer_ms(100), 2);
  EXPECT_EQ(x.transfer_ms(150), 3);
  EXPECT_EQ(x.transfer_ms(400), 5);
  EXPECT_EQ(x.transfer_ms(800), 10);
}

TEST(hypergeometric, sums_to_one_and_has_the_right_mean) {
  for (std::uint32_t all : {1u, 7u, 32u, 1024u})
    for (std::uint32_t marked = 0; marked <= all; marked += 1 + all / 9)
      for (std::uint32_t drawn = 0; drawn <= all; drawn += 1 + all / 7) {
        const auto p = hypergeometric(all, marked, drawn);
        double sum = 0, mean = 0;
        for (std::size_t k = 0; k < p.size(); ++k) {
          sum += p[k];
          mean += p[k] * static_cast<double>(k);
        }
        EXPECT_NEAR(sum, 1, 1e-12);
        EXPECT_NEAR(mean, static_cast<double>(drawn) * marked / all, 1e-9 * all);
      }
}

// All ways to lose slots of a grid, weighted by the number of subsets each stands for.
TEST(replica_losses, agrees_with_enumeration) {
  for (std::uint32_t width = 1; width <= 5; ++width)
    for (std::uint32_t spare = 0; spare < width; ++spare) {
      replica_losses x(width, spare); // one for all depths
      for (std::uint32_t depth = 1; depth <= 4; ++depth)
        for (std::uint32_t stages = 1; stages <= depth; ++stages) {
          std::vector<double> good(width * depth + 1, 0), all(width * depth + 1, 0);
          std::function<void(std::uint32_t, std::uint32_t, double, bool)> lose = [&](auto stage, auto lost, double ways,
                                                                                     bool enough) {
            if (stage == depth) {
              all[lost] += ways;
              good[lost] += enough ? ways : 0;
              return;
            }
            for (std::uint32_t k = 0; k <= width; ++k) {
              lose(stage + 1, lost + k, ways, enough && (stage >= stages || k <= spare));
              ways = ways * (width - k) / (k + 1);
            }
          };
          lose(0, 0, 1, true);
          for (std::uint32_t lost = width * depth + 1; lost-- > 0;)
            EXPECT_NEAR(x.none_lacks(stages, depth, lost), good[lost] / all[lost], 1e-12)
                << stages << " of " << width << "x" << depth << ", spare " << spare << ", lost " << lost;
        }
    }
}

// Mean over all subsets of instances.
double brute_force(published_cost& costs, const shape& from, const shape& to, std::uint32_t held, std::uint32_t lost,
                   std::uint32_t devices) {
  std::vector<int> gone(held, 0);
  std::fill(gone.end() - lost, gone.end(), 1);
  double sum = 0, count = 0;
  do {
    std::vector<bool> lost_of_grid(from.slots(), false);
    for (std::uint32_t slot = 0; slot < from.slots(); ++slot)
      lost_of_grid[slot] = gone[slot / devices] != 0;
    sum += costs.move_given_ms(from, to, lost_of_grid, lost * devices);
    ++count;
  } while (std::next_permutation(gone.begin(), gone.end()));
  return sum / count;
}

// All moves of a workload that so many instances hold. Returns how many were compared.
int expect_exact(const profile& workload, std::uint32_t held, std::uint32_t lost, std::uint32_t devices) {
  const auto network = made_up::network();
  published_cost costs(workload, network, devices);
  int compared = 0;
  for (const auto& [from, rate] : workload.samples_per_s)
    for (const auto& [to, other_rate] : workload.samples_per_s) {
      if (from.slots() > held * devices)
        continue;
      const double expected = brute_force(costs, from, to, held, lost, devices);
      const auto bounds = costs.move_bounds(from, to, lost);
      EXPECT_LE(bounds.least_ms, expected + 1e-9);
      EXPECT_GE(bounds.max_ms, expected - 1e-9);
      EXPECT_NEAR(costs.move_ms(from, to, held, lost), expected, 1e-9 * (1 + expected))
          << to_string(from) << " to " << to_string(to) << " lost " << lost << " of " << held;
      ++compared;
    }
  return compared;
}

// The exact expectation equals the mean over all subsets, layers of equal size (many ties) included.
TEST(published_cost, expectation_is_exact) {
  int compared = 0;
  for (const bool equal : {false, true})
    for (std::uint32_t held = 4; held <= 9; ++held)
      for (std::uint32_t lost = 0; lost <= std::min(held, 5u); ++lost)
        compared += expect_exact(made_up::workload(5, 9, 3, equal), held, lost, 1);
  EXPECT_GT(compared, 5'000);
}

// Asking for fewer losses after more, or more after fewer, changes nothing.
TEST(published_cost, does_not_depend_on_the_order_of_questions) {
  const auto network = made_up::network();
  const auto workload = made_up::workload(6, 12, 4);
  const shape from{3, 4}, to{2, 6}, same{2, 4};
  published_cost up(workload, network), down(workload, network);
  std::vector<double> a, b;
  for (std::uint32_t lost = 0; lost <= 5; ++lost) {
    a.push_back(up.move_ms(from, to, 12, lost));
    a.push_back(up.move_ms(from, same, 12, lost));
  }
  for (std::uint32_t lost = 6; lost-- > 0;) {
    b.insert(b.begin(), down.move_ms(from, same, 12, lost));
    b.insert(b.begin(), down.move_ms(from, to, 12, lost));
  }
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], 1e-9 * a[i]);
}

// Losses come by instance: equals the mean over all subsets of instances, spares and a part-filled instance included.
TEST(published_cost, several_devices_per_instance) {
  int compared = 0;
  for (const bool equal : {false, true})
    for (std::uint32_t devices : {2u, 3u, 4u})
      for (std::uint32_t lost = 1; lost <= 3; ++lost)
        compared += expect_exact(made_up::workload(5, 12, 5, equal), 12 / devices, lost, devices);
  EXPECT_GT(compared, 5'000);
}

// given: 64 instances of 4 devices, 12 lost: far more subsets than can be counted / expected: exact at the same depth,
// where only the stages count, and those are the same for every subset
TEST(published_cost, many_instances_are_exact_at_the_same_depth) {
  const auto workload = made_up::workload(4, 256, 6, true);
  const auto network = made_up::network();
  published_cost costs(workload, network, 4);
  // Each instance is one pipeline of 4: replicas left are 64 - 12 of every stage, whichever are lost.
  std::vector<bool> gone(256, false);
  std::fill(gone.begin(), gone.begin() + 48, true);
  for (const std::uint32_t width : {40u, 52u, 53u, 60u})
    EXPECT_NEAR(costs.move_ms({64, 4}, {width, 4}, 64, 12), costs.move_given_ms({64, 4}, {width, 4}, gone, 48), 1e-6);
}

struct sampled {
  double mean, deviation;
};

/// Over so many random losses of so many slots.
sampled over_random_losses(published_cost& costs, const shape& from, const shape& to, std::uint32_t slots,
                           std::uint32_t lost, int rounds, std::mt19937_64& random) {
  std::vector<std::uint32_t> order(slots);
  std::iota(order.begin(), order.end(), 0);
  double sum = 0, squares = 0;
  for (int i = 0; i < rounds; ++i) {
    std::vector<bool> gone(from.slots(), false);
    for (std::uint32_t k = 0; k < lost; ++k) {
      std::swap(order[k], order[k + random() % (slots - k)]);
      if (order[k] < from.slots())
        gone[order[k]] = true;
    }
    const double ms = costs.move_given_ms(from, to, gone, lost);
    sum += ms;
    squares += ms * ms;
  }
  const double mean = sum / rounds;
  return {mean, std::sqrt(squares / rounds - mean * mean)};
}

// Where there are too many cases (another depth, more than 64 slots) a fixed sample of 64 stands in: the same each
// time, whatever was asked before, and as near to the mean over 2,000 subsets as so many can be.
TEST(published_cost, sampling_is_repeatable_and_near_the_mean) {
  const auto network = made_up::network();
  const auto workload = made_up::workload(12, 96, 6);
  const shape from{6, 12}, to{10, 8};
  published_cost a(workload, network), b(workload, network);
  for (const std::uint32_t lost : {12, 61, 59})
    b.move_ms(from, to, 96, lost);
  std::mt19937_64 random(1);
  for (const std::uint32_t lost : {40, 50, 60}) {
    const double said = a.move_ms(from, to, 96, lost);
    EXPECT_EQ(said, b.move_ms(from, to, 96, lost));
    constexpr int rounds = 2'000;
    const auto [mean, deviation] = over_random_losses(a, from, to, 96, lost, rounds, random);
    EXPECT_GT(deviation, 10) << "else the sample does not matter";
    EXPECT_NEAR(said, mean, 4 * deviation * std::sqrt(1.0 / 64 + 1.0 / rounds)) << lost << " lost";
  }
}

// given: a grid of 32 by 32, 40 lost of 1,024 / expected: the mean over 20,000 random subsets, within its error
TEST(published_cost, a_large_grid_at_the_same_depth) {
  const auto network = made_up::network();
  const auto workload = made_up::workload(40, 1024, 8);
  published_cost costs(workload, network);
  std::mt19937_64 random(1);
  for (const std::uint32_t width : {28u, 30u, 31u}) {
    constexpr int rounds = 20'000;
    const auto [mean, deviation] = over_random_losses(costs, {32, 32}, {width, 32}, 1024, 40, rounds, random);
    EXPECT_NEAR(costs.move_ms({32, 32}, {width, 32}, 1024, 40), mean, 4 * deviation / std::sqrt(rounds) + 1e-9);
  }
}

// given: nobody is lost and the shape stays / expected: nothing; narrower: intra-stage; wider: inter-stage
TEST(published_cost, kinds_of_moves) {
  const auto network = made_up::network();
  const auto workload = made_up::workload(4, 12, 7);
  published_cost costs(workload, network);
  EXPECT_EQ(costs.move_ms({2, 3}, {2, 3}, 12, 0), 0);
  EXPECT_NEAR(costs.move_ms({3, 3}, {2, 3}, 12, 0), 35 + 6 * 30 + 200, 1e-9);
  EXPECT_GT(costs.move_ms({2, 3}, {3, 3}, 12, 0), 6600);
  EXPECT_GT(costs.start_ms({2, 3}, false), costs.start_ms({2, 3}, true) + 13'999);
}

} // namespace
} // namespace parcae
