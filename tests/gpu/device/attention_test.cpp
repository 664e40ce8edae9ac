// Attention of rows to cached positions: against its definition, one value at a time, in every bit.

#include "gpu/device/attention.hpp"
#include "gpu/device/kernels.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace parcae {
namespace {

std::vector<float> drawn(std::size_t n, std::uint64_t seed) {
  std::vector<float> result(n);
  draw_normal(result.data(), n, seed, 1);
  return result;
}

/// With vectors of each width that this processor has; where it has not, with its widest.
class attention_kernel : public testing::TestWithParam<int> {
protected:
  void SetUp() override { limit_vectors(GetParam()); }
  void TearDown() override { limit_vectors(512); }
};

INSTANTIATE_TEST_SUITE_P(bits, attention_kernel, testing::Values(128, 256, 512));

/// A request's queries, keys and values: [positions][heads or key_heads][size].
struct sequence {
  sequence(const attention_shape& x, std::size_t positions, std::uint64_t seed) :
      queries(drawn(positions * x.heads * x.size, seed)), keys(drawn(positions * x.key_heads * x.size, seed + 1)),
      values(drawn(positions * x.key_heads * x.size, seed + 2)) {}

  std::vector<float> queries, keys, values;
};

/// What the row of a position is, as the header says it.
std::vector<float> defined(const attention_shape& x, float scale, const sequence& of, std::size_t position) {
  std::vector<float> result(x.heads * x.size);
  for (std::size_t head = 0; head < x.heads; ++head) {
    const auto at = [&, of_head = head / (x.heads / x.key_heads)](std::size_t p, std::size_t d) {
      return (p * x.key_heads + of_head) * x.size + d;
    };
    std::vector<float> weights(position + 1);
    for (std::size_t p = 0; p <= position; ++p)
      for (std::size_t d = 0; d < x.size; ++d) {
        const auto query = of.queries[(position * x.heads + head) * x.size + d] * scale;
        const auto product = query * of.keys[at(p, d)];
        weights[p] += product;
      }
    const auto largest = *std::ranges::max_element(weights);
    float lanes[16] = {};
    for (std::size_t p = 0; p <= position; ++p) {
      weights[p] = exp_of(weights[p] - largest);
      lanes[p % 16] += weights[p];
    }
    for (std::size_t half : {8, 4, 2, 1})
      for (std::size_t l = 0; l < half; ++l)
        lanes[l] += lanes[l + half];
    for (std::size_t d = 0; d < x.size; ++d) {
      float sum = 0;
      for (std::size_t p = 0; p <= position; ++p) {
        const auto product = weights[p] * of.values[at(p, d)];
        sum += product;
      }
      result[head * x.size + d] = sum / lanes[0];
    }
  }
  return result;
}

/// Memory for some blocks, with anything in it, NaN among it; `shift` float32 behind a multiple of 64 bytes.
class block_memory {
public:
  block_memory(const attention_shape& x, std::size_t blocks, std::size_t shift, std::uint64_t seed) :
      distance_(x.block_values() + 5), memory_(blocks * distance_ + 32), free_(blocks) {
    std::mt19937_64 draw(seed);
    for (auto& value : memory_)
      value = std::bit_cast<float>(static_cast<std::uint32_t>(draw()));
    const auto past = std::bit_cast<std::uintptr_t>(memory_.data()) % 64 / sizeof(float);
    pool_ = memory_.data() + (16 - past) % 16 + shift;
    std::iota(free_.begin(), free_.end(), 0);
    std::ranges::shuffle(free_, draw);
  }

  /// Blocks for a sequence, with its keys and values up to a position.
  std::vector<std::int32_t> keep(const attention_shape& x, const sequence& of, std::size_t last) {
    std::vector<std::int32_t> blocks;
    for (std::size_t p = 0; p <= last; p += 16) {
      blocks.push_back(free_.back());
      free_.pop_back();
    }
    for (std::int64_t p = 0; p <= static_cast<std::int64_t>(last); ++p) {
      const auto stride = x.key_heads * x.size, at = static_cast<std::size_t>(p) * stride;
      keep_rows(x, {1, pool_, distance_, blocks.data(), blocks.size(), &p}, &of.keys[at], &of.values[at], stride);
    }
    return blocks;
  }

  float* pool() const { return pool_; }
  std::size_t distance() const { return distance_; }

private:
  std::size_t distance_;
  std::vector<float> memory_;
  float* pool_;
  std::vector<std::int32_t> free_;
};

// given: heads of all sizes, groups of queries, positions at the ends of blocks, blocks in any order and place /
// expected: the bits of the definition, of each row alone and of all in one call
TEST_P(attention_kernel, has_its_order) {
  std::uint64_t seed = 0;
  for (const attention_shape shape :
       {attention_shape{1, 1, 1}, {2, 1, 3}, {4, 4, 8}, {2, 2, 16}, {3, 1, 46}, {4, 2, 64}, {1, 1, 100}, {1, 1, 144}})
    for (const std::size_t shift : {0, 1, 7}) {
      constexpr std::size_t last[] = {0, 1, 14, 15, 16, 31, 63, 128, 200};
      constexpr std::size_t count = std::size(last), most = 200 / 16 + 1;
      block_memory memory(shape, 60, shift, ++seed);
      std::vector<std::int32_t> blocks(count * most, -1);
      std::vector<std::int64_t> positions(std::begin(last), std::end(last));
      const auto row_values = shape.heads * shape.size, stride = row_values + 3;
      std::vector<float> queries(count * stride), expected, together(count * row_values), alone(count * row_values);
      for (std::size_t row = 0; row < count; ++row) {
        const sequence x(shape, last[row] + 1, 100 * ++seed);
        std::ranges::copy(memory.keep(shape, x, last[row]), &blocks[row * most]);
        std::copy_n(&x.queries[last[row] * row_values], row_values, &queries[row * stride]);
        std::ranges::copy(defined(shape, 0.3f, x, last[row]), std::back_inserter(expected));
      }
      const cached_rows rows{count, memory.pool(), memory.distance(), blocks.data(), most, positions.data()};
      attend_rows(shape, rows, 0.3f, queries.data(), stride, together.data());
      for (auto row = count; row-- > 0;)
        attend_rows(shape, {1, rows.pool, rows.block_distance, &blocks[row * most], most, &positions[row]}, 0.3f,
                    &queries[row * stride], 0, &alone[row * row_values]);
      EXPECT_EQ(together, expected) << "size " << shape.size << ", vectors of " << GetParam();
      EXPECT_EQ(alone, expected);
    }
}

// given: a chunk of a request, in groups of queries or not, beside a row of another one and one that begins in the same
// block / expected: the bits of each row's definition, nothing of what is behind it
TEST_P(attention_kernel, rows_of_a_request_share_what_they_read) {
  for (const attention_shape shape : {attention_shape{1, 1, 64}, {4, 2, 46}, {3, 3, 16}, {4, 1, 130}})
    for (const std::size_t first : {0, 14, 100}) {
      constexpr std::size_t count = 12, blocks = 7;
      block_memory memory(shape, 2 * blocks, 3, first);
      sequence x(shape, first + count, 1);
      const sequence other(shape, first + count, 9);
      x.values.back() = std::numeric_limits<float>::infinity(); // of the last row, for itself alone
      const auto row_values = shape.heads * shape.size;
      std::vector<std::int32_t> table((count + 1) * blocks, -1);
      std::vector<std::int64_t> positions;
      std::vector<float> expected, found((count + 1) * row_values);
      auto queries = std::vector(x.queries.begin() + static_cast<std::ptrdiff_t>(first * row_values), x.queries.end());
      const auto kept = memory.keep(shape, x, first + count - 1), of_other = memory.keep(shape, other, first);
      for (std::size_t row = 0; row < count; ++row) {
        std::copy_n(kept.begin(), (first + row) / 16 + 1, &table[row * blocks]);
        positions.push_back(static_cast<std::int64_t>(first + row));
        std::ranges::copy(defined(shape, 0.2f, x, first + row), std::back_inserter(expected));
      }
      std::ranges::copy(of_other, &table[count * blocks]);
      positions.push_back(static_cast<std::int64_t>(first));
      queries.insert(queries.end(), &other.queries[first * row_values], &other.queries[(first + 1) * row_values]);
      std::ranges::copy(defined(shape, 0.2f, other, first), std::back_inserter(expected));
      attend_rows(shape, {count + 1, memory.pool(), memory.distance(), table.data(), blocks, positions.data()}, 0.2f,
                  queries.data(), row_values, found.data());
      EXPECT_EQ(found, expected) << "size " << shape.size << " from " << first;
    }
}

// given: scores from equal to far apart / expected: the softmax of float64, to a few units of the last place
TEST_P(attention_kernel, is_attention) {
  const attention_shape shape{1, 1, 32};
  for (const float scale : {0.0f, 0.1f, 3.0f, 100.0f}) {
    const sequence x(shape, 100, 5);
    const auto found = defined(shape, scale, x, 99);
    std::vector<double> scores(100), expected(32);
    for (std::size_t p = 0; p < 100; ++p)
      for (std::size_t d = 0; d < 32; ++d)
        scores[p] += double{x.queries[99 * 32 + d]} * double{scale} * double{x.keys[p * 32 + d]};
    double sum = 0;
    for (std::size_t p = 0; p < 100; ++p) {
      const auto weight = std::exp(scores[p] - *std::ranges::max_element(scores));
      sum += weight;
      for (std::size_t d = 0; d < 32; ++d)
        expected[d] += weight * double{x.values[p * 32 + d]};
    }
    for (std::size_t d = 0; d < 32; ++d)
      EXPECT_NEAR(found[d], expected[d] / sum, 2e-7 * (10 + 30 * double{scale}));
  }
}

// given: no rows / expected: nothing is read
TEST(attention, of_no_rows) {
  attend_rows({1, 1, 16}, {}, 1, nullptr, 0, nullptr);
  keep_rows({1, 1, 16}, {}, nullptr, nullptr, 0);
}

// given: all float32 from 0 to -90, 16 at a time / expected: libm's of float64, to 1.5 units of the last place
TEST(attention, exponentials) {
  double worst = 0;
  for (std::uint32_t bits = 0x80000000; bits <= std::bit_cast<std::uint32_t>(-90.0f); bits += 1'001) {
    const auto x = std::bit_cast<float>(bits);
    const auto expected = std::exp(double{x});
    if (x < -87)
      EXPECT_EQ(exp_of(x), 0);
    else
      worst = std::max(worst, std::abs(double{exp_of(x)} - expected) / std::ldexp(1, std::ilogb(expected) - 23));
  }
  EXPECT_LE(worst, 1.5);
  EXPECT_EQ(exp_of(0), 1);
  EXPECT_EQ(exp_of(-std::numeric_limits<float>::infinity()), 0);
  EXPECT_TRUE(std::isnan(exp_of(std::numeric_limits<float>::quiet_NaN())));
}

} // namespace
} // namespace parcae
