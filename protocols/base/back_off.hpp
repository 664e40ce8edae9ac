#pragma once

// How long to wait before another attempt.

#include <algorithm>
#include <chrono>

namespace parcae {

/// Pauses that double.
struct back_off {
  std::chrono::milliseconds first;
  std::chrono::milliseconds longest; ///< not shorter than the first

  /// The pause after that many failures in a row; none after none.
  constexpr std::chrono::milliseconds after(unsigned failures) const {
    auto result = failures == 0 ? std::chrono::milliseconds(0) : first;
    for (; failures > 1 && result < longest; --failures)
      result = std::min(2 * result, longest);
    return result;
  }
};

} // namespace parcae
