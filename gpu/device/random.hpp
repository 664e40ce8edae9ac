#pragma once

// Random numbers that are a function of a seed and a place: any part of a stream can be made anywhere, in any order, as
// often as it is wanted. One source for processors and GPUs (both.hpp).

#include "gpu/device/both.hpp"

#include <cmath>
#include <cstdint>

namespace parcae {

struct philox_words {
  std::uint32_t x[4];
};

/// Philox 4×32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC'11). Block `block` of the stream that
/// `seed` names: its counter is (block, high), low words first. Value i of a stream is of block i / 4.
PARCAE_BOTH philox_words philox(std::uint64_t seed, std::uint64_t block, std::uint64_t high = 0) {
  auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  auto a = static_cast<std::uint32_t>(block), b = static_cast<std::uint32_t>(block >> 32);
  auto c = static_cast<std::uint32_t>(high), d = static_cast<std::uint32_t>(high >> 32);
  for (int round = 0; round < 10; ++round) {
    const auto left = std::uint64_t{0xD2511F53} * a, right = std::uint64_t{0xCD9E8D57} * c;
    a = static_cast<std::uint32_t>(right >> 32) ^ b ^ key0;
    b = static_cast<std::uint32_t>(right);
    c = static_cast<std::uint32_t>(left >> 32) ^ d ^ key1;
    d = static_cast<std::uint32_t>(left);
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return {{a, b, c, d}};
}

/// In [0, 1), a multiple of 2^-24.
PARCAE_BOTH float uniform_of(std::uint32_t word) {
  return static_cast<float>(static_cast<std::int32_t>(word >> 8)) * 0x1p-24f;
}

/// -2·ln((word + 1/2) / 2^32), not below 0. Its polynomial, as those below, is a minimax one for float32 coefficients.
PARCAE_BOTH float minus_two_log(std::uint32_t word) {
  // The conversion in two halves rounds once, as the instruction for it would, which processors do not all have.
  const auto high = static_cast<float>(static_cast<std::int32_t>(word >> 16));
  const auto low = static_cast<float>(static_cast<std::int32_t>(word & 0xffff));
  const auto bits = __builtin_bit_cast(std::uint32_t, high * 65536.0f + low + 0.5f);
  // 2^exponent · (1 + f), f in [-1/3, 1/3)
  const auto exponent = static_cast<std::int32_t>(bits - 0x3f2aaaab) >> 23;
  const auto f = __builtin_bit_cast(float, bits - (static_cast<std::uint32_t>(exponent) << 23)) - 1.0f;
  // ln(1 + f) = f - f² · q
  auto q = 0x1.07c95ap-3f;
  q = q * f + -0x1.1e678cp-3f;
  q = q * f + 0x1.f332a8p-4f;
  q = q * f + -0x1.1ed662p-3f;
  q = q * f + 0x1.559c46p-3f;
  q = q * f + -0x1.99d044p-3f;
  q = q * f + 0x1.fffefcp-3f;
  q = q * f + -0x1.555506p-2f;
  q = q * f + 0x1p-1f;
  const auto scale = static_cast<float>(exponent - 32);
  // ln 2 in two parts, the first with few digits, so that its products are exact
  const auto log = scale * 0x1.62e4p-1f + (f - (f * f * q - scale * 0x1.7f7d1cp-20f));
  return -2.0f * log;
}

/// Cosine and sine of 2π · word / 2^32.
struct direction {
  float cosine, sine;
};

PARCAE_BOTH direction direction_of(std::uint32_t word) {
  // word = quadrant · 2^30 + rest, |rest| <= 2^29: at most an eighth of the circle
  const auto quadrant = (word + (1u << 29)) >> 30;
  const auto rest = static_cast<std::int32_t>(word - (quadrant << 30));
  const auto t = static_cast<float>(rest) * 0x1.921fb6p-30f;
  const auto square = t * t;
  auto s = -0x1.9954p-13f;
  s = s * square + 0x1.110778p-7f;
  s = s * square + -0x1.555546p-3f;
  auto c = 0x1.99e0e4p-16f;
  c = c * square + -0x1.6c0c1ap-10f;
  c = c * square + 0x1.55554ap-5f;
  const auto sine = t + t * square * s;
  const auto cosine = 1.0f - (0.5f * square - square * square * c);
  const auto swapped = (quadrant & 1) != 0;
  const auto x = __builtin_bit_cast(std::uint32_t, swapped ? sine : cosine) ^ ((quadrant + 1) & 2) << 30;
  const auto y = __builtin_bit_cast(std::uint32_t, swapped ? cosine : sine) ^ (quadrant & 2) << 30;
  return {__builtin_bit_cast(float, x), __builtin_bit_cast(float, y)};
}

/// Two independent numbers from the standard normal distribution, of at most 6.77 (Box and Muller, 1958), of two words.
/// They are off by at most 4 · 2^-24 times the radius, or times 1 if it is less: the logarithm by one unit of its last
/// place, sine and cosine by 2 · 2^-24 (random_test compares with libm).
struct normal_pair {
  float x, y;
};

PARCAE_BOTH normal_pair normal_of(std::uint32_t first, std::uint32_t second) {
  const auto radius = sqrtf(minus_two_log(first));
  const auto to = direction_of(second);
  return {radius * to.cosine, radius * to.sine};
}

/// A dropout mask: value i is multiplied by factor(word i of the stream `seed`).
struct dropout_mask {
  std::uint64_t seed;
  std::uint32_t least; ///< words from here on keep their value
  float scale;         ///< of values that are kept

  PARCAE_BOTH float factor(std::uint32_t word) const { return word >= least ? scale : 0.0f; }
};

/// probability: of being dropped, in [0, 1).
inline dropout_mask mask_of(std::uint64_t seed, double probability) {
  return {seed, static_cast<std::uint32_t>(probability * 0x1p32), static_cast<float>(1 / (1 - probability))};
}

} // namespace parcae
