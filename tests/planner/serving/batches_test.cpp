// Batches in virtual time, by hand, and against the published accounting.

#include "planner/cost/profile.hpp"
#include "planner/serving/batches.hpp"
#include "tests/planner/serving/serving_figures.hpp"
#include "tests/planner/serving/small_service.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace parcae::serving {
namespace {

using testing::ElementsAre;

std::vector<served_request> requests_of(std::initializer_list<arrival> arrivals) {
  std::vector<served_request> result;
  for (const auto& x : arrivals)
    result.push_back({x});
  return result;
}

TEST(pass_model, linear_between_sizes_or_padded) {
  auto model = round_model();
  EXPECT_THAT(model.times(1, 5, 12).stage_ms, ElementsAre(3, 3, 3, 3, 3, 3.75, 4.5, 5.25, 6, 6.75, 7.5, 8.25, 9));
  model.padded = true;
  EXPECT_THAT(model.times(1, 12, 9).stage_ms, ElementsAre(1, 1, 1, 1, 1, 2, 2, 2, 2, 2.25));
}

// given: passes of a model in one stage, and in two that are a quarter and the rest of it / expected: of the whole;
// what was not measured lies between, or is taken for dearer than it is
TEST(pass_model, points_of_what_was_measured) {
  const std::vector<std::uint32_t> sizes{16, 48, 96};
  EXPECT_TRUE(points_of({}, sizes).empty());
  const auto ms = [&](const std::vector<measured_pass>& measured) {
    std::vector<double> result;
    for (const auto& x : points_of(measured, sizes))
      result.push_back(x.ms);
    return result;
  };
  EXPECT_THAT(ms({{1, 48, 10}}), ElementsAre(10, 10, 20));
  EXPECT_THAT(ms({{1, 16, 10}, {0.25, 16, 4}, {0.75, 16, 8}}), ElementsAre(11, 33, 66));
  EXPECT_THAT(ms({{1, 16, 10}, {1, 96, 20}}), ElementsAre(10, 14, 20));
  EXPECT_THAT(ms({{1, 16, 10}, {1, 24, 12}, {1, 96, 20}}), ElementsAre(10, 12, 12 + 8 / 3.0, 20)) << "another's size";
}

// given: a model of which one layer is as much as the other three / expected: its longest stage is that
TEST(pass_model, layers_that_are_not_alike) {
  auto model = round_model();
  EXPECT_EQ(model.longest_stage(5), 3);
  model.longest_by_depth = {12, 6, 6};
  EXPECT_EQ(model.times(1, 2, 1).stage_ms[1], 6);
  EXPECT_EQ(model.times(1, 3, 1).stage_ms[1], 6);
}

TEST(pass_model, file) {
  const std::string text = R"({"name": "gpt", "layers": 6, "passes": [{"rows": 16, "ms": 2}, {"rows": 48, "ms": 3}],
    "hop_ms": 0.5, "cache_bytes": 1024})";
  EXPECT_TRUE(is_passes(text));
  const auto model = parse_passes(text);
  EXPECT_EQ(model.times(1, 3, 20).stage_ms[16], 4);
  EXPECT_EQ(model.times(1, 3, 20).stage_ms[17], 6);
  EXPECT_EQ(model.times(1, 3, 20).hop_ms[17], 0.5);
  const auto error = [](const char* json) {
    try {
      parse_passes(json);
    } catch (const parse_error& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(error(R"({"name": "x", "layers": 1, "passes": []})"), "passes must not be empty");
  EXPECT_EQ(error(R"({"name": "x", "layers": 1, "passes": [{"rows": 2, "ms": 1}, {"rows": 2, "ms": 1}]})"),
            "passes[1] must have more rows than the one before");
  EXPECT_EQ(error(R"({"name": "x", "layers": 1, "passes": [{"rows": 2}]})"), "passes[0] lacks the key \"ms\"");
}

// given: 3 stages of 4 layers, a prompt of 8 in chunks of 4 and 3 new tokens / expected: a pass of 4 rows takes 4 ms in
// a stage, the second chunk follows a stage behind, tokens take 12 ms
TEST(continuous_batches, one_request_by_hand) {
  const auto model = round_model();
  auto requests = requests_of({{0, {8, 3}}});
  const auto work = continuous_batches(model, {4, 4}, requests);
  request_queue queue{0};
  work->change({1, 3, 1}, {}, queue, 0);
  EXPECT_EQ(run_out(*work, queue), 16 + 12 + 12);
  EXPECT_EQ(requests[0].first_ms, 16);
  EXPECT_EQ(requests[0].end_ms, 40);
  EXPECT_EQ(requests[0].tokens, 3u);
  EXPECT_EQ(requests[0].computed, 10u); // the last token is not computed
}

// given: two requests, two stages / expected: they decode side by side, as fast as alone
TEST(continuous_batches, stages_side_by_side) {
  const auto model = round_model();
  auto requests = requests_of({{0, {1, 4}}, {0, {1, 4}}});
  const auto work = continuous_batches(model, {4, 4}, requests);
  request_queue queue{0, 1};
  work->change({1, 2, 1}, {}, queue, 0);
  run_out(*work, queue);
  EXPECT_EQ(requests[0].end_ms, 4 * 12);
  EXPECT_EQ(requests[1].end_ms, 4 * 12 + 6);
}

// given: 2 pipelines whose requests have tokens / expected: with an heir a request goes on, without it is computed anew
// with the tokens it has, and is at the queue's head
TEST(continuous_batches, change_with_and_without_an_heir) {
  const auto model = round_model();
  auto requests = requests_of({{0, {2, 10}}, {0, {2, 10}}, {1, {2, 10}}});
  const auto work = continuous_batches(model, {1, 4}, requests);
  request_queue queue{0, 1, 2};
  work->change({2, 1, 1}, {}, queue, 0);
  work->fill(queue, 0);
  EXPECT_THAT(queue, ElementsAre(2));
  for (int i = 0; i < 3; ++i)
    work->advance(work->next_ms());
  EXPECT_EQ(requests[0].tokens, 3u);
  EXPECT_FALSE(work->stop(36));
  work->advance(48);
  EXPECT_TRUE(work->stop(48));
  EXPECT_EQ(requests[0].tokens, 4u); // what was under way came
  EXPECT_THAT(work->cached(), ElementsAre(5, 5));
  work->change({1, 2, 1}, {std::nullopt, 0}, queue, 100);
  EXPECT_THAT(queue, ElementsAre(0, 2));
  EXPECT_EQ(run_out(*work, queue, 100), 100 + 6 * 12 + (18 + 5 * 12) + 10 * 12);
  EXPECT_EQ(requests[1].end_ms, 172);
  EXPECT_EQ(requests[1].computed, 11u);
  EXPECT_EQ(requests[0].computed, 5u + 11u);
  EXPECT_EQ(requests[0].tokens, 10u);
}

// given: three wait, batches of 4 / expected: two go, the third when they are done
TEST(static_batches, powers_of_two) {
  const auto profile = small_profile();
  auto requests = requests_of({{0, {512, 10}}, {0, {512, 10}}, {0, {512, 5}}});
  const auto work = static_batches(profile, 4, requests);
  request_queue queue{0, 1, 2};
  work->change({1, 1, 2}, {}, queue, 0);
  run_out(*work, queue);
  EXPECT_DOUBLE_EQ(requests[1].end_ms, 40 + 100 + 1);
  EXPECT_DOUBLE_EQ(requests[1].first_ms, 40 + 10 + 1);
  EXPECT_DOUBLE_EQ(requests[2].end_ms, 141 + 40 + 50 + 1);
  EXPECT_EQ(requests[2].computed, 517u);
}

// given: a change after 3 tokens / expected: goes on behind them; without an heir from the beginning
TEST(static_batches, committed_by_token) {
  const auto profile = small_profile();
  auto requests = requests_of({{0, {512, 10}}, {0, {512, 10}}});
  const auto work = static_batches(profile, 1, requests);
  request_queue queue{0, 1};
  work->change({2, 1, 2}, {}, queue, 0);
  work->fill(queue, 0);
  EXPECT_TRUE(work->stop(41 + 35));
  EXPECT_THAT(work->cached(), ElementsAre(515, 515));
  work->change({1, 1, 1}, {std::nullopt, 0}, queue, 100);
  EXPECT_THAT(queue, ElementsAre(0));
  run_out(*work, queue, 100);
  EXPECT_DOUBLE_EQ(requests[1].end_ms, 100 + 7 * 20);
  EXPECT_EQ(requests[1].computed, 522u);
  EXPECT_DOUBLE_EQ(requests[0].end_ms, 240 + 80 + 200 + 1);
  EXPECT_EQ(requests[0].computed, 515u + 522u);
  EXPECT_DOUBLE_EQ(requests[0].first_ms, 51); // that it was sent once
}

// given: SpotServe's profiles, a request alone whose prompt is one pass / expected: its published time, but for the
// embeddings and the last token, which the published accounting computes too
TEST(continuous_batches, alone_as_published) {
  for (const auto* name : {"opt-6.7b", "gpt-20b", "llama-30b"})
    for (const std::uint32_t degree : {4, 8})
      for (const std::uint32_t depth : {1, 2, 3, 4}) {
        const auto profile = published_model(name);
        const auto model = passes_of(profile);
        auto requests = requests_of({{0, {512, 128}}});
        const auto work = continuous_batches(model, {1, 512}, requests);
        request_queue queue{0};
        work->change({1, depth, degree}, {}, queue, 0);
        const auto cost = spotserve_cost(profile, {degree, depth, 1, 1, 1}, 128);
        EXPECT_NEAR(run_out(*work, queue), cost.prompt_ms + 127 * cost.token_ms, 1e-6) << name;
      }
}

} // namespace
} // namespace parcae::serving
