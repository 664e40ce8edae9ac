// Which pipelines a job that serves is to have, by what was measured.

#include "actors/manager/service_planning.hpp"
#include "protocols/model/model_description.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <numeric>

namespace parcae {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
constexpr bool at_full_speed = false;
#else
constexpr bool at_full_speed = true;
#endif

job_specification small_service() {
  job_specification x;
  x.name = "small";
  x.kind = "serve";
  x.optimizer.kind = "none";
  x.model.layers = 6;
  x.max_depth = 8;
  x.max_width = 1000;
  return x;
}

/// One pipeline of one stage was seen; requests are answered with 32 tokens, in some 32 passes of 10 ms and more.
situation seen(const job_specification& job, std::uint32_t slots, double per_s) {
  situation x;
  x.slots = slots;
  const auto layers = static_cast<std::uint32_t>(describe(job.model).layers.size());
  for (const auto& [size, ms] : {std::pair(16u, 10.0), std::pair(48u, 20.0), std::pair(96u, 35.0)})
    x.service.passes.push_back({0, layers, {size, 100, ms}});
  x.service.sizes = {16, 48, 96, 192};
  x.service.answered = {{24, 32}, {40, 32}};
  x.service.arrivals_per_s = per_s;
  return x;
}

situation running(situation x, std::uint32_t width, std::uint32_t depth) {
  x.current = {width, depth};
  x.left.assign(depth, width);
  x.running = true;
  return x;
}

shape shape_of(const plan_answer& x) {
  return {x.choice.width, x.choice.depth};
}

// given: more and more requests, eight slots / expected: two pipelines where one would do, as one may be lost; all
// slots in the end
TEST(decide_for_service, more_slots_where_more_comes) {
  const auto job = small_service();
  std::uint32_t before = 0;
  for (const double per_s : {0.0, 5.0, 40.0, 80.0, 1e4}) {
    const auto x = decide_for_service(job, seen(job, 8, per_s), usual_calm_ms);
    const auto slots = shape_of(x).slots();
    EXPECT_GE(slots, before) << per_s;
    EXPECT_EQ(x.choice.first_layer.size(), x.choice.depth + 1);
    EXPECT_EQ(x.why.policy, "serve");
    EXPECT_EQ(x.why.chosen.configuration, to_string(shape_of(x)));
    EXPECT_EQ(x.why.reason, x.choice.reason);
    EXPECT_GT(x.why.p99_ms, 0);
    EXPECT_EQ(x.why.requests_per_s > per_s, per_s < 1e4) << x.why.reason;
    if (per_s == 0) {
      EXPECT_EQ(slots, 2u) << x.why.reason;
      EXPECT_THAT(x.why.reason, StartsWith("2 pipelines of 1 stage: p99 "));
    }
    before = slots;
  }
  EXPECT_EQ(before, 8u);
  EXPECT_EQ(shape_of(decide_for_service(job, seen(job, 1, 1), usual_calm_ms)), (shape{1, 1}));
}

// given: nothing measured, or nothing asked for yet / expected: the fewest stages that fit, on all slots
TEST(decide_for_service, the_grid_while_nothing_is_measured) {
  const auto job = small_service();
  for (const bool has_passes : {false, true}) {
    auto now = seen(job, 8, 1);
    has_passes ? now.service.answered.clear() : now.service.passes.clear();
    const auto x = decide_for_service(job, now, usual_calm_ms);
    EXPECT_EQ(shape_of(x), (shape{8, 1}));
    EXPECT_THAT(x.why.reason, HasSubstr("the fewest stages that fit a slot, on 8 slots"));
    EXPECT_EQ(x.why.p99_ms + x.why.requests_per_s, 0);
  }
}

// given: a shape that runs, and a load for which another would be chosen / expected: it stays if that is hardly better,
// or the fleet changes too soon; not if a slot of it is gone, as there is a change in any case
TEST(decide_for_service, the_present_shape_unless_it_pays) {
  const auto job = small_service();
  const auto many = running(seen(job, 8, 1), 8, 1);
  const auto stays = decide_for_service(job, many, usual_calm_ms);
  EXPECT_EQ(shape_of(stays), (shape{8, 1})) << "fewer slots are no reason";
  EXPECT_THAT(stays.why.reason, StartsWith("stays with 8 pipelines of 1 stage: p99 "));
  EXPECT_THAT(stays.why.reason, HasSubstr("2 pipelines of 1 stage, p99 "));
  EXPECT_EQ(stays.why.expected_ms, 0);
  auto hit = many;
  hit.left = {7};
  hit.slots = 7;
  EXPECT_EQ(shape_of(decide_for_service(job, hit, usual_calm_ms)), (shape{2, 1}));
  auto few = running(seen(job, 8, 40), 2, 1);
  const auto grows = decide_for_service(job, few, usual_calm_ms);
  EXPECT_GT(shape_of(grows).slots(), 2u) << grows.why.reason;
  EXPECT_GT(grows.why.expected_ms, 0);
  few.figures.transfer_ms = 60'000;
  const auto waits = decide_for_service(job, few, 61'000);
  EXPECT_EQ(shape_of(waits), (shape{2, 1}));
  EXPECT_THAT(waits.why.reason, HasSubstr("is not worth a stall of 1m"));
  const auto one = running(seen(job, 2, 1), 1, 1);
  EXPECT_EQ(shape_of(decide_for_service(job, one, usual_calm_ms)), (shape{2, 1})) << "one is none when it is lost";
}

// given: what a job allows / expected: no other depths or widths, whatever comes
TEST(decide_for_service, within_the_jobs_limits) {
  auto job = small_service();
  job.min_depth = job.max_depth = 2;
  job.max_width = 3;
  for (const double per_s : {1.0, 1e4})
    EXPECT_EQ(decide_for_service(job, seen(job, 8, per_s), usual_calm_ms).choice.depth, 2u);
  EXPECT_EQ(shape_of(decide_for_service(job, seen(job, 8, 1e4), usual_calm_ms)), (shape{3, 2}));
  job.min_width = 3;
  EXPECT_EQ(shape_of(decide_for_service(job, seen(job, 8, 1), usual_calm_ms)), (shape{3, 2}));
  EXPECT_EQ(decide_for_service(job, seen(job, 5, 1), usual_calm_ms).choice.width, 0u);
}

// given: caches with room for few of the requests that come / expected: it counts with no more of them at once
TEST(decide_for_service, by_the_room_of_caches) {
  auto job = small_service();
  const auto with_room = decide_for_service(job, seen(job, 8, 100), usual_calm_ms);
  EXPECT_THAT(with_room.why.reason, Not(HasSubstr("none keeps up")));
  const auto cached = cached_values(job.model);
  const auto largest = *std::ranges::max_element(cached) * sizeof(float);
  const auto keeping = std::ranges::count_if(cached, [](auto x) { return x > 0; });
  job.model.sequence = 128;
  job.serve.cache_bytes = 2 * 128 * largest * static_cast<std::uint64_t>(keeping);
  const auto without = decide_for_service(job, seen(job, 8, 100), usual_calm_ms);
  EXPECT_THAT(without.why.reason, HasSubstr("none keeps up, this does most"));
}

// given: nonsense from nodes: layers that there are not, requests longer than the context / expected: an answer
TEST(decide_for_service, nonsense) {
  const auto job = small_service();
  auto now = seen(job, 4, 1e300);
  now.service.passes.push_back({3, 2, {16, 1, 1}});
  now.service.passes.push_back({0, 1'000'000, {16, 1, 1}});
  now.service.answered = {{1u << 24, 1u << 24}, {1, 1u << 24}, {1u << 24, 1}};
  EXPECT_GT(decide_for_service(job, now, usual_calm_ms).choice.width, 0u);
  now.service.passes = {{3, 2, {16, 1, 1}}};
  EXPECT_EQ(shape_of(decide_for_service(job, now, usual_calm_ms)), (shape{4, 1})) << "nothing is measured";
}

// given: a fleet that changes twice in six intervals of a minute, and one that does not / expected: three minutes; a
// day
TEST(calm_ms_of, table) {
  const auto job = small_service();
  EXPECT_EQ(calm_ms_of(job, single_path(3, {3, 4, 4, 4, 2, 2})), 180'000);
  EXPECT_EQ(calm_ms_of(job, single_path(3, {3, 3, 3})), 86'400'000);
  EXPECT_EQ(calm_ms_of(job, {}), 86'400'000);
}

// given: 1,000 slots, requests short and long, loads from hardly any to more than all can do / expected: decided in
// less than 100 ms of the processor
TEST(decide_for_service, a_thousand_slots_in_time) {
  if (!at_full_speed)
    GTEST_SKIP() << "a sanitizer takes the time, or nothing is optimised";
  auto job = small_service();
  job.model.layers = 24;
  job.max_depth = 26;
  job.model.sequence = 32'768;
  for (const auto& lengths : {answered_request{512, 16}, answered_request{512, 128}, answered_request{512, 20'000},
                              answered_request{30'000, 10}})
    for (const double per_s : {1.0, 1000.0, 1e6}) {
      auto now = running(seen(job, 1000, per_s), 250, 4);
      now.service.answered = {lengths};
      double least_ms = 1e9;
      for (int i = 0; i < 3; ++i) {
        const auto begin = std::clock();
        decide_for_service(job, now, usual_calm_ms);
        least_ms = std::min(least_ms, 1000.0 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
      }
      EXPECT_LT(least_ms, 100) << lengths.prompt << ' ' << lengths.tokens << ' ' << per_s;
    }
}

} // namespace
} // namespace parcae
