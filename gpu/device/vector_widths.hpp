#pragma once

// Runs a kernel with the widest vectors that the processor has; for the sources of this room that have kernels. They
// are compiled with -O3 -ffp-contract=off: products and sums are rounded one by one, on every processor.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <type_traits>

#ifdef __x86_64__
#define PARCAE_AVX2 __attribute__((target("avx2")))
#ifdef __clang__
#define PARCAE_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#else // which else takes half of them
#define PARCAE_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")))
#endif
#endif
#define PARCAE_INLINE __attribute__((always_inline))

namespace parcae {

/// limit_vectors' (kernels.hpp).
inline std::atomic<int> max_vector_bits = 512;

/// Of the vectors that a kernel is compiled for.
template <int N>
using vector_bits = std::integral_constant<int, N>;

// Each kernel is compiled for several processors. Function attributes, not options of a whole file: inline functions of
// the standard library may be shared with other files, whose callers have no such processor.
#ifdef __x86_64__
template <class Kernel>
PARCAE_AVX2 void with_avx2(const Kernel& kernel) {
  kernel(vector_bits<256>());
}

template <class Kernel>
PARCAE_AVX512 void with_avx512(const Kernel& kernel) {
  kernel(vector_bits<512>());
}

/// Bits of the widest vectors that this processor has.
inline int widest_vectors() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return 512;
  return __builtin_cpu_supports("avx2") ? 256 : 128;
}
#endif

/// Runs a kernel, which is always inlined and told which vectors there are.
template <class Kernel>
void run(const Kernel& kernel) {
#ifdef __x86_64__
  static const int bits = widest_vectors();
  const auto width = std::min(bits, max_vector_bits.load(std::memory_order_relaxed));
  if (width == 512)
    return with_avx512(kernel);
  if (width == 256)
    return with_avx2(kernel);
#endif
  kernel(vector_bits<128>());
}

/// f(i) for all of [0, n), in any order: no element depends on another.
template <class Element>
PARCAE_INLINE inline void each(std::size_t n, const Element& f) {
#ifndef __clang__
#pragma GCC ivdep
#endif
  for (std::size_t i = 0; i < n; ++i)
    f(i);
}

} // namespace parcae
