#pragma once

// The kernels on a GPU: what gpu/device/kernels.hpp says, with the same bits. All pointers are to the memory of the
// stream's device, which is the present one. Calls return at once; what was wrong cudaGetLastError says.

#include "gpu/device/attention.hpp"
#include "gpu/device/kernels.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

struct CUstream_st; ///< what a cudaStream_t points to

namespace parcae::cuda {

using stream_handle = CUstream_st*;

void add_values(stream_handle stream, float* to, const float* left, const float* right, std::size_t n);
void add_values(stream_handle stream, float* to, const float* left, const bfloat16* right, std::size_t n);
void add_values(stream_handle stream, bfloat16* to, const bfloat16* left, const bfloat16* right, std::size_t n);
void round_values(stream_handle stream, bfloat16* to, const float* from, std::size_t n);
void widen_values(stream_handle stream, float* to, const bfloat16* from, std::size_t n);

/// The most sums, and the deepest order; throws std::invalid_argument beyond.
inline constexpr std::size_t max_sums = 256, max_depth = 16;
void add_in_order(stream_handle stream, const addition_order& order, float* to, std::span<const float* const> sums,
                  std::size_t n);
void add_in_order(stream_handle stream, const addition_order& order, bfloat16* to,
                  std::span<const bfloat16* const> sums, std::size_t n);

void step_adamw(stream_handle stream, const adamw_factors& x, float* parameters, float* first, float* second,
                const float* gradient, bfloat16* copy, std::size_t n);
void step_sgd(stream_handle stream, const sgd_factors& x, float* parameters, float* moment, const float* gradient,
              bfloat16* copy, std::size_t n);

/// *to = the sum of squares. `scratch` has room for scratch_of(n) numbers until it is done.
std::size_t scratch_of(std::size_t n);
void squared_norm(stream_handle stream, const float* x, std::size_t n, double* scratch, double* to);

void draw_normal(stream_handle stream, float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first);
void draw_uniform(stream_handle stream, float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first);
void drop_values(stream_handle stream, float* to, const float* from, std::size_t n, const dropout_mask& mask,
                 std::uint64_t first);

void keep_rows(stream_handle stream, const attention_shape& shape, const cached_rows& rows, const float* keys,
               const float* values, std::size_t stride);

/// The last position that a row may have, for which there is room beside the threads; throws std::invalid_argument if
/// there are more blocks.
inline constexpr std::size_t max_positions = 8192;
void attend_rows(stream_handle stream, const attention_shape& shape, const cached_rows& rows, float scale,
                 const float* queries, std::size_t stride, float* to);

} // namespace parcae::cuda
