// SpotServe's published accounting: its artifact's own times and choices, and the rule on a model by hand.

#include "planner/serving/spotserve.hpp"
#include "tests/planner/serving/serving_figures.hpp"
#include "tests/planner/serving/small_service.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace parcae::serving {
namespace {

// given: 3 stages of 4 layers / expected: by hand
TEST(spotserve, cost_by_hand) {
  const auto model = small_profile();
  const auto alone = spotserve_cost(model, {1, 3, 1, 1, 1}, 10);
  EXPECT_DOUBLE_EQ(alone.prompt_ms, 8 * 4 * 3 + 40);
  EXPECT_DOUBLE_EQ(alone.token_ms, 2 * 4 * 3 + 1);
  EXPECT_DOUBLE_EQ(alone.total_ms, 136 + 10 * 25 + 1);
  // Prompts in two parts of two: the second follows a stage behind; published as if each took half as long.
  const auto four = spotserve_cost(model, {1, 3, 4, 2, 1}, 10);
  EXPECT_DOUBLE_EQ(four.prompt_ms, 8 * 4 * 4 / 2 + 20);
  EXPECT_DOUBLE_EQ(four.token_ms, 4 * 4 * 3 + 1);
}

// given: 4 GPUs, pipelines of 2 at least / expected: of those that do what is asked the shortest, else the most; of
// equals the first
TEST(spotserve, rule) {
  const auto model = small_profile();
  const auto idle = spotserve_choose(model, 4, {2, 4, 0, 10});
  ASSERT_TRUE(idle);
  EXPECT_EQ(idle->form.degree, 2u);
  EXPECT_EQ(idle->form.depth, 1u);
  EXPECT_EQ(idle->width, 2u);
  EXPECT_EQ(idle->form.batch, 1u); // 2 would not take longer
  EXPECT_DOUBLE_EQ(idle->total_ms, 40 + 100 + 1);
  EXPECT_DOUBLE_EQ(idle->requests_per_s, 2 / 0.141);
  const auto busy = spotserve_choose(model, 4, {2, 4, 20, 10});
  ASSERT_TRUE(busy);
  EXPECT_EQ(busy->form.batch, 2u);
  const auto too_much = spotserve_choose(model, 4, {2, 4, 1e6, 10});
  ASSERT_TRUE(too_much);
  EXPECT_DOUBLE_EQ(too_much->requests_per_s, 8 / 0.242); // 4, whose tokens take twice as long
  EXPECT_FALSE(spotserve_choose(model, 1, {2, 4, 0, 10}));
}

struct golden_choice {
  std::uint32_t gpus, width, depth, degree, batch; // prompts in `batch` parts, tokens in one
  double ms, per_s;
};

struct golden_model {
  const char* name;
  std::uint32_t least_gpus;
  double asked_per_s;
  batch_form alone; // its Table 1
  double alone_ms;
  std::vector<golden_choice> choices;
};

// What the artifact computes, all digits.
const std::vector<golden_model> golden{
    {"opt-6.7b",
     4,
     2.0,
     {4, 1, 1, 1, 1},
     5447.3276,
     {{48, 6, 2, 4, 2, 4729.3774, 2.5373318695183853},
      {44, 5, 2, 4, 2, 4729.3774, 2.114443224598654},
      {40, 5, 2, 4, 2, 4729.3774, 2.114443224598654},
      {36, 9, 1, 4, 2, 4888.796, 3.6818881376927974},
      {32, 8, 1, 4, 2, 4888.796, 3.2727894557269313},
      {28, 7, 1, 4, 2, 4888.796, 2.863690773761065},
      {24, 6, 1, 4, 2, 4888.796, 2.4545920917951984},
      {20, 5, 1, 4, 2, 4888.796, 2.0454934098293323},
      {16, 4, 1, 4, 4, 5289.9902, 3.0245802723793322},
      {12, 3, 1, 4, 4, 5289.9902, 2.2684352042844997}}},
    {"gpt-20b",
     12,
     0.4,
     {4, 3, 1, 1, 1},
     14372.8266,
     {{48, 3, 2, 8, 2, 12116.159, 0.4952064428999322},
      {44, 2, 2, 8, 4, 12960.5168, 0.6172593364486824},
      {40, 2, 2, 8, 4, 12960.5168, 0.6172593364486824},
      {36, 2, 2, 8, 4, 12960.5168, 0.6172593364486824},
      {32, 2, 2, 8, 4, 12960.5168, 0.6172593364486824},
      {28, 2, 3, 4, 4, 14458.6849, 0.553300667061359},
      {24, 2, 3, 4, 4, 14458.6849, 0.553300667061359},
      {20, 1, 2, 8, 4, 12960.5168, 0.3086296682243412},
      {16, 1, 2, 8, 4, 12960.5168, 0.3086296682243412},
      {12, 1, 3, 4, 4, 14458.6849, 0.2766503335306795}}},
    {"llama-30b",
     16,
     0.2,
     {8, 2, 1, 1, 1},
     17539.8696,
     {{48, 1, 6, 8, 4, 17290.7152, 0.23133803048239435},
      {44, 1, 4, 8, 4, 17382.5003, 0.23011649250482102},
      {40, 1, 4, 8, 4, 17382.5003, 0.23011649250482102},
      {36, 1, 4, 8, 4, 17382.5003, 0.23011649250482102},
      {32, 1, 4, 8, 4, 17382.5003, 0.23011649250482102},
      {28, 1, 3, 8, 4, 17497.6054, 0.22860270925986248},
      {24, 1, 3, 8, 4, 17497.6054, 0.22860270925986248},
      {20, 1, 2, 8, 4, 17751.1356, 0.22533769614153584},
      {16, 1, 2, 8, 4, 17751.1356, 0.22533769614153584}}},
};

// given: the artifact's T4 profiles / expected: its times of one request alone, its 29 choices, nothing on 12 GPUs for
// LLaMA-30B
TEST(spotserve, golden) {
  std::size_t choices = 0;
  for (const auto& expected : golden) {
    const auto model = published_model(expected.name);
    EXPECT_NEAR(spotserve_cost(model, expected.alone, 128).total_ms, expected.alone_ms, 1e-6) << expected.name;
    const spotserve_options options{expected.least_gpus, 4, expected.asked_per_s, 128};
    for (const auto& x : expected.choices) {
      SCOPED_TRACE(std::string(expected.name) + " on " + std::to_string(x.gpus));
      const auto found = spotserve_choose(model, x.gpus, options);
      ASSERT_TRUE(found);
      EXPECT_EQ(found->width, x.width);
      EXPECT_EQ(found->form.depth, x.depth);
      EXPECT_EQ(found->form.degree, x.degree);
      EXPECT_EQ(found->form.batch, x.batch);
      EXPECT_EQ(found->form.prompt_parts, x.batch);
      EXPECT_EQ(found->form.token_parts, 1u);
      EXPECT_NEAR(found->total_ms, x.ms, 1e-6);
      EXPECT_NEAR(found->requests_per_s, x.per_s, 1e-6);
      ++choices;
    }
  }
  EXPECT_EQ(choices, 29u);
  EXPECT_FALSE(spotserve_choose(published_model("llama-30b"), 12, {16, 4, 0.2, 128}));
}

std::string profile_error(const std::string& text) {
  try {
    parse_serving_profile(text);
  } catch (const parse_error& e) {
    return e.what();
  }
  return "none";
}

TEST(serving_profile, what_is_wrong_is_named) {
  using testing::HasSubstr;
  EXPECT_THAT(profile_error("{\n  \"name\": oops"), HasSubstr("line 2: not JSON"));
  EXPECT_EQ(profile_error("[1]"), "the document lacks the key \"name\"");
  EXPECT_EQ(profile_error(R"({"name": "x", "layer_num": 4, "padded_layer_num": 3})"),
            "padded_layer_num must be a number from 4 to 1e+09");
  const std::string head = R"({"name": "x", "layer_num": 1, "padded_layer_num": 1, "hidden_size": 1, "max_tp": 2,
    "final_fix_factor": 1, "pp_init_comm": 0, "pp_incr_comm": 0, "embed": [0], )";
  EXPECT_EQ(profile_error(head + R"("tp-1": {"bsz-1": {"init": 1}}})"), "tp-1.bsz-1 lacks the key \"incr\"");
  EXPECT_EQ(profile_error(head + R"("tp-1": {"bsz-1": {"init": 1, "incr": 1}}})"),
            "the document lacks the key \"tp-2\"");
  EXPECT_EQ(profile_error(head + R"("tp-1": {"bsz-1": {"init": 1, "incr": 0}}})"),
            "tp-1.bsz-1.incr must be a number from 1e-06 to 1e+09");
  EXPECT_EQ(profile_error(head + R"("tp-1": {"bsz-1": {"init": 1, "incr": 1}}, "tp-2": {"bsz-1": {"init": 1, "incr": 1},
    "bsz-2": {"init": 1, "incr": 1}}})"),
            "tp-2 has other batches than tp-1");
  EXPECT_EQ(profile_error(head + R"("tp-1": {"bsz-1": {"init": 1, "incr": 1}, "bsz-2": {"init": 1, "incr": 1}},
    "tp-2": {"bsz-1": {"init": 1, "incr": 1}, "bsz-2": {"init": 1, "incr": 1}}})"),
            "embed must have 2 elements, one for each batch");
}

} // namespace
} // namespace parcae::serving
