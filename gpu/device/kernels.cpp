#include "gpu/device/kernels.hpp"

#include "gpu/device/vector_widths.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace parcae {

namespace {

template <class To, class Left, class Right>
void add_all(To* to, const Left* left, const Right* right, std::size_t n) {
  run([=](auto) PARCAE_INLINE {
    each(n, [=](std::size_t i) PARCAE_INLINE { to[i] = rounded_to<To>(to_float(left[i]) + to_float(right[i])); });
  });
}

} // namespace

void limit_vectors(int bits) {
  max_vector_bits = bits;
}

void add_values(float* to, const float* left, const float* right, std::size_t n) {
  add_all(to, left, right, n);
}

void add_values(float* to, const float* left, const bfloat16* right, std::size_t n) {
  add_all(to, left, right, n);
}

void add_values(bfloat16* to, const bfloat16* left, const bfloat16* right, std::size_t n) {
  add_all(to, left, right, n);
}

void round_values(bfloat16* to, const float* from, std::size_t n) {
  run([=](auto) PARCAE_INLINE { each(n, [=](std::size_t i) PARCAE_INLINE { to[i] = to_bfloat16(from[i]); }); });
}

void widen_values(float* to, const bfloat16* from, std::size_t n) {
  run([=](auto) PARCAE_INLINE { each(n, [=](std::size_t i) PARCAE_INLINE { to[i] = to_float(from[i]); }); });
}

// --- sums in an order

addition_order::addition_order(std::vector<std::uint8_t> joins) : joins_(std::move(joins)) {
  std::size_t present = 0;
  for (const auto count : joins_) {
    depth_ = std::max(depth_, ++present);
    if (count >= present)
      throw std::invalid_argument("addition_order: adds more than there is");
    present -= count;
  }
  if (present != 1 || depth_ > max_depth)
    throw std::invalid_argument("addition_order: " + std::to_string(present) + " sums are left, at a depth of " +
                                std::to_string(depth_));
}

namespace {

template <class Number>
void add_all_in_order(const addition_order& order, Number* to, std::span<const Number* const> sums, std::size_t n) {
  if (sums.size() != order.joins().size())
    throw std::invalid_argument("add_in_order: " + std::to_string(sums.size()) + " sums instead of " +
                                std::to_string(order.joins().size()));
  if (sums.size() == 1) {
    std::memmove(to, sums[0], n * sizeof(Number));
    return;
  }
  // In blocks that stay in the first-level cache: what was added waits there for the next.
  constexpr std::size_t block = 512;
  Number kept[addition_order::max_depth][block];
  const Number* values[addition_order::max_depth];
  for (std::size_t begin = 0; begin < n; begin += block) {
    const auto length = std::min(block, n - begin);
    std::size_t present = 0;
    for (std::size_t k = 0; k < sums.size(); ++k) {
      values[present++] = sums[k] + begin;
      for (int j = order.joins()[k]; j > 0; --j) {
        --present;
        const bool last = present == 1 && k + 1 == sums.size();
        const auto sum = last ? to + begin : kept[present - 1];
        add_values(sum, values[present - 1], values[present], length);
        values[present - 1] = sum;
      }
    }
  }
}

} // namespace

void add_in_order(const addition_order& order, float* to, std::span<const float* const> sums, std::size_t n) {
  add_all_in_order(order, to, sums, n);
}

void add_in_order(const addition_order& order, bfloat16* to, std::span<const bfloat16* const> sums, std::size_t n) {
  add_all_in_order(order, to, sums, n);
}

// --- optimizers

void step_adamw(const adamw_factors& x, float* parameters, float* first, float* second, const float* gradient,
                bfloat16* copy, std::size_t n) {
  const auto step = [=](auto and_copy) {
    run([=](auto) PARCAE_INLINE {
      const auto factors = x;
      each(n, [=](std::size_t i)
                  PARCAE_INLINE { adamw_at<and_copy()>(i, factors, parameters, first, second, gradient, copy); });
    });
  };
  copy ? step(std::true_type()) : step(std::false_type());
}

void step_sgd(const sgd_factors& x, float* parameters, float* moment, const float* gradient, bfloat16* copy,
              std::size_t n) {
  const auto step = [=](auto with_momentum, auto and_copy) {
    run([=](auto) PARCAE_INLINE {
      const auto factors = x;
      each(n, [=](std::size_t i) PARCAE_INLINE {
        sgd_at<with_momentum(), and_copy()>(i, factors, parameters, moment, gradient, copy);
      });
    });
  };
  const auto with_momentum = [=](auto kept) { copy ? step(kept, std::true_type()) : step(kept, std::false_type()); };
  moment ? with_momentum(std::true_type()) : with_momentum(std::false_type());
}

// --- norm

namespace {

// Eight lanes; processors with shorter vectors take several.
using eight_doubles = double __attribute__((vector_size(64)));
constexpr std::size_t eight = 8;
static_assert(sum_lanes == 4 * eight);

PARCAE_INLINE inline void load(eight_doubles& to, const float* from) {
  float __attribute__((vector_size(32))) values;
  std::memcpy(&values, from, sizeof values);
  const auto wide = __builtin_convertvector(values, eight_doubles);
  to = wide * wide;
}

PARCAE_INLINE inline void load(eight_doubles& to, const double* from) {
  std::memcpy(&to, from, sizeof to);
}

PARCAE_INLINE inline double term_of(float x) {
  return squared(x);
}

PARCAE_INLINE inline double term_of(double x) {
  return x;
}

/// The sum of a chunk of at most sum_chunk terms.
template <class Number>
PARCAE_INLINE inline double sum_of_chunk(const Number* x, std::size_t n) {
  eight_doubles a = {}, b = {}, c = {}, d = {}, next;
  std::size_t i = 0;
  for (; i + sum_lanes <= n; i += sum_lanes) {
    load(next, x + i);
    a += next;
    load(next, x + i + eight);
    b += next;
    load(next, x + i + 2 * eight);
    c += next;
    load(next, x + i + 3 * eight);
    d += next;
  }
  double lanes[sum_lanes];
  std::memcpy(lanes, &a, sizeof a);
  std::memcpy(lanes + eight, &b, sizeof b);
  std::memcpy(lanes + 2 * eight, &c, sizeof c);
  std::memcpy(lanes + 3 * eight, &d, sizeof d);
  for (std::size_t l = 0; i + l < n; ++l)
    lanes[l] += term_of(x[i + l]);
  for (auto half = sum_lanes / 2; half > 0; half /= 2)
    for (std::size_t l = 0; l < half; ++l)
      lanes[l] += lanes[l + half];
  return lanes[0];
}

template <class Number>
void sum_chunks(const Number* x, std::size_t n, double* chunks) {
  run([=](auto) PARCAE_INLINE {
    for (std::size_t c = 0; c * sum_chunk < n; ++c)
      chunks[c] = sum_of_chunk(x + c * sum_chunk, std::min(sum_chunk, n - c * sum_chunk));
  });
}

} // namespace

void sum_squares(const float* x, std::size_t n, double* chunks) {
  sum_chunks(x, n, chunks);
}

double sum_of(std::span<double> chunks) {
  auto n = chunks.size();
  for (; n > 1; n = (n + sum_chunk - 1) / sum_chunk)
    sum_chunks(chunks.data(), n, chunks.data()); // a chunk is read before its sum is written, which is before it
  return n == 0 ? 0 : chunks[0];
}

double squared_norm(const float* x, std::size_t n) {
  std::vector<double> chunks((n + sum_chunk - 1) / sum_chunk);
  sum_squares(x, n, chunks.data());
  return sum_of(chunks);
}

// --- random numbers

namespace {

/// Words of consecutive blocks: x[k][b] is word k of block b.
constexpr std::size_t tile = 256;
struct tile_words {
  std::uint32_t x[4][tile];
};

PARCAE_INLINE inline void draw(tile_words& to, std::uint64_t seed, std::uint64_t first) {
  each(tile, [&](std::size_t b) PARCAE_INLINE {
    const auto words = philox(seed, first + b);
    for (int k = 0; k < 4; ++k)
      to.x[k][b] = words.x[k];
  });
}

/// use(numbers, begin, count) for all tiles of [first, first + n): of(words, b) makes the four numbers of block b.
template <class Of, class Use>
void in_tiles(std::size_t n, std::uint64_t seed, std::uint64_t first, const Of& of, const Use& use) {
  run([=](auto) PARCAE_INLINE {
    tile_words words;
    float numbers[4 * tile];
    for (std::size_t begin = 0; begin < n; begin += 4 * tile) {
      draw(words, seed, (first + begin) / 4);
      each(tile, [&](std::size_t b) PARCAE_INLINE { of(numbers + 4 * b, words, b); });
      use(numbers, begin, std::min(4 * tile, n - begin));
    }
  });
}

} // namespace

void draw_normal(float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first) {
  in_tiles(
      n, seed, first,
      [=](float* four, const tile_words& words, std::size_t b) PARCAE_INLINE {
        const auto left = normal_of(words.x[0][b], words.x[1][b]), right = normal_of(words.x[2][b], words.x[3][b]);
        four[0] = scale * left.x;
        four[1] = scale * left.y;
        four[2] = scale * right.x;
        four[3] = scale * right.y;
      },
      [=](const float* numbers, std::size_t begin, std::size_t count)
          PARCAE_INLINE { std::memcpy(to + begin, numbers, count * sizeof(float)); });
}

void draw_uniform(float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first) {
  in_tiles(
      n, seed, first,
      [=](float* four, const tile_words& words, std::size_t b) PARCAE_INLINE {
        for (int k = 0; k < 4; ++k)
          four[k] = uniform_of(words.x[k][b]) * (2 * scale) - scale;
      },
      [=](const float* numbers, std::size_t begin, std::size_t count)
          PARCAE_INLINE { std::memcpy(to + begin, numbers, count * sizeof(float)); });
}

void drop_values(float* to, const float* from, std::size_t n, const dropout_mask& mask, std::uint64_t first) {
  in_tiles(
      n, mask.seed, first,
      [=](float* four, const tile_words& words, std::size_t b) PARCAE_INLINE {
        for (int k = 0; k < 4; ++k)
          four[k] = mask.factor(words.x[k][b]);
      },
      [=](const float* factors, std::size_t begin, std::size_t count) PARCAE_INLINE {
        each(count, [=](std::size_t i) PARCAE_INLINE { to[begin + i] = from[begin + i] * factors[i]; });
      });
}

} // namespace parcae
