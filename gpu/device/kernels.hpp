#pragma once

// The kernels on the processor. They take the widest vectors it has; bits depend neither on these nor on how a range is
// cut into calls. Buffers are the caller's; a result may lie on what it is made of, nothing else may overlap. Any
// thread; none allocates but squared_norm.

#include "gpu/device/elements.hpp"
#include "gpu/device/random.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace parcae {

/// For tests: from now on no vectors of more than 128, 256 or 512 bits.
void limit_vectors(int bits);

/// to[i] = left[i] + right[i].
void add_values(float* to, const float* left, const float* right, std::size_t n);
void add_values(float* to, const float* left, const bfloat16* right, std::size_t n);
/// The same, rounded.
void add_values(bfloat16* to, const bfloat16* left, const bfloat16* right, std::size_t n);

/// to[i] = from[i], rounded: what the optimizers write as the copy.
void round_values(bfloat16* to, const float* from, std::size_t n);
/// Back, which is exact.
void widen_values(float* to, const bfloat16* from, std::size_t n);

/// The order in which partial sums, left to right, are added: after taking sum i, joins[i] times the two newest values
/// become one. The depth is the most values that are there at once.
class addition_order {
public:
  static constexpr std::size_t max_depth = 32;

  /// Throws std::invalid_argument if not all is added in the end, or the depth is too large.
  explicit addition_order(std::vector<std::uint8_t> joins);

  const std::vector<std::uint8_t>& joins() const { return joins_; }
  std::size_t depth() const { return depth_; }

private:
  std::vector<std::uint8_t> joins_;
  std::size_t depth_ = 0;
};

/// to[i] = the sum of all sums[k][i] in that order; as many sums as the order has. Of bfloat16 each addition is
/// rounded. One pass over memory.
void add_in_order(const addition_order& order, float* to, std::span<const float* const> sums, std::size_t n);
void add_in_order(const addition_order& order, bfloat16* to, std::span<const bfloat16* const> sums, std::size_t n);

/// One optimizer step on n elements. `copy`: the parameters afterwards; null: not wanted.
void step_adamw(const adamw_factors& x, float* parameters, float* first, float* second, const float* gradient,
                bfloat16* copy, std::size_t n);
/// `moment` null: without momentum.
void step_sgd(const sgd_factors& x, float* parameters, float* moment, const float* gradient, bfloat16* copy,
              std::size_t n);

/// The sum of squares, in the order that elements.hpp describes.
double squared_norm(const float* x, std::size_t n);
/// Its parts, to share the work among threads: the sums of the ⌈n/sum_chunk⌉ chunks of x, and the sum of these (which
/// overwrites them).
void sum_squares(const float* x, std::size_t n, double* chunks);
double sum_of(std::span<double> chunks);

/// Values [first, first + n) of the stream `seed`; `first` is a multiple of 4. Normal with standard deviation `scale`;
/// uniform in [-scale, scale).
void draw_normal(float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first = 0);
void draw_uniform(float* to, std::size_t n, std::uint64_t seed, float scale, std::uint64_t first = 0);

/// to[i] = from[i] · factor(first + i); `first` is a multiple of 4.
void drop_values(float* to, const float* from, std::size_t n, const dropout_mask& mask, std::uint64_t first = 0);

} // namespace parcae
