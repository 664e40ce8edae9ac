#pragma once

// How long to wait before another attempt.

#include <algorithm>
#include <chrono>

namespace parcae {

/// Pauses that double.
template <class Duration>
struct back_off {
  Duration first;
  Duration longest; ///< not shorter than the first

  /// The pause after that many failures in a row; none after none.
  constexpr Duration after(unsigned failures) const {
    auto result = Duration::zero();
    for (; failures > 0 && result < longest; --failures)
      result = next(result);
    return result;
  }

  /// The pause after that pause; after none the first.
  constexpr Duration next(Duration last) const { return std::min(longest, std::max(first, 2 * last)); }
};

template <class Duration>
back_off(Duration, Duration) -> back_off<Duration>;

} // namespace parcae
