#include "planner/cost/step_model.hpp"
#include "protocols/schedule/pipeline_schedule.hpp"
#include "tests/planner/workloads.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace parcae {
namespace {

using namespace made_up;

// given: 4 layers of 1 + 2 ms, 0.5 ms apply, M = 8, free link / expected, by hand
TEST(step_ms, by_hand) {
  const auto layers = equal_layers(4);
  struct {
    std::uint32_t virtual_replicas, width;
    std::vector<std::uint32_t> first;
    double ms;
  } table[] = {
      {8, 1, {0, 4}, 8 * 12 + 2},          // one slot
      {8, 1, {0, 2, 4}, (12 + 7 * 6) + 1}, // fill, then the slowest stage
      {8, 1, {0, 1, 4}, 1.5 + 8 * 9 + 2},  // uneven: the second stage's apply covers the first's forward
      {8, 2, {0, 4}, 4 * 12 + 2},          // half the micro-batches
      {8, 3, {0, 4}, 3 * 12 + 2},          // ⌈8/3⌉ = 3
      {4, 3, {0, 4}, 4 * 12 + 2},          // ⌈4/3⌉ = 2 virtual replicas of two micro-batches each
  };
  for (const auto& x : table)
    EXPECT_NEAR(step_ms(job_of(8, x.virtual_replicas), layers, x.first, x.width, free_link), x.ms, 1e-9)
        << x.width << 'x' << x.first.size() - 1;
}

// 1x2 with 1 ms latency and 1 MB/ms: an output takes 2 ms, there and back 4 ms. Two micro-batches are in flight on the
// first stage, so that a pair of them takes 2 + 2 + 6 + 2 + 4 = 16 ms; the first pair's second one is done at 23 ms.
// 2x1: 4 MB of a layer's gradients leave every 2 ms from 44 ms on and take 4 ms each. The commit exchange adds a
// latency.
TEST(step_ms, counts_the_link) {
  const auto layers = equal_layers(4);
  const platform_cost link{1, 1e6};
  const std::vector<std::uint32_t> one{0, 4}, two{0, 2, 4};
  EXPECT_NEAR(step_ms(job_of(8, 8), layers, two, 1, link), 23 + 3 * 16 + 1, 1e-9);
  EXPECT_NEAR(step_ms(job_of(8, 8), layers, one, 2, link), 44 + 4 * 4 + 2 + 1, 1e-9);
  EXPECT_NEAR(step_ms(job_of(8, 8), layers, one, 1, link), 8 * 12 + 2, 1e-9);
  const platform_cost slow{10, 1e6};
  EXPECT_NEAR(step_ms(job_of(8, 8), layers, two, 1, slow), 41 + 3 * 34 + 10, 1e-9);
}

// Longest paths over the operations' graph, in another way: all operations relaxed until nothing changes.
double longest_path_ms(std::span<const double> forward, std::span<const double> backward, std::uint32_t count,
                       double wire) {
  const auto depth = static_cast<std::uint32_t>(forward.size());
  std::vector<std::vector<double>> f(depth, std::vector<double>(count, 0)), b(f);
  double most = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (std::uint32_t s = 0; s < depth; ++s) {
      double free = 0;
      for (const auto& x : one_forward_one_backward(depth, s, count)) {
        double begin = free;
        if (x.forward && s > 0)
          begin = std::max(begin, f[s - 1][x.position] + wire);
        if (!x.forward && s + 1 < depth)
          begin = std::max(begin, b[s + 1][x.position] + wire);
        auto& end = x.forward ? f[s][x.position] : b[s][x.position];
        free = begin + (x.forward ? forward[s] : backward[s]);
        changed = changed || free > end;
        end = std::max(end, free);
        most = std::max(most, end);
      }
    }
  }
  return most;
}

TEST(step_ms, is_the_longest_path) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> ms(0.1, 5);
  for (int round = 0; round < 200; ++round) {
    const auto depth = 1 + random() % 6, count = 1 + random() % 12;
    std::vector<double> forward, backward;
    std::vector<layer_cost> layers;
    std::vector<std::uint32_t> first{0};
    for (std::uint32_t s = 0; s < depth; ++s) {
      forward.push_back(ms(random));
      backward.push_back(ms(random));
      layers.push_back({forward.back(), backward.back(), 0, 0, 0, 0, 0});
      first.push_back(s + 1);
    }
    const double latency = round % 2 == 0 ? 0 : ms(random);
    EXPECT_NEAR(step_ms(job_of(count, 1), layers, first, 1, {latency, 1e18}),
                longest_path_ms(forward, backward, count, latency) + (depth > 1 ? latency : 0), 1e-6);
  }
}

// 4 MB of gradients a layer. V = 8 on D = 3: sums of two sub-trees each, so that 3 · 2/3 of the gradients are sent
// instead of 2 · 2/3.
TEST(step_ms, counts_sub_trees_that_cannot_be_merged) {
  const auto layers = equal_layers(1);
  const std::vector<std::uint32_t> one{0, 1};
  auto job = job_of(8, 8);
  EXPECT_NEAR(step_ms(job, layers, one, 3, {0, 1e6}), 3 * 3 + 0.5 + 2 * 4, 1e-9);
  job.reproducible = false;
  EXPECT_NEAR(step_ms(job, layers, one, 3, {0, 1e6}), 3 * 3 + 0.5 + 4.0 / 3 * 4, 1e-9);
  EXPECT_EQ(partial_sums(job_of(8, 8), 3), 2u);
  EXPECT_EQ(partial_sums(job_of(8, 8), 2), 1u);
  EXPECT_EQ(partial_sums(job_of(6, 6), 2), 2u);
}

// The same in bfloat16: half of the bytes, in half as many messages; of a tied tensor, too.
TEST(step_ms, sums_in_bfloat16_are_half_as_long) {
  auto layers = equal_layers(4);
  const std::vector<std::uint32_t> one{0, 4}, two{0, 2, 4};
  auto job = job_of(8, 8);
  const auto added = [&](const auto& first, std::uint32_t width, const platform_cost& platform) {
    return step_ms(job, layers, first, width, platform) - step_ms(job, layers, first, width, {0, 1e18});
  };
  platform_cost messages{0, 1e18};
  messages.message_ms = 0.5;
  EXPECT_NEAR(added(one, 2, {0, 1e6}), 16 - 6, 1e-9);
  EXPECT_NEAR(added(one, 2, messages), 4 * 16 * 2 * 0.5 + 1, 1e-9);
  job.gradient_sums = "bfloat16";
  EXPECT_NEAR(added(one, 2, {0, 1e6}), 8 - 6, 1e-9);
  EXPECT_NEAR(added(one, 2, messages), 4 * 8 * 2 * 0.5 + 1, 1e-9);
  const double untied = step_ms(job, layers, two, 1, {0, 1e6});
  layers[0].tied_bytes = layers[3].tied_bytes = 3'000'000;
  EXPECT_NEAR(step_ms(job, layers, two, 1, {0, 1e6}) - untied, 1.5, 1e-9);
}

// What is on the wire while layers before are still computed costs nothing; processor time does.
TEST(step_ms, hides_the_wire_behind_the_last_backward_pass) {
  auto layers = equal_layers(4); // 2 ms of backward each; 4 MB sent each with D = 2
  const std::vector<std::uint32_t> one{0, 4};
  const auto ms = [&](double bytes_per_ms, double per_byte) {
    return step_ms(job_of(8, 8), layers, one, 2, {0, bytes_per_ms, per_byte});
  };
  const double computing = 4 * 12 + 2;
  EXPECT_NEAR(ms(4e6, 0), computing + 1, 1e-9);      // the first layer's, after the end
  EXPECT_NEAR(ms(1e6, 0), computing + 16 - 6, 1e-9); // busy from the last layer's backward on
  EXPECT_NEAR(ms(1e18, 1e-6), computing + 16, 1e-9);
}

// Half a millisecond each. 1x2: one for each pass of a micro-batch on either stage; the exchange takes two. 2x1: a
// layer of 4 MB is 16 chunks, for each of which a member sends and receives one message; and the exchange.
TEST(step_ms, counts_the_processor_time_of_messages) {
  const auto layers = equal_layers(4);
  const std::vector<std::uint32_t> one{0, 4}, two{0, 2, 4};
  platform_cost platform{0, 1e18};
  const auto added = [&](const auto& first, std::uint32_t width) {
    auto with = platform;
    with.message_ms = 0.5;
    return step_ms(job_of(8, 8), layers, first, width, with) - step_ms(job_of(8, 8), layers, first, width, platform);
  };
  EXPECT_NEAR(added(one, 1), 0, 1e-9);
  EXPECT_NEAR(added(two, 1), 9 * 2 * 0.5 + 1, 1e-9); // the pipeline's fill is one micro-batch more
  EXPECT_NEAR(added(one, 2), 4 * 16 * 2 * 0.5 + 1, 1e-9);
}

// 1 MB outputs at half a millisecond: as messages that cost that themselves, but for those of the exchange.
TEST(step_ms, counts_the_processor_time_of_bytes) {
  const auto layers = equal_layers(4);
  const std::vector<std::uint32_t> two{0, 2, 4};
  platform_cost platform{0, 1e18};
  const double before = step_ms(job_of(8, 8), layers, two, 1, platform);
  platform.message_ms_per_byte = 0.5e-6;
  EXPECT_NEAR(step_ms(job_of(8, 8), layers, two, 1, platform) - before, 9 * 2 * 0.5, 1e-9);
}

// Half a millisecond more for a layer's pass on waking. 1x1 never sleeps. 2x1: after the exchange one apply, one
// forward and one backward pass. 1x2, M = 1: so do both stages, of which the second waits besides, before its only
// passes: all four passes and the apply.
TEST(step_ms, passes_on_waking_take_longer) {
  const std::vector<std::uint32_t> one{0, 4}, two{0, 2, 4};
  const auto added = [&](std::uint32_t micro_batches, const auto& first, std::uint32_t width) {
    auto layers = equal_layers(4);
    const double before = step_ms(job_of(micro_batches, micro_batches), layers, first, width, free_link);
    for (auto& x : layers)
      x.waking = {0.5, 0.5, 0.5};
    return step_ms(job_of(micro_batches, micro_batches), layers, first, width, free_link) - before;
  };
  EXPECT_NEAR(added(8, one, 1), 0, 1e-9);
  EXPECT_NEAR(added(8, one, 2), 4 * 0.5 * 3, 1e-9);
  EXPECT_NEAR(added(1, two, 1), 2 * 0.5 * 5, 1e-9);
}

TEST(step_ms, tied_tensors_are_exchanged_between_stages) {
  auto layers = equal_layers(4);
  layers[0].tied_bytes = layers[3].tied_bytes = 3'000'000;
  const std::vector<std::uint32_t> one{0, 4}, two{0, 2, 4};
  const platform_cost link{0, 1e6};
  auto untied = equal_layers(4);
  EXPECT_NEAR(step_ms(job_of(8, 8), layers, two, 1, link) - step_ms(job_of(8, 8), untied, two, 1, link), 3, 1e-9);
  EXPECT_EQ(step_ms(job_of(8, 8), layers, one, 1, link), step_ms(job_of(8, 8), untied, one, 1, link));
}

TEST(step_ms, crowded_machines_compute_more_slowly) {
  const auto layers = equal_layers(4);
  const std::vector<std::uint32_t> one{0, 4};
  platform_cost platform{0, 1e18};
  platform.step_ms = 4;
  platform.crowding = {1, 1.5};
  EXPECT_NEAR(step_ms(job_of(8, 8), layers, one, 1, platform), 8 * 12 + 2 + 4, 1e-9);
  EXPECT_NEAR(step_ms(job_of(8, 8), layers, one, 2, platform), 1.5 * (4 * 12 + 2 + 4), 1e-9);
  EXPECT_NEAR(step_ms(job_of(8, 8), layers, one, 4, platform), 1.5 * (2 * 12 + 2 + 4), 1e-9);
}

// given: 4 layers of 1 + 2 ms, 0.5 ms apply, M = 8, machines of two cores / expected: as on machines of their own while
// there is a core for each, then no faster than the cores together
TEST(step_ms, slots_of_a_machine_share_its_cores) {
  const auto layers = equal_layers(4);
  const std::vector<std::uint32_t> one{0, 4}, two{0, 2, 4}, four{0, 1, 2, 3, 4};
  struct {
    std::uint32_t slots; // of the machine
    std::vector<std::uint32_t> first;
    std::uint32_t width;
    double ms;
  } table[] = {
      {4, one, 1, 8 * 12 + 2},            // one slot
      {4, one, 2, 4 * 12 + 2},            // a core for each
      {4, one, 4, 4 * (2 * 12 + 2) / 2},  // four on two: as long as two
      {2, one, 4, 2 * 12 + 2},            // two machines
      {4, two, 1, (12 + 7 * 6) + 1},      // a core for each stage
      {4, two, 2, 4 * (4 * 6 + 1) / 2},   // while one waits the others compute: no bubble
      {4, four, 1, 4 * (8 * 3 + 0.5) / 2} // neither
  };
  for (const auto& x : table) {
    auto platform = free_link;
    platform.machine_slots = x.slots;
    platform.machine_cores = 2;
    EXPECT_NEAR(step_ms(job_of(8, 8), layers, x.first, x.width, platform), x.ms, 1e-9)
        << x.width << 'x' << x.first.size() - 1;
  }
  platform_cost crowded = free_link;
  crowded.machine_slots = 2;
  crowded.machine_cores = 2;
  crowded.crowding = {1, 1.5, 4, 4}; // of more than share a machine there is no machine
  EXPECT_NEAR(step_ms(job_of(8, 8), layers, one, 4, crowded), 1.5 * (2 * 12 + 2), 1e-9);
}

struct random_pipeline {
  job_specification job;
  std::vector<layer_cost> layers;
  std::vector<std::uint32_t> first; // a stage each
  platform_cost platform;

  explicit random_pipeline(std::mt19937& random) {
    const auto upto = [&](double most) { return std::uniform_real_distribution<double>(0, most)(random); };
    job.micro_batch = 1;
    job.virtual_replicas = 1 + random() % 24;
    job.global_batch = job.virtual_replicas * (1 + random() % 4);
    job.reproducible = random() % 2 == 0;
    for (auto n = 1 + random() % 8; n > 0; --n) {
      layers.push_back({upto(4), upto(6), upto(1), random() % 3'000'000, random() % 500'000});
      layers.back().waking = {upto(1), upto(1), upto(1)};
    }
    layers.front().tied_bytes = layers.back().tied_bytes = random() % 2 * 1'000'000;
    for (std::uint32_t i = 0; i <= layers.size(); ++i)
      first.push_back(i);
    platform = {upto(2), 1e3 + upto(1e6), upto(1e-6), upto(0.2), upto(3)};
    for (auto n = random() % 12; n > 0; --n)
      platform.crowding.push_back(1 + upto(1));
    if (random() % 2 == 0) {
      platform.machine_slots = 1 + random() % 16;
      platform.machine_cores = 0.5 + upto(16);
    }
  }
};

// given: random pipelines, crowded or not, with fewer and more micro-batches than stages, and with too few cores /
// expected: to the last bit what a width gives by itself
TEST(steps_ms, do_not_depend_on_what_widths_have_in_common) {
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    const random_pipeline x(random);
    const auto least = 1 + static_cast<std::uint32_t>(random() % 3), most = x.job.virtual_replicas;
    const auto all = steps_ms(x.job, x.layers, x.first, least, most, x.platform);
    ASSERT_EQ(all.size(), most < least ? 0 : most - least + 1);
    for (auto width = least; width <= most; ++width)
      EXPECT_EQ(all[width - least], step_ms(x.job, x.layers, x.first, width, x.platform)) << round << ' ' << width;
  }
}

} // namespace
} // namespace parcae
