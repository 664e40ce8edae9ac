#include "gpu/device/attention.hpp"

#include "gpu/device/vector_widths.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

namespace parcae {

namespace {

template <int Lanes>
struct vector_of {
  typedef float type __attribute__((vector_size(4 * Lanes)));
};
template <int Lanes>
using lanes = typename vector_of<Lanes>::type;

/// What one head of a row attends to.
struct head_cache {
  const float* keys; ///< of block 0 of the pool
  const float* values;
  std::size_t block_distance;
  const std::int32_t* blocks;
  std::size_t positions; ///< that it sees, at least 1
  std::size_t size;

  std::size_t block_count() const { return (positions + block_positions - 1) / block_positions; }
  PARCAE_INLINE const float* keys_of(std::size_t block) const {
    return keys + static_cast<std::size_t>(blocks[block]) * block_distance;
  }
  PARCAE_INLINE const float* values_of(std::size_t block) const {
    return values + static_cast<std::size_t>(blocks[block]) * block_distance;
  }
};

/// Scores of all positions in some blocks. As many sums at once as registers hold: each waits for its last addition.
template <int Lanes, int Blocks>
PARCAE_INLINE inline void score_blocks(const head_cache& x, const float* query, std::size_t first, float* to) {
  constexpr int parts = static_cast<int>(block_positions) / Lanes;
  lanes<Lanes> sums[Blocks * parts] = {};
  const float* keys[Blocks];
#pragma GCC unroll 16
  for (int b = 0; b < Blocks; ++b)
    keys[b] = x.keys_of(first + static_cast<std::size_t>(b));
  for (std::size_t d = 0; d < x.size; ++d) {
#pragma GCC unroll 16
    for (int i = 0; i < Blocks * parts; ++i) {
      lanes<Lanes> k;
      std::memcpy(&k, keys[i / parts] + d * block_positions + static_cast<std::size_t>(i % parts * Lanes), sizeof k);
      sums[i] += query[d] * k;
    }
  }
  std::memcpy(to + first * block_positions, sums, sizeof sums);
}

template <int Lanes, int Blocks>
PARCAE_INLINE inline void score(const head_cache& x, const float* query, std::size_t first, float* to) {
  for (; first + Blocks <= x.block_count(); first += Blocks)
    score_blocks<Lanes, Blocks>(x, query, first, to);
  if constexpr (Blocks > 1)
    score<Lanes, Blocks / 2>(x, query, first, to);
}

/// The 16 lanes of sums or largest scores, in as many vectors as it takes.
template <int Lanes>
struct lane_values {
  static constexpr std::size_t parts = block_positions / Lanes;
  lanes<Lanes> x[parts];

  PARCAE_INLINE explicit lane_values(const float* from) { std::memcpy(x, from, sizeof x); }
};

/// Scores become weights, 0 where the row does not see. Returns their sum.
template <int Lanes>
PARCAE_INLINE inline float weigh(float* scores, std::size_t positions, std::size_t blocks) {
  const auto room = blocks * block_positions;
  std::fill(scores + positions, scores + room, -std::numeric_limits<float>::infinity());
  lane_values<Lanes> most(scores);
  for (auto b = block_positions; b < room; b += block_positions) {
    const lane_values<Lanes> next(scores + b);
    for (std::size_t i = 0; i < most.parts; ++i)
      most.x[i] = next.x[i] > most.x[i] ? next.x[i] : most.x[i];
  }
  float each_lane[block_positions];
  std::memcpy(each_lane, most.x, sizeof each_lane);
  const auto largest = *std::max_element(each_lane, each_lane + block_positions);
  each(room, [=](std::size_t i) PARCAE_INLINE { scores[i] = exp_of(scores[i] - largest); });
  lane_values<Lanes> sums(scores);
  for (auto b = block_positions; b < room; b += block_positions) {
    const lane_values<Lanes> next(scores + b);
    for (std::size_t i = 0; i < sums.parts; ++i)
      sums.x[i] += next.x[i];
  }
  std::memcpy(each_lane, sums.x, sizeof each_lane);
#pragma GCC unroll 4
  for (auto half = block_positions / 2; half > 0; half /= 2)
#pragma GCC unroll 8
    for (std::size_t l = 0; l < half; ++l)
      each_lane[l] += each_lane[l + half];
  return each_lane[0];
}

/// Values of [first, first + Vectors · Lanes) of a head, the last vector moved back to where the head ends: what is
/// computed twice has the same bits.
template <int Lanes, int Vectors>
PARCAE_INLINE inline void mix_part(const head_cache& x, const float* weights, float sum, std::size_t first, float* to) {
  lanes<Lanes> sums[Vectors] = {};
  std::size_t at[Vectors];
#pragma GCC unroll 16
  for (int i = 0; i < Vectors; ++i)
    at[i] = std::min(first + static_cast<std::size_t>(i * Lanes), x.size - Lanes);
  for (std::size_t begin = 0; begin < x.positions; begin += block_positions) {
    const auto* values = x.values_of(begin / block_positions);
    const auto count = std::min(block_positions, x.positions - begin);
    for (std::size_t p = 0; p < count; ++p) {
#pragma GCC unroll 16
      for (int i = 0; i < Vectors; ++i) {
        lanes<Lanes> v;
        std::memcpy(&v, values + p * x.size + at[i], sizeof v);
        sums[i] += weights[begin + p] * v;
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Vectors; ++i) {
    sums[i] /= sum;
    std::memcpy(to + at[i], &sums[i], sizeof sums[i]);
  }
}

template <int Lanes, int Vectors>
PARCAE_INLINE inline void mix_rest(const head_cache& x, const float* weights, float sum, std::size_t first, float* to) {
  if (first + (Vectors - 1) * Lanes < x.size)
    mix_part<Lanes, Vectors>(x, weights, sum, first, to);
  else if constexpr (Vectors > 1)
    mix_rest<Lanes, Vectors - 1>(x, weights, sum, first, to);
}

template <int Lanes>
PARCAE_INLINE inline void mix(const head_cache& x, const float* weights, float sum, float* to) {
  constexpr int most = 8;
  if constexpr (Lanes > 1)
    if (x.size < Lanes)
      return mix<Lanes / 2>(x, weights, sum, to);
  std::size_t first = 0;
  for (; first + most * Lanes <= x.size; first += most * Lanes)
    mix_part<Lanes, most>(x, weights, sum, first, to);
  if (first < x.size)
    mix_rest<Lanes, most>(x, weights, sum, first, to);
}

} // namespace

void keep_rows(const attention_shape& shape, const cached_rows& rows, const float* keys, const float* values,
               std::size_t stride) {
  const auto [heads, key_heads, size] = shape;
  for (std::size_t row = 0; row < rows.rows; ++row) {
    const auto position = static_cast<std::size_t>(rows.positions[row]), place = position % block_positions;
    const auto block = rows.blocks[row * rows.most_blocks + position / block_positions];
    auto* const to = rows.pool + static_cast<std::size_t>(block) * rows.block_distance;
    auto* const to_values = to + key_heads * size * block_positions;
    for (std::size_t head = 0; head < key_heads; ++head)
      for (std::size_t d = 0; d < size; ++d) {
        to[(head * size + d) * block_positions + place] = keys[row * stride + head * size + d];
        to_values[(head * block_positions + place) * size + d] = values[row * stride + head * size + d];
      }
  }
}

void attend_rows(const attention_shape& shape, const cached_rows& rows, float scale, const float* queries,
                 std::size_t stride, float* to) {
  if (rows.rows == 0)
    return;
  const auto last = static_cast<std::size_t>(*std::max_element(rows.positions, rows.positions + rows.rows));
  std::vector<float> memory((last / block_positions + 1) * block_positions + shape.size);
  run([&, scores = memory.data() + shape.size, query = memory.data()](auto bits) PARCAE_INLINE {
    constexpr int wide = bits() / 32, at_once = wide / 2;
    const auto group = shape.heads / shape.key_heads, head_values = shape.size * block_positions;
    for (std::size_t head = 0; head < shape.heads; ++head) // rows of one request find its keys in the cache
      for (std::size_t row = 0; row < rows.rows; ++row) {
        const auto* keys = rows.pool + head / group * head_values;
        const head_cache x{keys,
                           keys + shape.key_heads * head_values,
                           rows.block_distance,
                           rows.blocks + row * rows.most_blocks,
                           static_cast<std::size_t>(rows.positions[row]) + 1,
                           shape.size};
        const auto* given = queries + row * stride + head * shape.size;
        each(shape.size, [=](std::size_t d) PARCAE_INLINE { query[d] = given[d] * scale; });
        score<wide, at_once>(x, query, 0, scores);
        const auto sum = weigh<wide>(scores, x.positions, x.block_count());
        mix<wide>(x, scores, sum, to + (row * shape.heads + head) * shape.size);
      }
  });
}

} // namespace parcae
