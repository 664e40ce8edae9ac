#include "planner/choose/throughput.hpp"
#include "planner/situation/memory.hpp"
#include "planner/situation/placement.hpp"
#include "tests/planner/workloads.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace parcae {
namespace {

using namespace made_up;

// Measured where the job was; elsewhere the model, scaled by what was seen. Rates and intervals are in order.
TEST(configurations, take_what_was_measured_into_account) {
  const auto job = job_of(8, 8);
  const auto layers = equal_layers(4);
  const auto plain = configurations(job, {layers}, 4);
  for (const auto& x : plain) {
    EXPECT_EQ(x.samples_per_s, x.predicted_samples_per_s);
    EXPECT_EQ(x.measured_steps, 0u);
    EXPECT_LT(x.low_samples_per_s, 0.9 * x.samples_per_s);
    EXPECT_GT(x.high_samples_per_s, 1.1 * x.samples_per_s);
  }
  const auto rate = [&](const auto& all, std::uint32_t width, std::uint32_t depth) {
    return *std::ranges::find_if(all, [&](const auto& x) { return x.width == width && x.depth == depth; });
  };
  const double ms = job.global_batch * 1000.0 / rate(plain, 2, 1).samples_per_s;
  const std::vector<measured_step> seen{{{2, 1}, 1.2 * ms, 0.02, 50, 1, false}};
  const auto all = configurations(job, {layers, {}, seen}, 4);
  const auto there = rate(all, 2, 1);
  EXPECT_NEAR(there.samples_per_s, rate(plain, 2, 1).samples_per_s / 1.2, 1e-9);
  EXPECT_NEAR(there.high_samples_per_s, there.samples_per_s / 0.98, 1e-9);
  EXPECT_EQ(there.measured_steps, 50u);
  const auto elsewhere = rate(all, 2, 2);
  EXPECT_EQ(elsewhere.predicted_samples_per_s, rate(plain, 2, 2).predicted_samples_per_s);
  EXPECT_LT(elsewhere.samples_per_s, elsewhere.predicted_samples_per_s);
  EXPECT_GT(elsewhere.samples_per_s, elsewhere.predicted_samples_per_s / 1.2); // one measurement is not all
  // What was seen on more slots than there are now still counts.
  EXPECT_LT(rate(configurations(job, {layers, {}, seen}, 1), 1, 1).samples_per_s, rate(plain, 1, 1).samples_per_s);
}

TEST(configurations, are_those_allowed) {
  auto job = job_of(8, 4);
  job.min_depth = 2;
  job.max_depth = 3;
  job.max_width = 9;
  const auto all = configurations(job, {equal_layers(5)}, 8);
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
    const auto x = best_configuration(job, {equal_layers(5)}, slots);
    EXPECT_EQ(x.width, 0u);
    EXPECT_NE(x.reason.find("waits"), std::string::npos);
  }
  EXPECT_EQ(best_configuration(job, {equal_layers(5)}, 3).depth, 3u);
  EXPECT_EQ(best_configuration(job, {equal_layers(2)}, 9).width, 0u);
}

TEST(best_configuration, is_best_of_all_and_never_falls_with_more_slots) {
  const auto job = job_of(16, 8);
  const auto layers = equal_layers(12);
  for (const auto& link : {platform_cost{}, platform_cost{0.5, 1e5}, platform_cost{5, 1e4}}) {
    double before = 0;
    for (std::uint32_t slots = 1; slots <= 40; ++slots) {
      const auto best = best_configuration(job, {layers, link}, slots);
      EXPECT_LE(best.width * best.depth, slots);
      for (const auto& x : configurations(job, {layers, link}, slots))
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
  const auto best = best_configuration(job, {layers, free_link}, 3);
  EXPECT_EQ(best.width, 2u);
  EXPECT_NE(best.reason.find("next best 3×1"), std::string::npos) << best.reason;
}

// --- memory

job_specification memory_job() {
  auto job = job_of(4, 8);
  job.micro_batch = 1;
  return job;
}

// given: 5 equal layers (state 12 MB, gradients 4, activations 5, outputs 1), V = 8, M = 8 / expected: by hand
TEST(memory, is_counted_by_stage) {
  auto job = memory_job();
  const auto layers = equal_layers(5);
  const std::uint32_t bounds[] = {0, 2, 4, 5};
  const auto first = memory_of(job, layers, bounds, 0, 2, 0); // 4 replicas: 3 sums and autograd's; 3 in flight
  EXPECT_EQ(first.state, 24'000'000u);
  EXPECT_EQ(first.arriving, 24'000'000u);
  EXPECT_EQ(first.gradients, 4u * 8'000'000);
  EXPECT_EQ(first.activations, 3u * 10'000'000);
  EXPECT_EQ(first.passing, 5'000'000u);
  EXPECT_EQ(memory_of(job, layers, bounds, 1, 2, 0).activations, 2u * 11'000'000); // with what arrived
  EXPECT_EQ(memory_of(job, layers, bounds, 2, 8, 0).gradients, 2u * 4'000'000);
  job.recompute = true;
  EXPECT_EQ(memory_of(job, layers, bounds, 0, 2, 0).activations, 3u * 2'000'000 + 5'000'000);
}

// given: the same / expected: of the replica that sends most, twice, for each copy that the keepers hold
TEST(memory, of_snapshots_is_two_copies_of_what_a_replica_sends) {
  auto job = memory_job();
  auto layers = equal_layers(5);
  layers[4].state_bytes = 1'000'000;
  const std::uint32_t bounds[] = {0, 3, 5};
  EXPECT_EQ(memory_of(job, layers, bounds, 0, 1, 0).snapshots, 0u);
  EXPECT_EQ(memory_of(job, layers, bounds, 0, 1, 1).snapshots, 2u * 36'000'000);
  EXPECT_EQ(memory_of(job, layers, bounds, 0, 2, 1).snapshots, 2u * 24'000'000); // layers 0 and 2
  EXPECT_EQ(memory_of(job, layers, bounds, 1, 2, 1).snapshots, 2u * 12'000'000); // layer 3, not 4
  EXPECT_EQ(memory_of(job, layers, bounds, 0, 4, 1).snapshots, 2u * 12'000'000);
  job.keeper_copies = 2;
  EXPECT_EQ(memory_of(job, layers, bounds, 0, 2, 1).snapshots, 2u * 24'000'000);
  EXPECT_EQ(memory_of(job, layers, bounds, 0, 2, 3).snapshots, 4u * 24'000'000);
  const auto without = memory_of(job, layers, bounds, 0, 2, 0).total();
  EXPECT_EQ(memory_of(job, layers, bounds, 0, 2, 3).total(), without + 4 * 24'000'000);
  // What fits without keepers need not fit with one.
  EXPECT_EQ(memory_problem(job, layers, bounds, 2, 0, {without}), "");
  EXPECT_NE(memory_problem(job, layers, bounds, 2, 1, {without}), "");
  const auto moving = transport_bytes(job, layers, bounds, 0, 2);
  EXPECT_EQ(memory_problem(job, layers, bounds, 2, 1, {without + moving, true}),
            ""); // a device's: they are on the host
  EXPECT_NE(memory_problem(job, layers, bounds, 2, 1, {without + moving - 1, true}), "");
}

// given: the same, and a tied tensor in the first and the last layer / expected: sums of others under way; by NCCL, for
// each peer that a rank has messages for, what eight channels take
TEST(memory, of_a_device_moving_tensors_takes_some) {
  job_specification job;
  job.virtual_replicas = 8;
  auto layers = equal_layers(5);
  const std::uint32_t bounds[] = {0, 2, 4, 5};
  EXPECT_EQ(transport_bytes(job, layers, bounds, 0, 1), 0u);
  EXPECT_EQ(transport_bytes(job, layers, bounds, 0, 2), 3u * 1 * 4'000'000);
  EXPECT_EQ(transport_bytes(job, layers, bounds, 0, 4), 3u * 3 * 4'000'000);
  layers[1].gradient_bytes = 100'000'000;
  EXPECT_EQ(transport_bytes(job, layers, bounds, 0, 2), 3u * 1 * (16u << 20));
  job.gradient_sums = "bfloat16";
  EXPECT_EQ(transport_bytes(job, layers, bounds, 1, 4), 3u * 3 * 2'000'000);
  EXPECT_EQ(transport_bytes(job, layers, bounds, 0, 2), 3u * 1 * (16u << 20)) << "as long messages, and fewer";
  job.gradient_sums = "float32";
  layers[0].tied_bytes = layers[4].tied_bytes = 1'000;
  job.transport = "nccl";
  const auto peers = [&](std::uint32_t stage, std::uint32_t width) {
    job.transport = "tcp";
    const auto without = transport_bytes(job, layers, bounds, stage, width);
    job.transport = "nccl";
    return static_cast<double>(transport_bytes(job, layers, bounds, stage, width) - without) / (96 << 20);
  };
  EXPECT_EQ(peers(0, 1), 2); // the next stage, and the last
  EXPECT_EQ(peers(1, 1), 2);
  EXPECT_EQ(peers(1, 4), 5);
  EXPECT_EQ(peers(2, 2), 3);
}

TEST(memory, what_does_not_fit_is_excluded_with_a_reason) {
  auto job = memory_job();
  const auto layers = equal_layers(4);
  const std::uint32_t whole[] = {0, 4};
  const auto of_one = memory_of(job, layers, whole, 0, 1, 0).total();
  const auto unlimited = best_configuration(job, {layers}, 1);
  EXPECT_EQ(unlimited.depth, 1u);
  EXPECT_EQ(best_configuration(job, {layers, {}, {}, of_one}, 1), unlimited);
  const auto none = best_configuration(job, {layers, {}, {}, of_one - 1}, 1);
  EXPECT_EQ(none.width, 0u);
  EXPECT_NE(none.reason.find("1×1: stage 0 needs 0.187 GiB"), std::string::npos) << none.reason;
  const auto two = best_configuration(job, {layers, {}, {}, of_one - 1}, 2);
  EXPECT_NE(two.reason.find("do not fit"), std::string::npos) << two.reason;
  for (const auto& x : configurations(job, {layers, {}, {}, of_one - 1}, 4))
    if (x.width > 0) {
      EXPECT_EQ(memory_problem(job, layers, x.first_layer, x.width, 0, {of_one - 1}), "");
    }
}

// given: four slots of a machine with two cores / expected: two are used, and the rate is that of two
TEST(best_configuration, knows_that_slots_share_cores) {
  auto job = job_of(8, 8);
  job.max_depth = 1;
  auto layers = equal_layers(2);
  for (auto& x : layers)
    x.gradient_bytes = 0;
  auto machine = free_link;
  machine.machine_slots = 4;
  machine.machine_cores = 2;
  const auto alone = best_configuration(job, {layers, free_link}, 4),
             shared = best_configuration(job, {layers, machine}, 4);
  EXPECT_EQ(alone.width, 4u);
  EXPECT_EQ(shared.width, 2u);
  EXPECT_NEAR(shared.samples_per_s, best_configuration(job, {layers, free_link}, 2).samples_per_s, 1e-9);
  EXPECT_EQ(shared.reason.find("one core per slot"), std::string::npos) << shared.reason;
}

} // namespace
} // namespace parcae
