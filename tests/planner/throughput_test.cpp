#include "planner/placement.hpp"
#include "planner/memory.hpp"
#include "planner/throughput.hpp"

#include <gtest/gtest.h>

namespace parcae {
namespace {

job_specification job_of(std::uint32_t micro_batches, std::uint32_t virtual_replicas) {
  job_specification job;
  job.micro_batch = 2;
  job.global_batch = 2 * micro_batches;
  job.virtual_replicas = virtual_replicas;
  return job;
}

std::vector<layer_cost> equal_layers(std::size_t n, double forward_ms = 1) {
  return std::vector<layer_cost>(n, {forward_ms, 2 * forward_ms, 0.5, 4'000'000, 1'000'000, 12'000'000, 5'000'000});
}

const link_cost free_link{0, 1e18};

// given: 4 layers of 1 + 2 ms, 0.5 ms apply, M = 8, free link / expected, by hand
TEST(step_ms, by_hand) {
  const auto layers = equal_layers(4);
  struct {
    std::uint32_t virtual_replicas, width;
    std::vector<std::uint32_t> first;
    double ms;
  } table[] = {
      {8, 1, {0, 4}, 8 * 12 + 2},            // one slot
      {8, 1, {0, 2, 4}, (12 + 7 * 6) + 1},   // fill, then the slowest stage
      {8, 1, {0, 1, 4}, (12 + 7 * 9) + 1.5}, // uneven
      {8, 2, {0, 4}, 4 * 12 + 2},            // half the micro-batches
      {8, 3, {0, 4}, 3 * 12 + 2},            // ⌈8/3⌉ = 3
      {4, 3, {0, 4}, 4 * 12 + 2},            // ⌈4/3⌉ = 2 virtual replicas of two micro-batches each
  };
  for (const auto& x : table)
    EXPECT_NEAR(step_ms(job_of(8, x.virtual_replicas), layers, x.first, x.width, free_link), x.ms, 1e-9)
        << x.width << 'x' << x.first.size() - 1;
}

// 1x2 with 1 ms latency and 1 MB/ms: an output takes 2 ms, there and back 4 ms, less than the stage's 6 ms of compute.
// 2x1: 16 MB of gradients, halves there and back: 2 · (1 + 8) ms. The commit exchange adds a latency.
TEST(step_ms, counts_the_link) {
  const auto layers = equal_layers(4);
  const link_cost link{1, 1e6};
  const std::vector<std::uint32_t> one{0, 4}, two{0, 2, 4};
  EXPECT_NEAR(step_ms(job_of(8, 8), layers, two, 1, link), (12 + 4 + 7 * 6) + 1 + 1, 1e-9);
  EXPECT_NEAR(step_ms(job_of(8, 8), layers, one, 2, link), 4 * 12 + 18 + 2 + 1, 1e-9);
  EXPECT_NEAR(step_ms(job_of(8, 8), layers, one, 1, link), 8 * 12 + 2, 1e-9);
  // On a slow link the transfers set the pace.
  const link_cost slow{10, 1e6};
  EXPECT_NEAR(step_ms(job_of(8, 8), layers, two, 1, slow), (12 + 22 + 7 * 22) + 1 + 10, 1e-9);
}

TEST(configurations, are_those_allowed) {
  auto job = job_of(8, 4);
  job.min_depth = 2;
  job.max_depth = 3;
  job.max_width = 9;
  const auto all = configurations(job, equal_layers(5), {}, 8);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> shapes;
  for (const auto& x : all) {
    shapes.emplace_back(x.width, x.depth);
    EXPECT_EQ(x.first_layer.size(), x.depth + 1);
    EXPECT_GT(x.samples_per_s, 0);
  }
  EXPECT_EQ(shapes, (decltype(shapes){{1, 2}, {2, 2}, {3, 2}, {4, 2}, {1, 3}, {2, 3}}));
}

TEST(best_configuration, waits_below_the_least) {
  auto job = job_of(8, 4);
  job.min_depth = 3;
  for (std::uint32_t slots : {0u, 1u, 2u}) {
    const auto x = best_configuration(job, equal_layers(5), {}, slots);
    EXPECT_EQ(x.width, 0u);
    EXPECT_NE(x.reason.find("waits"), std::string::npos);
  }
  EXPECT_EQ(best_configuration(job, equal_layers(5), {}, 3).depth, 3u);
  EXPECT_EQ(best_configuration(job, equal_layers(2), {}, 9).width, 0u);
}

TEST(best_configuration, is_best_of_all_and_never_falls_with_more_slots) {
  const auto job = job_of(16, 8);
  for (const auto& link : {link_cost{}, link_cost{0.5, 1e5}, link_cost{5, 1e4}}) {
    double before = 0;
    for (std::uint32_t slots = 1; slots <= 40; ++slots) {
      const auto best = best_configuration(job, equal_layers(12), link, slots);
      EXPECT_LE(best.width * best.depth, slots);
      for (const auto& x : configurations(job, equal_layers(12), link, slots))
        EXPECT_GE(best.samples_per_s, x.samples_per_s * (1 - 1e-9));
      EXPECT_GE(best.samples_per_s, before);
      before = best.samples_per_s;
    }
  }
}

// V = 4, D = 3 computes as long as D = 2: the third pipeline is not taken. The reason names the runner-up.
TEST(best_configuration, prefers_fewer_slots_among_equals) {
  auto job = job_of(8, 4);
  job.max_depth = 1;
  auto layers = equal_layers(2);
  for (auto& x : layers)
    x.gradient_bytes = 0;
  const auto best = best_configuration(job, layers, free_link, 3);
  EXPECT_EQ(best.width, 2u);
  EXPECT_NE(best.reason.find("next best 3x1"), std::string::npos) << best.reason;
}

// --- memory

// given: 5 equal layers (state 12 MB, gradients 4, activations 5, outputs 1), V = 8, M = 8 / expected: by hand
TEST(memory, is_counted_by_stage) {
  job_specification job;
  job.global_batch = 8;
  job.micro_batch = 1;
  job.virtual_replicas = 8;
  const auto layers = equal_layers(5);
  const std::uint32_t bounds[] = {0, 2, 4, 5};
  const auto first = memory_of(job, layers, bounds, 0, 2); // 4 replicas: 3 sums and autograd's; 3 in flight
  EXPECT_EQ(first.state, 24'000'000u);
  EXPECT_EQ(first.arriving, 24'000'000u);
  EXPECT_EQ(first.gradients, 4u * 8'000'000);
  EXPECT_EQ(first.activations, 3u * 10'000'000);
  EXPECT_EQ(memory_of(job, layers, bounds, 1, 2).activations, 2u * 11'000'000); // with what arrived
  EXPECT_EQ(memory_of(job, layers, bounds, 2, 8).gradients, 2u * 4'000'000);
  job.recompute = true;
  EXPECT_EQ(memory_of(job, layers, bounds, 0, 2).activations, 3u * 2'000'000 + 5'000'000);
}

TEST(memory, what_does_not_fit_is_excluded_with_a_reason) {
  job_specification job;
  job.global_batch = 8;
  job.micro_batch = 1;
  job.virtual_replicas = 8;
  const auto layers = equal_layers(4);
  const std::uint32_t whole[] = {0, 4};
  const auto of_one = memory_of(job, layers, whole, 0, 1).total();
  const auto unlimited = best_configuration(job, layers, {}, 1);
  EXPECT_EQ(unlimited.depth, 1u);
  EXPECT_EQ(best_configuration(job, layers, {}, 1, of_one), unlimited);
  const auto none = best_configuration(job, layers, {}, 1, of_one - 1);
  EXPECT_EQ(none.width, 0u);
  EXPECT_NE(none.reason.find("1x1: stage 0 needs 0.183 GiB"), std::string::npos) << none.reason;
  const auto two = best_configuration(job, layers, {}, 2, of_one - 1);
  EXPECT_NE(two.reason.find("do not fit"), std::string::npos) << two.reason;
  for (const auto& x : configurations(job, layers, {}, 4, of_one - 1))
    if (x.width > 0) {
      EXPECT_EQ(memory_problem(job, layers, x.first_layer, x.width, of_one - 1), "");
    }
}

} // namespace
} // namespace parcae
