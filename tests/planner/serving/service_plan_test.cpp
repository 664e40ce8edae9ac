// Which pipelines to have: what the rule prefers, what a change has to be worth, how long it takes to say.

#include "planner/serving/service_plan.hpp"
#include "tests/planner/serving/serving_figures.hpp"
#include "tests/planner/serving/small_service.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>

namespace parcae::serving {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const service_options few{1, {4, 4}, 200, 1};

// given: a model whose passes take as long on any depth, hardly any requests / expected: one slot is as good as eight
TEST(service_plan, fewer_slots_where_all_are_alike) {
  const auto model = round_model();
  const auto found = service_planner(model, few).choose(8, {0.01, {{4, 10}}});
  EXPECT_EQ(found.best.shape, (service_shape{1, 1, 1}));
  EXPECT_EQ(found.best.p99_ms, 12 + 9 * 12);
  EXPECT_TRUE(found.best.keeps_up);
  EXPECT_THAT(found.why, StartsWith("1 pipeline of 1 stage: p99 120ms at 0.01 requests a second, "));
}

// given: prompts of four chunks / expected: hops apart, three stages are done with them sooner, as chunks follow each
// other
TEST(service_plan, stages_for_long_prompts) {
  const auto model = round_model();
  const auto found = service_planner(model, few).choose(3, {0.01, {{16, 2}}});
  EXPECT_EQ(found.best.shape, (service_shape{1, 3, 1}));
  EXPECT_EQ(found.best.p99_ms, (3 + 3) * 4 + 12);
}

// given: more and more requests / expected: more slots; beyond what all can do the most of them
TEST(service_plan, more_slots_where_more_comes) {
  const auto model = round_model();
  service_planner planner(model, few);
  std::uint32_t before = 0;
  for (const double per_s : {1.0, 30.0, 100.0, 150.0}) {
    const auto found = planner.choose(8, {per_s, {{4, 10}}});
    EXPECT_TRUE(found.best.keeps_up) << per_s;
    EXPECT_GE(found.best.shape.slots(), before) << per_s;
    before = found.best.shape.slots();
  }
  EXPECT_EQ(before, 8u);
  const auto found = planner.choose(8, {1e4, {{4, 10}}});
  EXPECT_FALSE(found.best.keeps_up);
  EXPECT_THAT(found.why, HasSubstr("none keeps up, this does most"));
  for (const std::uint32_t depth : {1, 2, 3, 4, 6})
    EXPECT_GE(found.best.most_per_s, planner.figures({8 / depth, depth, 1}, {1e4, {{4, 10}}}).most_per_s) << depth;
}

TEST(service_plan, what_fits) {
  const auto model = round_model();
  service_planner planner(model, {5, {4, 4}, 200, 1});
  const auto none = planner.choose(4, {1, {{4, 10}}});
  EXPECT_EQ(none.best.shape.width, 0u);
  EXPECT_EQ(none.why, "nothing fits 4 slots: a pipeline needs 5");
  EXPECT_EQ(planner.choose(6, {1, {{4, 10}}}).best.shape, (service_shape{1, 6, 1})); // 5 stages are as long as 6
}

// given: a busy pipeline, and slots for two / expected: a change if the fleet stays long enough for its stall
TEST(service_plan, a_change_is_worth_its_stall) {
  const auto model = round_model();
  service_planner planner(model, few);
  const service_load load{20, {{4, 10}}};
  const service_shape one{1, 1, 1};
  const auto best = planner.choose(2, load).best;
  ASSERT_NE(best.shape, one);
  EXPECT_EQ(planner.choose(2, load, one, {0, 1000}).best.shape, best.shape);
  EXPECT_EQ(planner.choose(2, load, one, {1000, 1e9}).best.shape, best.shape);
  const auto stays = planner.choose(2, load, one, {60'000, 60'000});
  EXPECT_EQ(stays.best.shape, one);
  EXPECT_THAT(stays.why, StartsWith("stays with 1 pipeline of 1 stage: "));
  EXPECT_THAT(stays.why, HasSubstr("is not worth a stall of 1m"));
  // One that does not keep up, or has not enough slots, goes in any case.
  EXPECT_EQ(planner.choose(2, {50, {{4, 10}}}, one, {60'000, 1}).best.shape,
            planner.choose(2, {50, {{4, 10}}}).best.shape);
  EXPECT_EQ(planner.choose(1, load, {2, 1, 1}, {60'000, 1}).best.shape, one);
}

// given: what is hardly better, and shapes none of which keeps up / expected: no change, unless much more is done
TEST(service_plan, no_change_for_hardly_anything) {
  const auto model = round_model();
  service_planner planner(model, few);
  const auto stays = planner.choose(8, {0.01, {{4, 10}}}, {8, 1, 1}, {0, 1e9});
  EXPECT_EQ(stays.best.shape, (service_shape{8, 1, 1}));
  EXPECT_THAT(stays.why, HasSubstr("1 pipeline of 1 stage, p99 120ms, is hardly better"));
  const service_load much{1e4, {{4, 10}}};
  ASSERT_EQ(planner.choose(16, much).best.shape, (service_shape{16, 1, 1}));
  EXPECT_EQ(planner.choose(16, much, {15, 1, 1}, {0, 1e9}).best.shape, (service_shape{15, 1, 1}));
  EXPECT_EQ(planner.choose(16, much, {14, 1, 1}, {0, 1e9}).best.shape, (service_shape{16, 1, 1}));
}

// given: long answers, tried as shorter ones / expected: about the same figures
TEST(service_plan, long_answers_are_tried_shorter) {
  const auto model = round_model();
  auto options = few;
  options.most_passes = 40;
  const service_load load{2, {{400, 800}, {80, 160}}};
  for (const std::uint32_t depth : {1, 3}) {
    const service_shape x{2, depth, 1};
    const auto whole = service_planner(model, few).figures(x, load);
    const auto shorter = service_planner(model, options).figures(x, load);
    EXPECT_NEAR(shorter.most_per_s / whole.most_per_s, 1, 0.05) << depth;
    EXPECT_NEAR(shorter.mean_ms / whole.mean_ms, 1, 0.05) << depth;
    EXPECT_NEAR(shorter.p99_ms / whole.p99_ms, 1, 0.05) << depth;
  }
}

// given: a P99 beyond which none is of interest / expected: the same figures up to it, from it on that it is larger,
// though not all requests were tried
TEST(service_plan, more_than_is_of_interest_is_infinite) {
  const auto model = round_model();
  for (const double per_s : {0.5, 2.0, 8.0, 50.0})
    for (const service_shape x : {service_shape{1, 1, 1}, {4, 2, 1}, {2, 8, 1}}) {
      const service_load load{per_s, {{4, 10}, {30, 60}}};
      const auto whole = service_planner(model, few).figures(x, load);
      const auto most = service_planner(model, few).figures(x, load, whole.p99_ms);
      EXPECT_EQ(most.p99_ms, whole.p99_ms);
      EXPECT_EQ(most.mean_ms, whole.mean_ms);
      const auto less = service_planner(model, few).figures(x, load, std::nextafter(whole.p99_ms, 0));
      EXPECT_TRUE(std::isinf(less.p99_ms)) << whole.p99_ms;
      EXPECT_EQ(less.most_per_s, whole.most_per_s);
    }
}

// given: limits of pipelines and depths / expected: none beyond; two pipelines where slots allow, if that is wanted
TEST(service_plan, limits) {
  const auto model = round_model();
  auto options = few;
  options.wanted_width = 2;
  const service_load little{0.01, {{4, 10}}};
  EXPECT_EQ(service_planner(model, options).choose(8, little).best.shape, (service_shape{2, 1, 1}));
  EXPECT_EQ(service_planner(model, options).choose(1, little).best.shape, (service_shape{1, 1, 1}));
  EXPECT_EQ(service_planner(model, options).choose(8, little, {1, 1, 1}, {1e6, 1}).best.shape,
            (service_shape{2, 1, 1}));
  options.max_width = 3;
  EXPECT_EQ(service_planner(model, options).choose(8, {1e4, {{4, 10}}}).best.shape.width, 3u);
  options.requests_by_depth = {0, 0, 0, 4};
  EXPECT_EQ(service_planner(model, options).choose(8, little).best.shape, (service_shape{2, 4, 1}));
  EXPECT_EQ(service_planner(model, options).choose(3, little).best.shape.width, 0u);
  options.min_width = 3;
  EXPECT_EQ(service_planner(model, options).choose(8, little).best.shape.width, 0u);
}

// given: 1,000 slots, loads from hardly any to more than all can do / expected: decided in less than 100 ms of
// the processor
TEST(service_plan, a_thousand_slots_in_time) {
  if (!at_full_speed)
    GTEST_SKIP() << "a sanitizer takes the time, or nothing is optimised";
  pass_model large = round_model();
  large.layers = 48;
  std::vector<std::pair<pass_model, std::uint32_t>> models{{large, 1}, {large, 12}};
  models.emplace_back(passes_of(published_model("gpt-20b")), 12);
  double most_ms = 0;
  for (const auto& [model, least] : models)
    for (const std::uint32_t batch : {8, 64})
      for (const double share : {0.01, 0.5, 0.9, 2.0}) {
        const service_options options{least, {batch, 64}, 200, 1};
        const service_load load{
            share * service_planner(model, options).figures({1000 / least, least, 1}, {1, {{512, 128}}}).most_per_s,
            {{512, 128}}};
        double least_ms = 1e9;
        for (int i = 0; i < 3; ++i) { // as others may have its caches
          service_planner planner(model, options);
          const auto begin = std::clock();
          planner.choose(1000, load);
          least_ms = std::min(least_ms, 1000.0 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
        }
        most_ms = std::max(most_ms, least_ms);
        EXPECT_LT(least_ms, 100) << model.name << ' ' << batch << ' ' << share;
      }
  RecordProperty("most_us", std::to_string(std::lround(1000 * most_ms)));
}

// given: LLaMA-30B on 32 GPUs at its rate / expected: SpotServe has one pipeline that is nearly as busy as can be, by
// queueing two are better
TEST(service_plan, two_half_busy_pipelines_rather_than_a_busy_one) {
  const auto profile = published_model("llama-30b");
  EXPECT_EQ(spotserve_choose(profile, 32, {16, 4, 0.2, 128})->width, 1u);
  const auto model = passes_of(profile);
  const auto found = service_planner(model, {16, {8, 64}, 200, 1}).choose(32, {0.2, {{512, 128}}});
  EXPECT_EQ(found.best.shape.width, 2u) << found.why;
}

} // namespace
} // namespace parcae::serving
