#pragma once

// Attention of rows to the positions of their requests, whose keys and values are kept in blocks: the kernels on the
// processor, and what a GPU's have of them. A row's bits depend on its query and on the keys and values up to its own
// position, and on nothing else: not on other rows, on which blocks there are, where they lie, or how wide vectors are.
//
// The order of sums. A score is the sum of scale · query[d] · key[d] by rising d. Of the weights exp(score - largest),
// lane l of 16 adds those of positions l, l + 16, …; then the upper half of the lanes is added to the lower, until one
// is left. A value is the sum of weight · value by rising position, divided by the sum of weights.
//
// The order of loops, and that keys are needed across positions but values along a head, are as in PagedAttention (Kwon
// et al., SOSP'23).

#include "gpu/device/both.hpp"

#include <cstddef>
#include <cstdint>

namespace parcae {

/// Positions in a block.
inline constexpr std::size_t block_positions = 16;

struct attention_shape {
  std::size_t heads = 0;     ///< of queries
  std::size_t key_heads = 0; ///< of keys and values; divides heads: each serves neighbours
  std::size_t size = 0;      ///< of a head

  /// float32 of a block: keys [key_heads][size][16], then values [key_heads][16][size].
  std::size_t block_values() const { return 2 * key_heads * size * block_positions; }

  friend bool operator==(const attention_shape&, const attention_shape&) = default;
};

/// Some rows, and where the keys and values of their requests are. Position p is in block number blocks[row][p / 16].
struct cached_rows {
  std::size_t rows = 0;
  float* pool = nullptr;                ///< block 0; the others follow at equal distances
  std::size_t block_distance = 0;       ///< float32 from one to the next; at least block_values
  const std::int32_t* blocks = nullptr; ///< [rows][most_blocks], as many of each as its position needs
  std::size_t most_blocks = 0;
  const std::int64_t* positions = nullptr; ///< [rows]
};

/// Rows [first, first + count) of them.
inline cached_rows part_of(cached_rows x, std::size_t first, std::size_t count) {
  x.rows = count;
  x.blocks += first * x.most_blocks;
  x.positions += first;
  return x;
}

/// exp(x), x <= 0, to 1.5 units of the last place; 0 below -87. Its polynomial is a minimax one.
PARCAE_BOTH float exp_of(float x) {
  // n = x / ln 2, rounded: it is in the lower bits of `shifted`
  const auto shifted = x * 0x1.715476p+0f + 0x1.8p+23f;
  const auto n = shifted - 0x1.8p+23f;
  // ln 2 in two parts, the first with few digits, so that its products are exact
  const auto r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  auto q = 0x1.6a2434p-10f;
  q = q * r + 0x1.1239e2p-7f;
  q = q * r + 0x1.5558f2p-5f;
  q = q * r + 0x1.555492p-3f;
  q = q * r + 0x1.fffffcp-2f;
  const auto power = __builtin_bit_cast(float, (__builtin_bit_cast(std::uint32_t, shifted) << 23) + 0x3f800000);
  const auto kept = static_cast<std::uint32_t>(x < -87.0f) - 1; // a mask: compilers make branches of a choice
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, (1.0f + (r + r * r * q)) * power) & kept);
}

/// Puts the keys and values of each row, [key_heads][size] each, to its position. `stride`: float32 from one row's to
/// the next one's. No two rows have the same place.
void keep_rows(const attention_shape& shape, const cached_rows& rows, const float* keys, const float* values,
               std::size_t stride);

/// to[row][head][size] for queries [row][head][size], rows `stride` apart. Positions from 0 to each row's own are kept;
/// what is behind them in their blocks may be anything. Faster where rows of one request are neighbours. Allocates a
/// few float32 for each position of the longest row.
void attend_rows(const attention_shape& shape, const cached_rows& rows, float scale, const float* queries,
                 std::size_t stride, float* to);

} // namespace parcae
