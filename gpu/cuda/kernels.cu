// Compiled with --fmad=false: products and sums are rounded one by one, as on the processor.

#include "gpu/cuda/kernels.hpp"

#include <algorithm>
#include <cstdint>
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

/// N neighbours in an array, read and written at once: 16 bytes of the widest that a kernel has.
template <class Number, int N>
struct alignas(N * sizeof(Number)) pack {
  Number x[N];
};

template <int N, class Number>
__device__ pack<Number, N> load(const Number* from, std::size_t i) {
  if constexpr (sizeof(pack<Number, N>) == sizeof(uint4)) { // else nvcc takes no more than four numbers at once
    const auto bits = *reinterpret_cast<const uint4*>(from + i);
    pack<Number, N> result;
    memcpy(&result, &bits, sizeof result);
    return result;
  } else {
    return *reinterpret_cast<const pack<Number, N>*>(from + i);
  }
}

template <int N, class Number>
__device__ void store(Number* to, std::size_t i, const pack<Number, N>& x) {
  if constexpr (sizeof x == sizeof(uint4)) {
    uint4 bits;
    memcpy(&bits, &x, sizeof bits);
    *reinterpret_cast<uint4*>(to + i) = bits;
  } else {
    *reinterpret_cast<pack<Number, N>*>(to + i) = x;
  }
}

template <class To, class From, int N>
__device__ pack<To, N> converted(const pack<From, N>& x) {
  pack<To, N> result;
#pragma unroll
  for (int k = 0; k < N; ++k)
    result.x[k] = rounded_to<To>(to_float(x.x[k]));
  return result;
}

/// How many of a kernel's numbers go at once, whose widest are these.
template <class... Numbers>
constexpr int width_of = sizeof(uint4) / std::max({sizeof(Numbers)...});
constexpr int width = width_of<float>;

/// How many packs of [0, n) there are: none, if one of the arrays does not begin where a pack may.
template <class... Numbers>
std::size_t packs_of(std::size_t n, const Numbers*... arrays) {
  constexpr auto width = static_cast<std::size_t>(width_of<Numbers...>);
  return ((reinterpret_cast<std::uintptr_t>(arrays) % (width * sizeof(Numbers)) == 0) && ...) ? n / width : 0;
}

/// f.of<N>(i) for all of [0, n), N elements from i on: packs, then what is left one by one.
template <int Width, class Elements>
__global__ void __launch_bounds__(threads) each(const __grid_constant__ Elements f, std::size_t packs, std::size_t n) {
  for (auto i = own_index(); i < packs; i += all_threads())
    f.template of<Width>(Width * i);
  for (auto i = Width * packs + own_index(); i < n; i += all_threads())
    f.template of<1>(i);
}

template <int Width = width, class Elements>
void run(stream_handle stream, const Elements& f, std::size_t packs, std::size_t n) {
  if (n > 0)
    each<Width><<<blocks_for(packs > 0 ? packs : n), threads, 0, stream>>>(f, packs, n);
}

template <class To, class Left, class Right>
struct addition {
  To* to;
  const Left* left;
  const Right* right;

  template <int N>
  __device__ void of(std::size_t i) const {
    const auto a = load<N>(left, i);
    const auto b = load<N>(right, i);
    pack<To, N> sums;
#pragma unroll
    for (int k = 0; k < N; ++k)
      sums.x[k] = rounded_to<To>(to_float(a.x[k]) + to_float(b.x[k]));
    store(to, i, sums);
  }
};

template <class To, class From>
struct conversion {
  To* to;
  const From* from;

  template <int N>
  __device__ void of(std::size_t i) const {
    store(to, i, converted<To>(load<N>(from, i)));
  }
};

} // namespace

void add_values(stream_handle stream, float* to, const float* left, const float* right, std::size_t n) {
  run(stream, addition<float, float, float>{to, left, right}, packs_of(n, to, left, right), n);
}

void add_values(stream_handle stream, float* to, const float* left, const bfloat16* right, std::size_t n) {
  run(stream, addition<float, float, bfloat16>{to, left, right}, packs_of(n, to, left, right), n);
}

void add_values(stream_handle stream, bfloat16* to, const bfloat16* left, const bfloat16* right, std::size_t n) {
  run<width_of<bfloat16>>(stream, addition<bfloat16, bfloat16, bfloat16>{to, left, right}, packs_of(n, to, left, right), n);
}

void round_values(stream_handle stream, bfloat16* to, const float* from, std::size_t n) {
  run(stream, conversion<bfloat16, float>{to, from}, packs_of(n, to, from), n);
}

void widen_values(stream_handle stream, float* to, const bfloat16* from, std::size_t n) {
  run(stream, conversion<float, bfloat16>{to, from}, packs_of(n, to, from), n);
}

// --- sums in an order

namespace {

template <class Number>
struct sums_in_order {
  const Number* sums[max_sums];
  std::uint8_t joins[max_sums];
  unsigned count;
};

/// Count sums, 0: as many as there are. Of a known number all are read before the first is added.
/// The newest value is always v[0]: registers have no index, so values move instead.
template <class Number, int Depth, int Count>
struct addition_in_order {
  sums_in_order<Number> what;
  Number* to;

  template <int N>
  __device__ void of(std::size_t i) const {
    if constexpr (Depth > 8 && N > 1) { // there are not as many registers
#pragma unroll 1
      for (int k = 0; k < N; ++k)
        of<1>(i + k);
    } else {
      add<N>(i);
    }
  }

private:
  template <int N>
  __device__ void add(std::size_t i) const {
    pack<Number, N> read[Count > 0 ? Count : 1];
    pack<float, N> v[Depth] = {};
#pragma unroll
    for (int k = 0; k < Count; ++k)
      read[k] = load<N>(what.sums[k], i);
    if constexpr (Count > 0) {
#pragma unroll
      for (int k = 0; k < Count; ++k)
        take(v, read[k], what.joins[k]);
    } else {
      for (unsigned k = 0; k < what.count; ++k)
        take(v, load<N>(what.sums[k], i), what.joins[k]);
    }
    store(to, i, converted<Number>(v[0]));
  }

  template <int N>
  static __device__ void take(pack<float, N> (&v)[Depth], const pack<Number, N>& x, int joins) {
#pragma unroll
    for (int d = Depth - 1; d > 0; --d)
      v[d] = v[d - 1];
    v[0] = converted<float>(x);
    for (; joins > 0; --joins) {
#pragma unroll
      for (int k = 0; k < N; ++k)
        v[0].x[k] = to_float(rounded_to<Number>(v[1].x[k] + v[0].x[k]));
#pragma unroll
      for (int d = 1; d + 1 < Depth; ++d)
        v[d] = v[d + 1];
    }
  }
};

template <class Number, int Depth, int Count>
void add_all(stream_handle stream, const sums_in_order<Number>& what, Number* to, std::size_t packs, std::size_t n) {
  run<width_of<Number>>(stream, addition_in_order<Number, Depth, Count>{what, to}, packs, n);
}

/// Of 2 to 8 sums that are at most four values at once, as those of a tree are; else of any number.
template <class Number>
auto addition_of(std::size_t count, std::size_t depth) {
  using adder = void (*)(stream_handle, const sums_in_order<Number>&, Number*, std::size_t, std::size_t);
  constexpr adder known[] = {add_all<Number, 4, 2>, add_all<Number, 4, 3>, add_all<Number, 4, 4>, add_all<Number, 4, 5>,
                             add_all<Number, 4, 6>, add_all<Number, 4, 7>, add_all<Number, 4, 8>};
  if (depth <= 4 && count >= 2 && count <= 8)
    return known[count - 2];
  return depth <= 4   ? adder(add_all<Number, 4, 0>)
         : depth <= 8 ? adder(add_all<Number, 8, 0>)
                      : adder(add_all<Number, max_depth, 0>);
}

template <class Number>
void add_sums(stream_handle stream, const addition_order& order, Number* to, std::span<const Number* const> sums,
              std::size_t n) {
  if (sums.size() != order.joins().size() || sums.size() > max_sums || order.depth() > max_depth)
    throw std::invalid_argument("add_in_order: " + std::to_string(sums.size()) + " sums, depth " +
                                std::to_string(order.depth()));
  sums_in_order<Number> what{};
  std::ranges::copy(sums, what.sums);
  std::ranges::copy(order.joins(), what.joins);
  what.count = static_cast<unsigned>(sums.size());
  auto packs = packs_of(n, to);
  for (const auto* x : sums)
    packs = std::min(packs, packs_of(n, x));
  addition_of<Number>(sums.size(), order.depth())(stream, what, to, packs, n);
}

} // namespace

void add_in_order(stream_handle stream, const addition_order& order, float* to, std::span<const float* const> sums,
                  std::size_t n) {
  add_sums(stream, order, to, sums, n);
}

void add_in_order(stream_handle stream, const addition_order& order, bfloat16* to,
                  std::span<const bfloat16* const> sums, std::size_t n) {
  add_sums(stream, order, to, sums, n);
}

// --- optimizers

namespace {

template <bool Copy>
struct adamw {
  adamw_factors factors;
  float *parameters, *first, *second;
  const float* gradient;
  bfloat16* copy;

  template <int N>
  __device__ void of(std::size_t i) const {
    auto p = load<N>(parameters, i), m = load<N>(first, i), v = load<N>(second, i);
    const auto g = load<N>(gradient, i);
    pack<bfloat16, N> rounded;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      adamw_element(factors, p.x[k], m.x[k], v.x[k], g.x[k]);
      rounded.x[k] = to_bfloat16(p.x[k]);
    }
    store(parameters, i, p);
    store(first, i, m);
    store(second, i, v);
    if constexpr (Copy)
      store(copy, i, rounded);
  }
};

template <bool Momentum, bool Copy>
struct sgd {
  sgd_factors factors;
  float *parameters, *moment;
  const float* gradient;
  bfloat16* copy;

  template <int N>
  __device__ void of(std::size_t i) const {
    auto p = load<N>(parameters, i);
    const auto g = load<N>(gradient, i);
    pack<float, N> m{};
    if constexpr (Momentum)
      m = load<N>(moment, i);
    pack<bfloat16, N> rounded;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if constexpr (Momentum)
        sgd_element(factors, p.x[k], m.x[k], g.x[k]);
      else
        sgd_element(factors, p.x[k], g.x[k]);
      rounded.x[k] = to_bfloat16(p.x[k]);
    }
    store(parameters, i, p);
    if constexpr (Momentum)
      store(moment, i, m);
    if constexpr (Copy)
      store(copy, i, rounded);
  }
};

} // namespace

void step_adamw(stream_handle stream, const adamw_factors& x, float* parameters, float* first, float* second,
                const float* gradient, bfloat16* copy, std::size_t n) {
  const auto packs = packs_of(n, parameters, first, second, gradient, copy); // null is a good place, too
  if (copy)
    run(stream, adamw<true>{x, parameters, first, second, gradient, copy}, packs, n);
  else
    run(stream, adamw<false>{x, parameters, first, second, gradient, copy}, packs, n);
}

void step_sgd(stream_handle stream, const sgd_factors& x, float* parameters, float* moment, const float* gradient,
              bfloat16* copy, std::size_t n) {
  const auto packs = packs_of(n, parameters, moment, gradient, copy);
  if (moment && copy)
    run(stream, sgd<true, true>{x, parameters, moment, gradient, copy}, packs, n);
  else if (moment)
    run(stream, sgd<true, false>{x, parameters, moment, gradient, copy}, packs, n);
  else if (copy)
    run(stream, sgd<false, true>{x, parameters, moment, gradient, copy}, packs, n);
  else
    run(stream, sgd<false, false>{x, parameters, moment, gradient, copy}, packs, n);
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
  template <int N>
  __device__ void put(std::size_t i, const pack<float, N>& x) const {
    store(to, i, x);
  }
};

struct uniform_values {
  float* to;
  float scale;

  __device__ void of(const philox_words& words, float (&four)[4]) const {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      four[k] = uniform_of(words.x[k]) * (2 * scale) - scale;
  }
  template <int N>
  __device__ void put(std::size_t i, const pack<float, N>& x) const {
    store(to, i, x);
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
  template <int N>
  __device__ void put(std::size_t i, const pack<float, N>& factors) const {
    auto values = load<N>(from, i);
#pragma unroll
    for (int k = 0; k < N; ++k)
      values.x[k] = values.x[k] * factors.x[k];
    store(to, i, values);
  }
};

/// The first `packs` blocks are written at once, of the others those of their values that are within [0, n).
template <class Values>
__global__ void __launch_bounds__(threads)
    of_blocks(const Values values, std::uint64_t seed, std::uint64_t first_block, std::size_t packs, std::size_t n) {
  for (auto block = own_index(); width * block < n; block += all_threads()) {
    const auto words = philox(seed, first_block + block);
    const auto begin = width * block;
    pack<float, width> four;
    values.of(words, four.x);
    if (block < packs) {
      values.template put<width>(begin, four);
      continue;
    }
#pragma unroll
    for (int k = 0; k < width; ++k)
      if (begin + k < n)
        values.template put<1>(begin + k, {{four.x[k]}});
  }
}

template <class Values>
void run_blocks(stream_handle stream, const Values& values, std::size_t packs, std::size_t n, std::uint64_t seed,
                std::uint64_t first) {
  if (n > 0)
    of_blocks<<<blocks_for((n + 3) / 4), threads, 0, stream>>>(values, seed, first / 4, packs, n);
}

} // namespace

void draw_normal(stream_handle stream, float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first) {
  run_blocks(stream, normal_values{to, scale}, packs_of(n, to), n, seed, first);
}

void draw_uniform(stream_handle stream, float* to, std::size_t n, std::uint64_t seed, float scale,
                  std::uint64_t first) {
  run_blocks(stream, uniform_values{to, scale}, packs_of(n, to), n, seed, first);
}

void drop_values(stream_handle stream, float* to, const float* from, std::size_t n, const dropout_mask& mask,
                 std::uint64_t first) {
  run_blocks(stream, dropped_values{to, from, mask}, packs_of(n, to, from), n, mask.seed, first);
}

// --- attention

namespace {

__global__ void __launch_bounds__(threads) keep(const __grid_constant__ attention_shape shape,
                                                const __grid_constant__ cached_rows rows, const float* keys,
                                                const float* values, std::size_t stride) {
  const auto row_values = shape.key_heads * shape.size;
  for (auto i = own_index(); i < rows.rows * row_values; i += all_threads()) {
    const auto row = i / row_values, in_row = i % row_values, head = in_row / shape.size, d = in_row % shape.size;
    const auto position = static_cast<std::size_t>(rows.positions[row]), place = position % block_positions;
    const auto block = rows.blocks[row * rows.most_blocks + position / block_positions];
    auto* const to = rows.pool + static_cast<std::size_t>(block) * rows.block_distance;
    to[in_row * block_positions + place] = keys[row * stride + in_row];
    to[row_values * block_positions + (head * block_positions + place) * shape.size + d] = values[row * stride + in_row];
  }
}

/// A block of threads for each head of each row: a thread for a position's score, then for a value of the head. What
/// all need to know each computes for itself.
__global__ void __launch_bounds__(threads) attend(const __grid_constant__ attention_shape shape,
                                                  const __grid_constant__ cached_rows rows, float scale,
                                                  const float* queries, std::size_t stride, float* to) {
  __shared__ float weights[max_positions];
  __shared__ float lanes[block_positions];
  const auto row = blockIdx.x / shape.heads, head = blockIdx.x % shape.heads;
  const auto positions = static_cast<std::size_t>(rows.positions[row]) + 1;
  const auto* blocks = rows.blocks + row * rows.most_blocks;
  const auto* query = queries + row * stride + head * shape.size;
  const auto head_values = shape.size * block_positions;
  const auto* keys = rows.pool + head / (shape.heads / shape.key_heads) * head_values;
  const auto* values = keys + shape.key_heads * head_values;
  const auto block_of = [&](std::size_t p) {
    return static_cast<std::size_t>(blocks[p / block_positions]) * rows.block_distance;
  };
  for (std::size_t p = threadIdx.x; p < positions; p += threads) {
    const auto* key = keys + block_of(p) + p % block_positions;
    float sum = 0;
    for (std::size_t d = 0; d < shape.size; ++d)
      sum += query[d] * scale * key[d * block_positions];
    weights[p] = sum;
  }
  __syncthreads();
  auto largest = weights[0];
  for (std::size_t p = 1; p < positions; ++p)
    largest = weights[p] > largest ? weights[p] : largest;
  __syncthreads();
  for (std::size_t p = threadIdx.x; p < positions; p += threads)
    weights[p] = exp_of(weights[p] - largest);
  __syncthreads();
  if (threadIdx.x < block_positions) {
    float sum = 0;
    for (std::size_t p = threadIdx.x; p < positions; p += block_positions)
      sum += weights[p];
    lanes[threadIdx.x] = sum;
  }
  for (unsigned half = block_positions / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half)
      lanes[threadIdx.x] += lanes[threadIdx.x + half];
  }
  __syncthreads();
  for (std::size_t d = threadIdx.x; d < shape.size; d += threads) {
    float sum = 0;
    for (std::size_t p = 0; p < positions; ++p)
      sum += weights[p] * values[block_of(p) + p % block_positions * shape.size + d];
    to[(row * shape.heads + head) * shape.size + d] = sum / lanes[0];
  }
}

} // namespace

void keep_rows(stream_handle stream, const attention_shape& shape, const cached_rows& rows, const float* keys,
               const float* values, std::size_t stride) {
  if (const auto n = rows.rows * shape.key_heads * shape.size; n > 0)
    keep<<<blocks_for(n), threads, 0, stream>>>(shape, rows, keys, values, stride);
}

void attend_rows(stream_handle stream, const attention_shape& shape, const cached_rows& rows, float scale,
                 const float* queries, std::size_t stride, float* to) {
  if (rows.most_blocks * block_positions > max_positions)
    throw std::invalid_argument("attend_rows: " + std::to_string(rows.most_blocks) + " blocks");
  if (const auto n = static_cast<unsigned>(rows.rows * shape.heads); n > 0)
    attend<<<n, threads, 0, stream>>>(shape, rows, scale, queries, stride, to);
}

} // namespace parcae::cuda
