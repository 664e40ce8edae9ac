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

/// What the queries of a tile attend to.
struct head_cache {
  const float* keys; ///< of block 0 of the pool
  const float* values;
  std::size_t block_distance;
  std::size_t size;
  std::size_t positions = 0;            ///< of the query that sees most,
  const std::int32_t* blocks = nullptr; ///< and their blocks

  std::size_t block_count() const { return (positions + block_positions - 1) / block_positions; }
  PARCAE_INLINE const float* keys_of(std::size_t block) const {
    return keys + static_cast<std::size_t>(blocks[block]) * block_distance;
  }
  PARCAE_INLINE const float* values_of(std::size_t block) const {
    return values + static_cast<std::size_t>(blocks[block]) * block_distance;
  }
};

/// One head of a row.
struct head_query {
  const float* query;    ///< with the scale
  std::size_t positions; ///< that it sees, at least 1
  const std::int32_t* blocks;
  float* weights; ///< of all blocks' positions; scores at first
  float sum;      ///< of weights
  float* to;
};

/// Queries that have keys and values in common read them once.
constexpr int queries_at_once = 4;

/// Sums at once, so that none waits for its last addition: as many as there are registers for.
template <int Lanes, int Queries>
constexpr int sums_each = Queries == 1 || Lanes < 8 ? 8 : Lanes / 4;

/// Scores of all positions in some blocks.
template <int Lanes, int Queries, int Blocks>
PARCAE_INLINE inline void score_blocks(const head_cache& x, const head_query* of, std::size_t first) {
  constexpr int parts = static_cast<int>(block_positions) / Lanes, vectors = Blocks * parts;
  lanes<Lanes> sums[Queries][vectors] = {};
  const float* keys[Blocks];
#pragma GCC unroll 16
  for (int b = 0; b < Blocks; ++b)
    keys[b] = x.keys_of(first + static_cast<std::size_t>(b));
  for (std::size_t d = 0; d < x.size; ++d) {
#pragma GCC unroll 16
    for (int i = 0; i < vectors; ++i) {
      lanes<Lanes> k;
      std::memcpy(&k, keys[i / parts] + d * block_positions + static_cast<std::size_t>(i % parts * Lanes), sizeof k);
#pragma GCC unroll 4
      for (int q = 0; q < Queries; ++q)
        sums[q][i] += of[q].query[d] * k;
    }
  }
#pragma GCC unroll 4
  for (int q = 0; q < Queries; ++q)
    std::memcpy(of[q].weights + first * block_positions, sums[q], sizeof sums[q]);
}

template <int Lanes, int Queries, int Blocks>
PARCAE_INLINE inline void score(const head_cache& x, const head_query* of, std::size_t first) {
  for (; first + Blocks <= x.block_count(); first += Blocks)
    score_blocks<Lanes, Queries, Blocks>(x, of, first);
  if constexpr (Blocks > 1)
    score<Lanes, Queries, Blocks / 2>(x, of, first);
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
template <int Lanes, int Queries, int Vectors>
PARCAE_INLINE inline void mix_part(const head_cache& x, const head_query* of, std::size_t first) {
  lanes<Lanes> sums[Queries][Vectors] = {};
  std::size_t at[Vectors];
#pragma GCC unroll 16
  for (int i = 0; i < Vectors; ++i)
    at[i] = std::min(first + static_cast<std::size_t>(i * Lanes), x.size - Lanes);
  // Positions [begin, end) of queries [q, q_end).
  const auto add = [&](std::size_t begin, std::size_t end, int q_begin, int q_end) PARCAE_INLINE {
    while (begin < end) {
      const auto* values = x.values_of(begin / block_positions) + begin % block_positions * x.size;
      const auto stop = std::min(end, (begin / block_positions + 1) * block_positions);
      for (; begin < stop; ++begin, values += x.size) {
#pragma GCC unroll 16
        for (int i = 0; i < Vectors; ++i) {
          lanes<Lanes> v;
          std::memcpy(&v, values + at[i], sizeof v);
#pragma GCC unroll 4
          for (int q = q_begin; q < q_end; ++q)
            sums[q][i] += of[q].weights[begin] * v;
        }
      }
    }
  };
  auto shared = of[0].positions;
#pragma GCC unroll 4
  for (int q = 1; q < Queries; ++q)
    shared = std::min(shared, of[q].positions);
  add(0, shared, 0, Queries);
#pragma GCC unroll 4
  for (int q = 0; q < Queries; ++q) {
    if constexpr (Queries > 1)
      add(shared, of[q].positions, q, q + 1);
#pragma GCC unroll 16
    for (int i = 0; i < Vectors; ++i) {
      sums[q][i] /= of[q].sum;
      std::memcpy(of[q].to + at[i], &sums[q][i], sizeof sums[q][i]);
    }
  }
}

template <int Lanes, int Queries, int Vectors>
PARCAE_INLINE inline void mix_rest(const head_cache& x, const head_query* of, std::size_t first) {
  if (first + (Vectors - 1) * Lanes < x.size)
    mix_part<Lanes, Queries, Vectors>(x, of, first);
  else if constexpr (Vectors > 1)
    mix_rest<Lanes, Queries, Vectors - 1>(x, of, first);
}

template <int Lanes, int Queries>
PARCAE_INLINE inline void mix(const head_cache& x, const head_query* of) {
  constexpr int most = sums_each<Lanes, Queries>;
  if constexpr (Lanes > 1)
    if (x.size < Lanes)
      return mix<Lanes / 2, Queries>(x, of);
  std::size_t first = 0;
  for (; first + most * Lanes <= x.size; first += most * Lanes)
    mix_part<Lanes, Queries, most>(x, of, first);
  if (first < x.size)
    mix_rest<Lanes, Queries, most>(x, of, first);
}

template <int Lanes, int Queries>
PARCAE_INLINE inline void attend_tile(head_cache x, head_query* of) {
  const auto& last = *std::max_element(
      of, of + Queries, [](const auto& left, const auto& right) { return left.positions < right.positions; });
  x.blocks = last.blocks;
  x.positions = last.positions;
  score<Lanes, Queries, sums_each<Lanes, Queries> * Lanes / static_cast<int>(block_positions)>(x, of, 0);
  for (int q = 0; q < Queries; ++q)
    of[q].sum = weigh<Lanes>(of[q].weights, of[q].positions, x.block_count());
  mix<Lanes, Queries>(x, of);
}

/// Behind the rows from `row` on that are of one request: their blocks are the same as far as both have some.
std::size_t end_of_request(const cached_rows& x, std::size_t row) {
  auto next = row + 1;
  for (; next < x.rows; ++next) {
    const auto* const blocks = x.blocks + next * x.most_blocks;
    const auto shared = std::min(x.positions[next - 1], x.positions[next]) / static_cast<std::int64_t>(block_positions);
    if (!std::equal(blocks, blocks + shared + 1, blocks - x.most_blocks))
      break;
  }
  return next;
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
  const auto room = (last / block_positions + 1) * block_positions;
  std::vector<float> memory(queries_at_once * (room + shape.size));
  run([&, memory = memory.data()](auto bits) PARCAE_INLINE {
    constexpr int wide = bits() / 32;
    const auto group = shape.heads / shape.key_heads, head_values = shape.size * block_positions;
    head_query of[queries_at_once];
    const auto take = [&](head_query& x, std::size_t i, std::size_t row, std::size_t head) PARCAE_INLINE {
      auto* const query = memory + i * (room + shape.size);
      const auto* given = queries + row * stride + head * shape.size;
      each(shape.size, [=](std::size_t d) PARCAE_INLINE { query[d] = given[d] * scale; });
      x = {query,
           static_cast<std::size_t>(rows.positions[row]) + 1,
           rows.blocks + row * rows.most_blocks,
           query + shape.size,
           0,
           to + (row * shape.heads + head) * shape.size};
    };
    for (std::size_t key_head = 0; key_head < shape.key_heads; ++key_head)
      for (std::size_t row = 0, end = 0; row < rows.rows; row = end) {
        end = end_of_request(rows, row);
        const auto* const keys = rows.pool + key_head * head_values;
        const head_cache x{keys, keys + shape.key_heads * head_values, rows.block_distance, shape.size};
        const auto count = (end - row) * group;
        for (std::size_t begin = 0, n = 0; begin < count; begin += n) {
          n = wide >= 8 && count - begin >= queries_at_once ? queries_at_once : 1;
          for (std::size_t i = 0; i < n; ++i)
            take(of[i], i, row + (begin + i) / group, key_head * group + (begin + i) % group);
          if (n == queries_at_once)
            attend_tile<wide, queries_at_once>(x, of);
          else
            attend_tile<wide, 1>(x, of);
        }
      }
  });
}

} // namespace parcae
