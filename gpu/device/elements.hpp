#pragma once

// What kernels do with one element, as functors: one source for processors and GPUs (both.hpp).

#include "gpu/device/both.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace parcae {

/// The upper half of a float32.
enum class bfloat16 : std::uint16_t {};

PARCAE_BOTH float to_float(float x) {
  return x;
}

PARCAE_BOTH float to_float(bfloat16 x) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(x) << 16);
}

/// To the nearest, ties to even; a NaN is quiet.
PARCAE_BOTH bfloat16 to_bfloat16(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const auto rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return static_cast<bfloat16>((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
}

/// What is kept of a sum: float32 as it is, bfloat16 rounded.
template <class Number>
PARCAE_BOTH Number rounded_to(float x) {
  if constexpr (sizeof(Number) == sizeof(float))
    return x;
  else
    return to_bfloat16(x);
}

/// One step of AdamW (Loshchilov and Hutter, algorithm 2), in place. The factors are adamw_step's (optimizer.hpp).
struct adamw_factors {
  float clip;         ///< of the gradient
  float keep;         ///< of the parameters: 1 - rate · decay
  float beta1, rest1; ///< rest: 1 - beta
  float beta2, rest2;
  float rate; ///< with the first moment's correction
  float root; ///< the second moment's correction, of the square root
  float epsilon;
};

PARCAE_BOTH void adamw_element(const adamw_factors& x, float& parameter, float& first, float& second, float gradient) {
  const auto g = gradient * x.clip;
  first = x.beta1 * first + x.rest1 * g;
  second = x.beta2 * second + x.rest2 * g * g;
  parameter = parameter * x.keep - x.rate * first / (sqrtf(second) * x.root + x.epsilon);
}

/// The same of element i of arrays; `copy` only with Copy.
template <bool Copy>
PARCAE_BOTH void adamw_at(std::size_t i, const adamw_factors& x, float* parameters, float* first, float* second,
                          const float* gradient, bfloat16* copy) {
  auto p = parameters[i], m = first[i], v = second[i];
  adamw_element(x, p, m, v, gradient[i]);
  parameters[i] = p;
  first[i] = m;
  second[i] = v;
  if constexpr (Copy)
    copy[i] = to_bfloat16(p);
}

/// One step of SGD as PyTorch has it, in place.
struct sgd_factors {
  float clip;
  float decay;
  float momentum; ///< 0 in the first step, which begins the moment with the gradient itself
  float rate;
};

PARCAE_BOTH void sgd_element(const sgd_factors& x, float& parameter, float& moment, float gradient) {
  moment = x.momentum * moment + (gradient * x.clip + x.decay * parameter);
  parameter -= x.rate * moment;
}

/// The same without momentum, which keeps no moment.
PARCAE_BOTH void sgd_element(const sgd_factors& x, float& parameter, float gradient) {
  parameter -= x.rate * (gradient * x.clip + x.decay * parameter);
}

/// The same of element i of arrays; `moment` only with Momentum, `copy` only with Copy.
template <bool Momentum, bool Copy>
PARCAE_BOTH void sgd_at(std::size_t i, const sgd_factors& x, float* parameters, float* moment, const float* gradient,
                        bfloat16* copy) {
  auto p = parameters[i];
  if constexpr (Momentum) {
    auto m = moment[i];
    sgd_element(x, p, m, gradient[i]);
    moment[i] = m;
  } else {
    sgd_element(x, p, gradient[i]);
  }
  parameters[i] = p;
  if constexpr (Copy)
    copy[i] = to_bfloat16(p);
}

/// Sums of squares are of chunks: lane l of 32 adds the terms l, l + 32, … of its chunk in double precision; then the
/// upper half of the lanes is added to the lower, until one is left. The chunks' sums are summed in the same way, until
/// one is left. Products of two float32 are exact in double precision, so only the order of additions matters.
inline constexpr std::size_t sum_lanes = 32;
inline constexpr std::size_t sum_chunk = 2048;

PARCAE_BOTH double squared(float x) {
  return static_cast<double>(x) * static_cast<double>(x);
}

} // namespace parcae
