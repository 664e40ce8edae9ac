// A served model on fleets that change.

#include "planner/serving/service_simulator.hpp"
#include "tests/planner/serving/small_service.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace parcae::serving {
namespace {

service_world round_world(std::initializer_list<std::pair<double, std::uint32_t>> fleet, double end_s) {
  service_world result;
  for (const auto& [seconds, count] : fleet) {
    result.fleet.emplace_back();
    result.fleet.back().seconds = seconds;
    result.fleet.back().available = count;
  }
  result.end_ms = end_s * 1000;
  result.model = round_model();
  result.limits = {4, 4};
  result.asked_per_s = 1;
  return result;
}

// given: one instance that stays, requests that come apart / expected: each takes what it takes alone; cost by hand
TEST(service_simulator, undisturbed) {
  auto world = round_world({{0, 1}}, 10);
  for (int i = 0; i < 8; ++i)
    world.arrivals.push_back({1000.0 * i, {8, 5}});
  world.arrivals.push_back({10'000, {8, 5}}); // behind the end
  const auto x = simulate_service(world, service_policy::service, batch_kind::continuous);
  ASSERT_EQ(x.requests.size(), 8u);
  for (const auto ms : x.latencies_ms())
    EXPECT_EQ(ms, 24 + 4 * 12);
  for (const auto ms : x.first_ms())
    EXPECT_EQ(ms, 24);
  EXPECT_EQ(x.tokens, 40u);
  EXPECT_EQ(x.computed, 8u * 12);
  EXPECT_EQ(x.needed, x.computed);
  EXPECT_EQ(x.unserved, 0u);
  EXPECT_EQ(x.end_ms, 10'000);
  EXPECT_EQ(x.instance_ms, 10'000);
  ASSERT_EQ(x.steps.size(), 1u);
  EXPECT_EQ(x.steps[0].shape, (service_shape{1, 1, 1}));
}

// given: all instances go for five seconds / expected: requests wait, what they have of tokens stays, the rest is
// computed again
TEST(service_simulator, nobody_is_there_for_a_while) {
  auto world = round_world({{0, 1}, {5, 0}, {10, 1}}, 60);
  world.arrivals = {{4'880, {8, 20}}, {7'000, {8, 5}}};
  const auto x = simulate_service(world, service_policy::service, batch_kind::continuous);
  ASSERT_EQ(x.requests.size(), 2u);
  // By 5 s: 24 ms of prompt and 8 more tokens of 12 ms; the pass that begins then ends, too.
  EXPECT_EQ(x.requests[0].first_ms, 4'904);
  EXPECT_EQ(x.requests[0].computed, 17u + 27u);
  EXPECT_EQ(x.requests[1].tokens, 5u);
  EXPECT_GT(x.requests[1].end_ms, 10'000);
  EXPECT_EQ(x.needed, 27u + 12u);
  EXPECT_EQ(x.unserved, 0u);
  ASSERT_EQ(x.steps.size(), 3u);
  EXPECT_EQ(x.steps[1].shape.width, 0u);
  EXPECT_EQ(x.steps[1].why, "nothing fits 0 slots: a pipeline needs 1");
  EXPECT_EQ(x.instance_ms, 5'000 + 50'000);
}

TEST(service_simulator, nothing_ever_fits) {
  auto world = round_world({{0, 2}}, 10);
  world.least_slots = 3;
  world.arrivals = {{0, {8, 5}}, {2'000, {8, 5}}};
  const auto x = simulate_service(world, service_policy::service, batch_kind::continuous);
  EXPECT_EQ(x.unserved, 2u);
  EXPECT_TRUE(x.latencies_ms().empty());
}

// given: a change with its costs / expected: a stall of the fixed part and of what moves; with free changes only of
// passes that end
TEST(service_simulator, changes_cost_what_they_move) {
  auto world = round_world({{0, 3}, {1, 2}}, 10);
  world.least_slots = 2; // so that a stage always moves
  for (int i = 0; i < 4; ++i)
    world.arrivals.push_back({900.0 + i, {8, 50}});
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    world.seed = seed;
    world.changes = {};
    const auto free = simulate_service(world, service_policy::service, batch_kind::continuous);
    world.changes = {200, 0};
    const auto fixed = simulate_service(world, service_policy::service, batch_kind::continuous);
    world.changes = {200, 10};
    const auto moved = simulate_service(world, service_policy::service, batch_kind::continuous);
    EXPECT_EQ(free.computed, free.needed);
    EXPECT_EQ(moved.computed, moved.needed);
    if (free.steps.size() == 1)
      continue; // the spare one was lost
    ASSERT_EQ(free.steps.size(), 2u);
    EXPECT_LT(free.steps[1].stall_ms, 30);
    EXPECT_DOUBLE_EQ(fixed.steps[1].stall_ms, free.steps[1].stall_ms + 200);
    EXPECT_GT(moved.steps[1].stall_ms, fixed.steps[1].stall_ms + 6 * 8 * 4 * 100 / 10.0);
    EXPECT_GT(moved.latencies_ms().back(), free.latencies_ms().back());
    return;
  }
  FAIL() << "no seed lost an instance that was used";
}

// given: drawn fleets and arrivals / expected: the same bits again; each request has all its tokens, in time order;
// nothing is computed twice unless nobody had its caches
TEST(service_simulator, any_fleet) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    std::mt19937_64 random(seed);
    auto world = round_world({}, 61);
    world.profile = small_profile();
    world.seed = seed;
    world.least_slots = 1 + static_cast<std::uint32_t>(random() % 3);
    world.asked_per_s = 8;
    for (double s = 0; s < 60; s += 1 + static_cast<double>(random() % 9))
      world.fleet.push_back({s, 0, 0, static_cast<std::uint32_t>(random() % 9), {}});
    world.fleet.push_back({60.5, 0, 0, 6, {}});
    world.arrivals = draw_arrivals({8, 1}, request_lengths{9, 20}, 61'000, seed);
    for (const auto policy : {service_policy::spotserve, service_policy::service})
      for (const auto kind : {batch_kind::fixed, batch_kind::continuous}) {
        if (policy == service_policy::service && kind == batch_kind::fixed)
          continue;
        world.model = kind == batch_kind::continuous && policy == service_policy::spotserve ? passes_of(*world.profile)
                                                                                            : round_model();
        const auto x = simulate_service(world, policy, kind), again = simulate_service(world, policy, kind);
        ASSERT_EQ(x.requests.size(), world.arrivals.size());
        EXPECT_EQ(x.unserved, 0u) << seed;
        std::uint64_t tokens = 0;
        for (std::size_t i = 0; i < x.requests.size(); ++i) {
          const auto& y = x.requests[i];
          EXPECT_EQ(y.end_ms, again.requests[i].end_ms);
          EXPECT_EQ(y.tokens, 20u);
          EXPECT_LE(y.from.ms, y.first_ms);
          EXPECT_LE(y.first_ms, y.end_ms);
          tokens += y.tokens;
        }
        EXPECT_EQ(x.tokens, tokens);
        EXPECT_GE(x.computed, x.needed) << seed;
      }
  }
}

} // namespace
} // namespace parcae::serving
