#pragma once

// How fast this processor multiplies and adds float32 when nothing else is in the way: what kernels are compared with.

#include "tests/bench/measure.hpp"

#include <algorithm>
#include <limits>

namespace parcae {
namespace bench {

// Ten sums of one vector each, none of which waits for its last addition; the products cannot be taken out of the loop.
#define PARCAE_PRODUCT_MS(NAME, LANES, ...)                                                                            \
  __VA_ARGS__ inline double NAME(long count) {                                                                         \
    typedef float vector __attribute__((vector_size(4 * LANES)));                                                      \
    vector sums[10] = {}, x = vector{} + 1.5f;                                                                         \
    const auto began = thread_ms();                                                                                    \
    for (long i = 0; i < count; ++i) {                                                                                 \
      _Pragma("GCC unroll 10") for (int k = 0; k < 10; ++k) {                                                          \
        asm volatile("" : "+x"(x));                                                                                    \
        sums[k] += x * x;                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
    for (auto& sum : sums)                                                                                             \
      asm volatile("" : "+x"(sum));                                                                                    \
    return (thread_ms() - began) / (10.0 * LANES * static_cast<double>(count));                                        \
  }
PARCAE_PRODUCT_MS(product_ms_of_4, 4, )
#ifdef __x86_64__
PARCAE_PRODUCT_MS(product_ms_of_8, 8, __attribute__((target("avx2"))))
PARCAE_PRODUCT_MS(product_ms_of_16, 16, __attribute__((target("avx512f"))))
#endif
#undef PARCAE_PRODUCT_MS

/// Milliseconds of this thread for one product, rounded, that is added to a sum: by the widest vectors there are, the
/// best of some tries.
inline double product_ms() {
  auto best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 9; ++i) {
    constexpr long count = 400'000;
#ifdef __x86_64__
    const auto found = __builtin_cpu_supports("avx512f") ? product_ms_of_16(count)
                       : __builtin_cpu_supports("avx2")  ? product_ms_of_8(count)
                                                         : product_ms_of_4(count);
#else
    const auto found = product_ms_of_4(count);
#endif
    best = std::min(best, found);
  }
  return best;
}

} // namespace bench
} // namespace parcae
