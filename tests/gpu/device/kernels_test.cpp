// Kernels on the processor: against their definitions, one value at a time, in every bit.

#include "gpu/device/kernels.hpp"
#include "gpu/device/optimizer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace parcae {
namespace {

/// Any bits: numbers of all sizes, denormal ones too; no NaN, whose bits are nobody's promise.
std::vector<float> any_values(std::size_t n, std::uint64_t seed) {
  std::vector<float> result(n);
  std::mt19937_64 draw(seed);
  for (auto& x : result)
    do
      x = std::bit_cast<float>(static_cast<std::uint32_t>(draw()));
    while (std::isnan(x));
  return result;
}

std::vector<float> normal_values(std::size_t n, std::uint64_t seed) {
  std::vector<float> result(n);
  draw_normal(result.data(), n, seed, 1);
  return result;
}

bool same_bits(float x, float y) {
  return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y) || (std::isnan(x) && std::isnan(y));
}

bool same_bits(const std::vector<float>& x, const std::vector<float>& y) {
  return std::ranges::equal(x, y, [](float a, float b) { return same_bits(a, b); });
}

/// With vectors of each width that this processor has; where it has not, with its widest.
class kernels : public testing::TestWithParam<int> {
protected:
  void SetUp() override { limit_vectors(GetParam()); }
  void TearDown() override { limit_vectors(512); }
};

INSTANTIATE_TEST_SUITE_P(bits, kernels, testing::Values(128, 256, 512));

TEST(bfloat16, is_rounded_to_the_nearest) {
  const std::pair<std::uint32_t, std::uint32_t> table[] = {
      {0x3f800000, 0x3f80}, {0x3f807fff, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81},
      {0x3f818000, 0x3f82}, {0xbf818000, 0xbf82}, {0x7f7fffff, 0x7f80}, {0x7f800000, 0x7f80},
      {0x7f800001, 0x7fc0}, {0xffffffff, 0x7fc0}, {0x00000001, 0x0000}, {0x80008001, 0x8001},
  };
  for (auto [bits, expected] : table)
    EXPECT_EQ(static_cast<std::uint32_t>(to_bfloat16(std::bit_cast<float>(bits))), expected) << std::hex << bits;
  for (std::uint32_t x = 0; x < 0x7f80; ++x)
    EXPECT_EQ(static_cast<std::uint32_t>(to_bfloat16(to_float(static_cast<bfloat16>(x)))), x);
}

TEST_P(kernels, adds_in_place_and_elsewhere) {
  for (std::size_t n : {0, 1, 7, 64, 1000}) {
    const auto left = any_values(n, 1), right = any_values(n, 2);
    std::vector<float> expected(n), to(n), in_place = left;
    for (std::size_t i = 0; i < n; ++i)
      expected[i] = left[i] + right[i];
    add_values(to.data(), left.data(), right.data(), n);
    add_values(in_place.data(), in_place.data(), right.data(), n);
    EXPECT_TRUE(same_bits(to, expected) && same_bits(in_place, expected));

    std::vector<bfloat16> small(n);
    std::ranges::transform(right, small.begin(), [](float x) { return to_bfloat16(x); });
    for (std::size_t i = 0; i < n; ++i)
      expected[i] = left[i] + to_float(small[i]);
    add_values(to.data(), left.data(), small.data(), n);
    EXPECT_TRUE(same_bits(to, expected));
  }
}

std::vector<bfloat16> rounded(const std::vector<float>& x) {
  std::vector<bfloat16> result(x.size());
  std::ranges::transform(x, result.begin(), to_bfloat16);
  return result;
}

// given: any bits at all in bfloat16 / expected: the sum of the two in float32, rounded, in place too
TEST_P(kernels, sums_of_bfloat16_are_rounded) {
  for (std::size_t n : {0, 1, 7, 64, 1000}) {
    auto left = rounded(any_values(n, 1));
    const auto right = rounded(any_values(n, 2));
    std::vector<bfloat16> expected(n), to(n);
    for (std::size_t i = 0; i < n; ++i)
      expected[i] = to_bfloat16(to_float(left[i]) + to_float(right[i]));
    add_values(to.data(), left.data(), right.data(), n);
    EXPECT_EQ(to, expected);
    add_values(left.data(), left.data(), right.data(), n);
    EXPECT_EQ(left, expected);
  }
}

// given: all of bfloat16 / expected: the float32 that each is, -0 too
TEST_P(kernels, widen_exactly) {
  std::vector<bfloat16> from(65'536);
  for (std::size_t i = 0; i < from.size(); ++i)
    from[i] = static_cast<bfloat16>(i);
  std::vector<float> to(from.size());
  widen_values(to.data(), from.data(), from.size());
  for (std::size_t i = 0; i < from.size(); ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(to[i]), i << 16);
}

// given: any bits at all, NaN and denormal numbers among them / expected: each as to_bfloat16 rounds it
TEST_P(kernels, round_as_one_value_is) {
  for (std::size_t n : {0, 1, 7, 64, 1000}) {
    const auto from = any_values(n, 3);
    std::vector<bfloat16> to(n);
    round_values(to.data(), from.data(), n);
    for (std::size_t i = 0; i < n; ++i)
      ASSERT_EQ(to[i], to_bfloat16(from[i]));
  }
}

// given: what cannot be an order / expected: refused
TEST(addition_order, is_checked) {
  using joins = std::vector<std::uint8_t>;
  for (const auto& x : {joins{}, joins{1}, joins{0, 0}, joins{0, 2}, joins{0, 1, 0}})
    EXPECT_THROW(addition_order{x}, std::invalid_argument);
  EXPECT_EQ(addition_order({0}).depth(), 1u);
  EXPECT_EQ(addition_order({0, 1, 1}).depth(), 2u);
  EXPECT_EQ(addition_order({0, 0, 2}).depth(), 3u);
  auto deep = joins(33);
  deep.back() = 32;
  EXPECT_THROW(addition_order{deep}, std::invalid_argument);
  const std::vector<float> one(4);
  EXPECT_THROW(add_in_order(addition_order({0, 1}), nullptr, std::vector{one.data()}, 4), std::invalid_argument);
}

// given: ((a + b) + c) + (d + e), and from the right / expected: these bits, into a buffer of its own or any of the
// sums
TEST_P(kernels, sums_are_added_in_their_order) {
  const std::size_t n = 1300;
  std::vector<std::vector<float>> x;
  for (std::uint64_t k = 0; k < 5; ++k)
    x.push_back(any_values(n, 10 + k));
  struct row {
    std::vector<std::uint8_t> joins;
    float (*expected)(const float*);
  };
  const row table[] = {
      {{0, 1, 1, 0, 2}, [](const float* v) { return ((v[0] + v[1]) + v[2]) + (v[3] + v[4]); }},
      {{0, 0, 0, 0, 4}, [](const float* v) { return v[0] + (v[1] + (v[2] + (v[3] + v[4]))); }},
      {{0, 1, 1, 1, 1}, [](const float* v) { return (((v[0] + v[1]) + v[2]) + v[3]) + v[4]; }},
  };
  for (const auto& [joins, of] : table) {
    std::vector<float> expected(n);
    for (std::size_t i = 0; i < n; ++i) {
      const float values[] = {x[0][i], x[1][i], x[2][i], x[3][i], x[4][i]};
      expected[i] = of(values);
    }
    for (std::size_t into = 0; into <= 5; ++into) {
      auto all = x;
      all.emplace_back(n);
      std::vector<const float*> sums;
      for (std::size_t k = 0; k < 5; ++k)
        sums.push_back(all[k].data());
      add_in_order(addition_order(joins), all[into].data(), sums, n);
      EXPECT_TRUE(same_bits(all[into], expected)) << "into " << into;
    }
  }
}

// given: the same in bfloat16 / expected: each sum rounded before the next, other bits than the rounded sum of all
TEST_P(kernels, sums_of_bfloat16_are_rounded_one_by_one) {
  const std::size_t n = 1300;
  std::vector<std::vector<bfloat16>> x(5, std::vector<bfloat16>(n));
  std::vector<const bfloat16*> sums;
  for (std::uint64_t k = 0; k < 5; ++k) {
    std::vector<float> drawn(n);
    draw_normal(drawn.data(), n, k, 1);
    x[k] = rounded(drawn);
    sums.push_back(x[k].data());
  }
  const auto sum = [](float a, float b) { return to_float(to_bfloat16(a + b)); };
  std::vector<bfloat16> expected(n), at_once(n), to(n);
  for (std::size_t i = 0; i < n; ++i) {
    float v[5];
    for (std::size_t k = 0; k < 5; ++k)
      v[k] = to_float(x[k][i]);
    expected[i] = to_bfloat16(sum(sum(sum(v[0], v[1]), v[2]), sum(v[3], v[4])));
    at_once[i] = to_bfloat16(((v[0] + v[1]) + v[2]) + (v[3] + v[4]));
  }
  const addition_order order({0, 1, 1, 0, 2});
  add_in_order(order, to.data(), sums, n);
  EXPECT_EQ(to, expected);
  EXPECT_NE(to, at_once);
  add_in_order(order, x[3].data(), sums, n);
  EXPECT_EQ(x[3], expected) << "into one of the sums";
}

TEST_P(kernels, one_sum_is_copied) {
  const auto x = any_values(100, 1);
  std::vector<float> to(100);
  add_in_order(addition_order({0}), to.data(), std::vector{x.data()}, 100);
  EXPECT_TRUE(same_bits(x, to));
  const auto small = rounded(x);
  std::vector<bfloat16> copy(100);
  add_in_order(addition_order({0}), copy.data(), std::vector{small.data()}, 100);
  EXPECT_EQ(copy, small);
}

// given: the definition, written down a second time / expected: its bits at all lengths, wherever work is cut
TEST_P(kernels, norm_has_its_order) {
  const auto chunk_by_chunk = [](std::vector<double> terms) {
    while (terms.size() > 1) {
      std::vector<double> sums;
      for (std::size_t begin = 0; begin < terms.size(); begin += 2048) {
        double lanes[32] = {};
        for (std::size_t i = begin; i < std::min(begin + 2048, terms.size()); ++i)
          lanes[i % 32] += terms[i];
        for (int distance : {16, 8, 4, 2, 1})
          for (int lane = 0; lane < distance; ++lane)
            lanes[lane] += lanes[lane + distance];
        sums.push_back(lanes[0]);
      }
      terms = std::move(sums);
    }
    return terms.empty() ? 0.0 : terms[0];
  };
  for (std::size_t n : {0, 1, 2, 31, 32, 33, 2047, 2048, 2049, 100'000, 4'200'000}) {
    const auto x = normal_values(n, n);
    std::vector<double> squares(n);
    std::ranges::transform(x, squares.begin(), [](double value) { return value * value; });
    EXPECT_EQ(squared_norm(x.data(), n), chunk_by_chunk(squares)) << n;
    std::vector<double> chunks((n + sum_chunk - 1) / sum_chunk);
    for (std::size_t c = chunks.size(); c > 0; --c) // one at a time, from the end
      sum_squares(x.data() + (c - 1) * sum_chunk, std::min(sum_chunk, n - (c - 1) * sum_chunk), &chunks[c - 1]);
    EXPECT_EQ(sum_of(chunks), squared_norm(x.data(), n)) << n;
    EXPECT_NEAR(squared_norm(x.data(), n), std::accumulate(squares.begin(), squares.end(), 0.0), 1e-9 * double(n));
  }
}

TEST_P(kernels, norm_takes_the_smallest_and_the_largest) {
  const auto least = std::numeric_limits<float>::denorm_min(), most = std::numeric_limits<float>::max();
  EXPECT_EQ(squared_norm(&least, 1), std::ldexp(1.0, -298));
  EXPECT_EQ(squared_norm(&most, 1), double{most} * double{most});
  const float bad[] = {1, std::numeric_limits<float>::quiet_NaN(), 2};
  EXPECT_TRUE(std::isnan(squared_norm(bad, 3)));
}

std::vector<optimizer_specification> optimizers() {
  return {{.kind = "adamw", .weight_decay = 0.1}, {.kind = "sgd"}, {.kind = "sgd", .momentum = 0}};
}

// given: any bits at all / expected: what the elements' functors say, with a copy in bfloat16 and without, at all
// lengths
TEST_P(kernels, optimizers_equal_their_elements) {
  for (const auto& x : optimizers())
    for (std::size_t n : {1, 15, 16, 17, 1000}) {
      const auto gradient = any_values(n, 4);
      auto p = any_values(n, 1), first = any_values(n, 2), second = any_values(n, 3);
      auto expected_p = p, expected_first = first, expected_second = second, plain_p = p, plain_first = first,
           plain_second = second;
      std::vector<bfloat16> copy(n);
      const auto adamw = adamw_step(x, 3, 0.01, 0.7);
      const auto sgd = sgd_step(x, 3, 0.01, 0.7);
      for (std::size_t i = 0; i < n; ++i)
        if (x.kind == "adamw")
          adamw_element(adamw, expected_p[i], expected_first[i], expected_second[i], gradient[i]);
        else if (x.momentum != 0)
          sgd_element(sgd, expected_p[i], expected_first[i], gradient[i]);
        else
          sgd_element(sgd, expected_p[i], gradient[i]);
      const auto step = [&](auto& p_, auto& first_, auto& second_, bfloat16* copy_) {
        if (x.kind == "adamw")
          step_adamw(adamw, p_.data(), first_.data(), second_.data(), gradient.data(), copy_, n);
        else
          step_sgd(sgd, p_.data(), x.momentum != 0 ? first_.data() : nullptr, gradient.data(), copy_, n);
      };
      step(p, first, second, copy.data());
      step(plain_p, plain_first, plain_second, nullptr);
      EXPECT_TRUE(same_bits(p, expected_p) && same_bits(plain_p, expected_p));
      EXPECT_TRUE(same_bits(first, expected_first) && same_bits(plain_first, expected_first));
      EXPECT_TRUE(same_bits(second, expected_second) && same_bits(plain_second, expected_second));
      for (std::size_t i = 0; i < n; ++i)
        EXPECT_EQ(copy[i], to_bfloat16(p[i]));
    }
}

// given: steps of all sizes / expected: factors as the powers of libm give them, to float's precision
TEST(optimizer_factors, are_right) {
  const optimizer_specification x{.kind = "adamw"};
  for (std::uint64_t steps : {0, 1, 2, 9, 99, 12'345, 1'000'000}) {
    const auto factors = adamw_step(x, steps, 0.01, 1);
    const auto t = static_cast<double>(steps + 1);
    EXPECT_FLOAT_EQ(factors.rate, static_cast<float>(0.01 / (1 - std::pow(x.beta1, t))));
    EXPECT_FLOAT_EQ(factors.root, static_cast<float>(1 / std::sqrt(1 - std::pow(x.beta2, t))));
  }
}

} // namespace
} // namespace parcae
