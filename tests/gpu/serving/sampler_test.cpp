// Which token follows.

#include "gpu/serving/sampler.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

namespace parcae {
namespace {

constexpr float infinite = std::numeric_limits<float>::infinity();

// given: temperature 0 / expected: the largest logit, of equal ones the first; the seed does not matter
TEST(sampler, temperature_0_takes_the_first_candidate) {
  const struct {
    std::vector<float> logits;
    std::uint32_t expected;
  } table[] = {{{1, 3, 2}, 1}, {{3, 3, 2}, 0}, {{-5}, 0}, {{-infinite, -1e30f, -infinite}, 1}, {{0, -0.0f}, 0}};
  for (const auto& [logits, expected] : table)
    for (std::uint64_t seed : {1, 2})
      EXPECT_EQ(token_of(logits, {.seed = seed, .temperature = 0}, 0), expected);
}

// given: what is no number, or no candidate / expected: said
TEST(sampler, refuses_what_is_not_finite) {
  for (const auto& logits :
       {std::vector<float>{}, {1, std::nanf("")}, {std::nanf(""), 1}, {1, infinite}, {-infinite, -infinite}})
    for (double temperature : {0.0, 1.0})
      EXPECT_THROW(token_of(logits, {.temperature = temperature}, 0), sampling_error);
}

/// How often each token is drawn at many positions, over how often it should be.
void expect_shares(const std::vector<float>& logits, sampling x, const std::map<std::uint32_t, double>& expected) {
  constexpr int draws = 20'000;
  std::map<std::uint32_t, int> found;
  for (int position = 0; position < draws; ++position)
    ++found[token_of(logits, x, static_cast<std::uint64_t>(position))];
  double sum = 0;
  for (const auto& [token, weight] : expected)
    sum += weight;
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [token, weight] : expected) {
    const auto share = weight / sum;
    EXPECT_NEAR(found[token] / double{draws}, share, 5 * std::sqrt(share * (1 - share) / draws)) << "token " << token;
  }
}

// given: four candidates of probabilities 0.4, 0.3, 0.2, 0.1, not in order / expected: their shares; of the first k; of
// the first with p together, the one that reaches it included; of both; by temperature
TEST(sampler, draws_by_probability) {
  std::vector<float> logits;
  for (const double p : {0.2, 0.4, 0.1, 0.3})
    logits.push_back(static_cast<float>(std::log(p) + 3));
  expect_shares(logits, {.seed = 1}, {{0, 2}, {1, 4}, {2, 1}, {3, 3}});
  expect_shares(logits, {.seed = 2, .top_k = 2}, {{1, 4}, {3, 3}});
  expect_shares(logits, {.seed = 2, .top_k = 9}, {{0, 2}, {1, 4}, {2, 1}, {3, 3}});
  expect_shares(logits, {.seed = 3, .top_p = 0.65}, {{1, 4}, {3, 3}});
  expect_shares(logits, {.seed = 3, .top_p = 0.75}, {{1, 4}, {3, 3}, {0, 2}});
  expect_shares(logits, {.seed = 3, .top_p = 1e-9}, {{1, 1}});
  expect_shares(logits, {.seed = 4, .top_p = 0.6, .top_k = 3}, {{1, 4}, {3, 3}}); // 7/9 of the three
  expect_shares(logits, {.seed = 5, .temperature = 0.5}, {{0, 4}, {1, 16}, {2, 1}, {3, 9}});
  logits.push_back(-infinite);
  expect_shares(logits, {.seed = 6}, {{0, 2}, {1, 4}, {2, 1}, {3, 3}});
}

// given: one request / expected: a token follows from seed and position alone, and from both
TEST(sampler, is_a_function_of_seed_and_position) {
  const std::vector<float> even(1'000);
  const auto drawn = [&](std::uint64_t seed, std::uint64_t position) {
    return token_of(even, {.seed = seed}, position);
  };
  EXPECT_EQ(drawn(7, 3), drawn(7, 3));
  EXPECT_NE(drawn(7, 3), drawn(7, 4));
  EXPECT_NE(drawn(7, 3), drawn(8, 3));
  const std::uint32_t recorded[] = {140, 590, 189};
  for (std::uint64_t position = 0; position < std::size(recorded); ++position)
    EXPECT_EQ(drawn(1, position), recorded[position]);
}

// given: logits far apart, and a vocabulary as large as GPT-2's / expected: libm's shares, no token without weight
TEST(sampler, weighs_like_libm) {
  std::mt19937_64 draw(1);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> logits(50'257);
  for (auto& x : logits)
    x = normal(draw);
  logits[17] = 1'000; // exp of all others is nothing beside it
  for (std::uint64_t position = 0; position < 20; ++position)
    EXPECT_EQ(token_of(logits, {}, position), 17u);
}

} // namespace
} // namespace parcae
