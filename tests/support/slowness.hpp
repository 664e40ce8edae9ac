#pragma once

// For tests that bound processor time: what a second is worth on a machine that is slow, or shared.

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>
#include <vector>

namespace parcae {

inline double processor_s() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

/// How many times the processor time that the same work takes where bounds are stated for, but not less than 1. The
/// work is of a planner's kind: sums and comparisons over a table that the cache holds, and what <cmath> does.
inline double slowness() {
  constexpr double stated_s = 0.048;
  constexpr int rounds = 2000;
  std::vector<double> from(4096, 1), to(from);
  const auto begin = processor_s();
  for (int k = 0; k < rounds; ++k) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      const auto j = (i * 7 + static_cast<std::size_t>(k)) % from.size();
      to[i] = std::max(from[i], 0.999 * from[j] + 0.001 * std::exp(-from[j]));
    }
    std::swap(from, to);
  }
  const double taken_s = processor_s() - begin;
  return std::max({1.0, taken_s / stated_s, from[0] * 1e-9}); // the sum is used, so the loop is not left out
}

/// Processor seconds of `work`, over how slow this machine was just before and after it.
template <class Work>
double stated_seconds(Work work) {
  const double before = slowness();
  const auto begin = processor_s();
  work();
  const double taken_s = processor_s() - begin;
  return taken_s / std::max(before, slowness());
}

} // namespace parcae
