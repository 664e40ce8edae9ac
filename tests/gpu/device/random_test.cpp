// Streams of random numbers: against published vectors, libm and the distributions they are of.

#include "gpu/device/kernels.hpp"
#include "gpu/device/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

namespace parcae {
namespace {

// given: counter, key (Random123's kat_vectors) / expected: Philox 4×32-10
TEST(random, philox_equals_its_published_vectors) {
  struct row {
    std::uint32_t counter[4], key[2], expected[4];
  };
  const row table[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  const auto pair = [](const std::uint32_t* x) { return std::uint64_t{x[1]} << 32 | x[0]; };
  for (const auto& x : table) {
    const auto words = philox(pair(x.key), pair(x.counter), pair(x.counter + 2));
    EXPECT_TRUE(std::ranges::equal(words.x, x.expected));
  }
}

/// Distance in units of the last place of `of`.
double last_places(double x, double of) {
  return std::abs(x - of) / std::ldexp(1, std::max(-126, std::ilogb(of)) - 23);
}

/// All words near the ends and around powers of two, and many between.
std::vector<std::uint32_t> all_sorts_of_words() {
  std::vector<std::uint32_t> result;
  for (std::uint32_t i = 0; i < 1000; ++i)
    result.insert(result.end(), {i, ~i});
  for (int bit = 0; bit < 32; ++bit)
    for (std::uint32_t i = 0; i < 100; ++i)
      result.insert(result.end(), {(1u << bit) + i, (1u << bit) - i});
  for (std::uint64_t block = 0; block < 250'000; ++block) {
    const auto words = philox(5, block);
    result.insert(result.end(), words.x, words.x + 4);
  }
  return result;
}

// The bounds are what random.hpp says.
TEST(random, polynomials_are_close_to_libm) {
  double log_error = 0, direction_error = 0;
  for (auto word : all_sorts_of_words()) {
    const double u = (static_cast<float>(word) + 0.5f) * 0x1p-32f; // float32 is what it computes in
    if (u == 1)
      EXPECT_EQ(minus_two_log(word), 0);
    else
      log_error = std::max(log_error, last_places(minus_two_log(word), -2 * std::log(u)));
    const auto angle = 2 * std::numbers::pi * (static_cast<double>(word) / 0x1p32);
    const auto found = direction_of(word);
    direction_error =
        std::max({direction_error, std::abs(found.cosine - std::cos(angle)), std::abs(found.sine - std::sin(angle))});
  }
  EXPECT_LE(log_error, 1);
  EXPECT_LE(direction_error, 2 * 0x1p-24);
}

TEST(random, normal_numbers_are_close_to_libm) {
  double error = 0; // relative to the radius
  for (std::uint64_t block = 0; block < 1'000'000; ++block) {
    const auto words = philox(6, block);
    const double u = (static_cast<float>(words.x[0]) + 0.5f) * 0x1p-32f;
    const auto radius = std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * words.x[1] / 0x1p32;
    const auto found = normal_of(words.x[0], words.x[1]);
    error = std::max({error, std::abs(found.x - radius * std::cos(angle)) / std::max(1.0, radius),
                      std::abs(found.y - radius * std::sin(angle)) / std::max(1.0, radius)});
  }
  EXPECT_LE(error, 4 * 0x1p-24);
}

TEST(random, radius_is_never_not_a_number) {
  for (auto word : all_sorts_of_words()) {
    EXPECT_GE(minus_two_log(word), 0);
    EXPECT_LE(minus_two_log(word), 45.8f);
  }
  EXPECT_NEAR(std::sqrt(minus_two_log(0)), 6.7637, 1e-4);
}

std::vector<float> normal_values(std::size_t n, std::uint64_t seed, float scale = 1) {
  std::vector<float> result(n);
  draw_normal(result.data(), n, seed, scale);
  return result;
}

// given: a million numbers / expected: the normal distribution function, by Kolmogorov and Smirnov at 0.1 %, and
// moments within four standard errors
TEST(random, normal_numbers_are_normal) {
  const std::size_t n = 1'000'000;
  auto x = normal_values(n, 1);
  double sums[5] = {};
  for (double value : x)
    for (int k = 1; k <= 4; ++k)
      sums[k] += std::pow(value, k) / n;
  EXPECT_NEAR(sums[1], 0, 4 * std::sqrt(1.0 / n));
  EXPECT_NEAR(sums[2], 1, 4 * std::sqrt(2.0 / n));
  EXPECT_NEAR(sums[3], 0, 4 * std::sqrt(15.0 / n));
  EXPECT_NEAR(sums[4], 3, 4 * std::sqrt(96.0 / n));
  std::ranges::sort(x);
  double most = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const auto p = std::erfc(-x[i] / std::numbers::sqrt2) / 2;
    most = std::max({most, std::abs(p - static_cast<double>(i) / n), std::abs(p - static_cast<double>(i + 1) / n)});
  }
  EXPECT_LE(most, 1.95 / std::sqrt(n));
}

TEST(random, neighbours_are_independent) {
  const std::size_t n = 1'000'000;
  const auto x = normal_values(n, 2);
  for (std::size_t distance : {1, 2, 3, 4, 8}) {
    double sum = 0;
    for (std::size_t i = 0; i + distance < n; ++i)
      sum += static_cast<double>(x[i]) * x[i + distance] / n;
    EXPECT_NEAR(sum, 0, 4 / std::sqrt(n)) << distance;
  }
}

// given: parts of a stream, of all lengths around blocks and tiles / expected: the values of the whole
TEST(random, a_part_equals_the_same_part_of_the_whole) {
  const std::size_t n = 5000;
  std::vector<float> ones(n, 1), whole(n), dropped(n), uniform(n);
  const auto mask = mask_of(3, 0.4);
  draw_normal(whole.data(), n, 3, 0.02f);
  draw_uniform(uniform.data(), n, 3, 0.5f);
  drop_values(dropped.data(), ones.data(), n, mask);
  for (std::size_t first : {0, 4, 1020, 1024, 2048, 3000})
    for (std::size_t length : {0, 1, 3, 4, 5, 1023, 1024, 1025, 2000}) {
      std::vector<float> part(length + 1, 77);
      const auto same = [&](const std::vector<float>& of) {
        return std::equal(part.begin(), part.end() - 1, of.begin() + static_cast<std::ptrdiff_t>(first)) &&
               part.back() == 77;
      };
      draw_normal(part.data(), length, 3, 0.02f, first);
      EXPECT_TRUE(same(whole)) << first << " " << length;
      draw_uniform(part.data(), length, 3, 0.5f, first);
      EXPECT_TRUE(same(uniform)) << first << " " << length;
      drop_values(part.data(), ones.data(), length, mask, first);
      EXPECT_TRUE(same(dropped)) << first << " " << length;
    }
}

// given: what one element's functors say / expected: the same bits from kernels
TEST(random, kernels_equal_their_elements) {
  for (int bits : {128, 256, 512}) {
    limit_vectors(bits);
    const std::size_t n = 10'000;
    std::vector<float> normal(n), uniform(n), from(n), dropped(n);
    draw_normal(normal.data(), n, 11, 0.02f);
    draw_uniform(uniform.data(), n, 11, 0.3f);
    draw_normal(from.data(), n, 12, 1);
    const auto mask = mask_of(11, 0.1);
    drop_values(dropped.data(), from.data(), n, mask);
    for (std::size_t i = 0; i < n; ++i) {
      const auto words = philox(11, i / 4);
      const auto pair = normal_of(words.x[i % 4 & ~1u], words.x[i % 4 | 1u]);
      EXPECT_EQ(normal[i], 0.02f * (i % 2 == 0 ? pair.x : pair.y));
      EXPECT_EQ(uniform[i], uniform_of(words.x[i % 4]) * 0.6f - 0.3f);
      EXPECT_EQ(dropped[i], from[i] * mask.factor(words.x[i % 4]));
    }
  }
}

// given: probabilities / expected: as many dropped, within four standard errors; the mean is kept
TEST(random, masks_drop_what_they_should) {
  const std::size_t n = 1'000'000;
  const std::vector<float> ones(n, 1);
  std::vector<float> dropped(n);
  for (const auto probability : {0.0, 0.1, 0.5, 0.9}) {
    drop_values(dropped.data(), ones.data(), n, mask_of(4, probability));
    const auto kept = n - static_cast<std::size_t>(std::ranges::count(dropped, 0.0f));
    EXPECT_NEAR(static_cast<double>(kept) / n, 1 - probability, 4 * std::sqrt(probability * (1 - probability) / n));
    EXPECT_EQ(std::ranges::count(dropped, static_cast<float>(1 / (1 - probability))),
              static_cast<std::ptrdiff_t>(kept));
  }
}

TEST(random, streams_differ) {
  EXPECT_NE(normal_values(100, 1), normal_values(100, 2));
  EXPECT_NE(normal_values(100, 1), normal_values(100, std::uint64_t{1} << 32));
}

} // namespace
} // namespace parcae
