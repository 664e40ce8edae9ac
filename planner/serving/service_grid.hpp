#pragma once

// (D, P) of a job that serves, while nothing is measured: the fewest stages whose weights and caches fit a slot, and as
// many pipelines of them as there are slots for. Pure.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace parcae::serving {

/// What a layer takes of the slot that computes it.
struct served_layer {
  std::uint64_t weight_bytes = 0;
  std::uint64_t row_bytes = 0;    ///< of a row of a pass while it is computed
  std::uint64_t cached_bytes = 0; ///< of keys and values of a position; 0: it has no attention
  double ms = 0;                  ///< only ratios matter
};

struct grid_terms {
  std::uint32_t min_depth = 1, max_depth = 1; ///< inclusive
  std::uint32_t min_width = 1, max_width = 1;
  std::uint32_t context = 1;     ///< positions of the longest request
  std::uint64_t cache_bytes = 0; ///< of a slot
  std::uint64_t slot_bytes = 0;  ///< 0: not known, all fits
};

/// Bytes of a slot.
struct grid_memory {
  std::uint64_t weights = 0;
  std::uint64_t arriving = 0; ///< those of the next generation, while this one serves
  std::uint64_t caches = 0;
  std::uint64_t rows = 0; ///< of the largest pass in the largest layer

  std::uint64_t total() const { return weights + arriving + caches + rows; }
};

struct grid_choice {
  std::uint32_t width = 0; ///< 0: nothing fits
  std::uint32_t depth = 0;
  std::vector<std::uint32_t> first_layer; ///< as in a placement
  std::string why;                        ///< for people
};

inline constexpr std::uint32_t max_pass_rows = 192;
inline constexpr std::uint32_t positions_of_block = 16; ///< caches are taken in such

/// Of a stage with these layers.
grid_memory memory_of_stage(std::span<const served_layer> layers, const grid_terms& terms);

/// Of a position in the layer that keeps most.
std::uint64_t largest_cache(std::span<const served_layer> model);

/// For how many positions of one request, or of several, a stage's caches have room; UINT64_MAX: it keeps none. Blocks
/// are as large as those of the model's layer that keeps most, `largest` bytes a position, so that they stay when the
/// stage gets other layers.
std::uint64_t positions_in(std::span<const served_layer> layers, std::uint64_t largest, std::uint64_t cache_bytes);

/// Requires layers.
grid_choice choose_grid(std::span<const served_layer> layers, const grid_terms& terms, std::uint32_t slots);

} // namespace parcae::serving
