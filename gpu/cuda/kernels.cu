// Compiled with --fmad=false: products and sums are rounded one by one, as on the processor.

#include "gpu/cuda/kernels.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace parcae::cuda {

namespace {

constexpr unsigned threads = 256;
constexpr unsigned warp = 32;
static_assert(sum_lanes == warp);

/// As many blocks as there is work for, and no more than keep any GPU busy.
unsigned blocks_for(std::size_t work, std::size_t per_block = threads) {
  return static_cast<unsigned>(std::clamp<std::size_t>((work + per_block - 1) / per_block, 1, 1 << 14));
}

__device__ std::size_t own_index() {
  return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

__device__ std::size_t all_threads() {
  return std::size_t{gridDim.x} * blockDim.x;
}

/// f(i) for all of [0, n).
template <class Element>
__global__ void __launch_bounds__(threads) each(const Element f, std::size_t n) {
  for (auto i = own_index(); i < n; i += all_threads())
    f(i);
}

template <class Element>
void run(stream_handle stream, const Element& f, std::size_t n) {
  if (n > 0)
    each<<<blocks_for(n), threads, 0, stream>>>(f, n);
}

template <class Number>
struct addition {
  float* to;
  const float* left;
  const Number* right;

  __device__ void operator()(std::size_t i) const { to[i] = left[i] + to_float(right[i]); }
};

struct rounding {
  bfloat16* to;
  const float* from;

  __device__ void operator()(std::size_t i) const { to[i] = to_bfloat16(from[i]); }
};

} // namespace

void add_values(stream_handle stream, float* to, const float* left, const float* right, std::size_t n) {
  run(stream, addition<float>{to, left, right}, n);
}

void add_values(stream_handle stream, float* to, const float* left, const bfloat16* right, std::size_t n) {
  run(stream, addition<bfloat16>{to, left, right}, n);
}

void round_values(stream_handle stream, bfloat16* to, const float* from, std::size_t n) {
  run(stream, rounding{to, from}, n);
}

// --- sums in an order

namespace {

struct sums_in_order {
  const float* sums[max_sums];
  std::uint8_t joins[max_sums];
  unsigned count;
};

/// The newest value is always v[0]: registers have no index, so values move instead.
template <int Depth>
__global__ void __launch_bounds__(threads)
    add_all(const __grid_constant__ sums_in_order what, float* to, std::size_t n) {
  for (auto i = own_index(); i < n; i += all_threads()) {
    float v[Depth] = {};
    for (unsigned k = 0; k < what.count; ++k) {
#pragma unroll
      for (int d = Depth - 1; d > 0; --d)
        v[d] = v[d - 1];
      v[0] = what.sums[k][i];
      for (int j = what.joins[k]; j > 0; --j) {
        v[0] = v[1] + v[0];
#pragma unroll
        for (int d = 1; d + 1 < Depth; ++d)
          v[d] = v[d + 1];
      }
    }
    to[i] = v[0];
  }
}

} // namespace

void add_in_order(stream_handle stream, const addition_order& order, float* to, std::span<const float* const> sums,
                  std::size_t n) {
  if (sums.size() != order.joins().size() || sums.size() > max_sums || order.depth() > max_depth)
    throw std::invalid_argument("add_in_order: " + std::to_string(sums.size()) + " sums, depth " +
                                std::to_string(order.depth()));
  sums_in_order what{};
  std::ranges::copy(sums, what.sums);
  std::ranges::copy(order.joins(), what.joins);
  what.count = static_cast<unsigned>(sums.size());
  if (n == 0)
    return;
  const auto kernel = order.depth() <= 4 ? add_all<4> : order.depth() <= 8 ? add_all<8> : add_all<max_depth>;
  kernel<<<blocks_for(n), threads, 0, stream>>>(what, to, n);
}

// --- optimizers

namespace {

template <bool Copy>
struct adamw {
  adamw_factors factors;
  float *parameters, *first, *second;
  const float* gradient;
  bfloat16* copy;

  __device__ void operator()(std::size_t i) const {
    adamw_at<Copy>(i, factors, parameters, first, second, gradient, copy);
  }
};

template <bool Momentum, bool Copy>
struct sgd {
  sgd_factors factors;
  float *parameters, *moment;
  const float* gradient;
  bfloat16* copy;

  __device__ void operator()(std::size_t i) const {
    sgd_at<Momentum, Copy>(i, factors, parameters, moment, gradient, copy);
  }
};

} // namespace

void step_adamw(stream_handle stream, const adamw_factors& x, float* parameters, float* first, float* second,
                const float* gradient, bfloat16* copy, std::size_t n) {
  if (copy)
    run(stream, adamw<true>{x, parameters, first, second, gradient, copy}, n);
  else
    run(stream, adamw<false>{x, parameters, first, second, gradient, copy}, n);
}

void step_sgd(stream_handle stream, const sgd_factors& x, float* parameters, float* moment, const float* gradient,
              bfloat16* copy, std::size_t n) {
  if (moment && copy)
    run(stream, sgd<true, true>{x, parameters, moment, gradient, copy}, n);
  else if (moment)
    run(stream, sgd<true, false>{x, parameters, moment, gradient, copy}, n);
  else if (copy)
    run(stream, sgd<false, true>{x, parameters, moment, gradient, copy}, n);
  else
    run(stream, sgd<false, false>{x, parameters, moment, gradient, copy}, n);
}

// --- norm

namespace {

__device__ double term_of(float x) {
  return squared(x);
}

__device__ double term_of(double x) {
  return x;
}

/// A warp sums a chunk.
template <class Number>
__global__ void __launch_bounds__(threads) sum_chunks(const Number* x, std::size_t n, double* sums) {
  const auto lane = threadIdx.x % warp;
  for (auto c = own_index() / warp; c * sum_chunk < n; c += all_threads() / warp) {
    const auto end = min(n, (c + 1) * sum_chunk);
    double sum = 0;
#pragma unroll 8
    for (auto i = c * sum_chunk + lane; i < end; i += warp)
      sum += term_of(x[i]);
    for (unsigned half = warp / 2; half > 0; half /= 2)
      sum += __shfl_down_sync(0xffffffff, sum, half);
    if (lane == 0)
      sums[c] = sum;
  }
}

std::size_t chunks_of(std::size_t n) {
  return (n + sum_chunk - 1) / sum_chunk;
}

} // namespace

std::size_t scratch_of(std::size_t n) {
  return chunks_of(n) + chunks_of(chunks_of(n));
}

void squared_norm(stream_handle stream, const float* x, std::size_t n, double* scratch, double* to) {
  const auto sum = [&](const auto* from, std::size_t count, double* sums) {
    sum_chunks<<<blocks_for(chunks_of(count) * warp), threads, 0, stream>>>(from, count, sums);
  };
  auto count = chunks_of(n);
  if (count == 0) {
    cudaMemsetAsync(to, 0, sizeof *to, stream);
    return;
  }
  sum(x, n, count == 1 ? to : scratch);
  // Sums lie in the two parts of the scratch memory in turn.
  for (auto from = scratch, next = scratch + count; count > 1; std::swap(from, next)) {
    const auto n_sums = count;
    count = chunks_of(n_sums);
    sum(from, n_sums, count == 1 ? to : next);
  }
}

// --- random numbers, a thread for each block of four

namespace {

/// Of one block: writes those of its values that are within [0, n).
template <class Values>
struct of_blocks {
  Values values;
  std::uint64_t seed, first_block;
  std::size_t n;

  __device__ void operator()(std::size_t block) const {
    const auto words = philox(seed, first_block + block);
    const auto begin = 4 * block;
    float four[4];
    values.of(words, four);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (begin + k < n)
        values.put(begin + k, four[k]);
  }
};

struct normal_values {
  float* to;
  float scale;

  __device__ void of(const philox_words& words, float (&four)[4]) const {
    const auto left = normal_of(words.x[0], words.x[1]), right = normal_of(words.x[2], words.x[3]);
    four[0] = scale * left.x;
    four[1] = scale * left.y;
    four[2] = scale * right.x;
    four[3] = scale * right.y;
  }
  __device__ void put(std::size_t i, float x) const { to[i] = x; }
};

struct uniform_values {
  float* to;
  float scale;

  __device__ void of(const philox_words& words, float (&four)[4]) const {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      four[k] = uniform_of(words.x[k]) * (2 * scale) - scale;
  }
  __device__ void put(std::size_t i, float x) const {
    to[i] = x;
  }
};

struct dropped_values {
  float* to;
  const float* from;
  dropout_mask mask;

  __device__ void of(const philox_words& words, float (&four)[4]) const {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      four[k] = mask.factor(words.x[k]);
  }
  __device__ void put(std::size_t i, float factor) const {
    to[i] = from[i] * factor;
  }
};

template <class Values>
void run_blocks(stream_handle stream, const Values& values, std::size_t n, std::uint64_t seed, std::uint64_t first) {
  run(stream, of_blocks<Values>{values, seed, first / 4, n}, (n + 3) / 4);
}

} // namespace

void draw_normal(stream_handle stream, float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first) {
  run_blocks(stream, normal_values{to, scale}, n, seed, first);
}

void draw_uniform(stream_handle stream, float* to, std::size_t n, std::uint64_t seed, float scale,
                  std::uint64_t first) {
  run_blocks(stream, uniform_values{to, scale}, n, seed, first);
}

void drop_values(stream_handle stream, float* to, const float* from, std::size_t n, const dropout_mask& mask,
                 std::uint64_t first) {
  run_blocks(stream, dropped_values{to, from, mask}, n, mask.seed, first);
}

} // namespace parcae::cuda
