#pragma once

// Notices that this process stood still (SIGSTOP, a suspended machine). No clock, no CAF.

#include <algorithm>
#include <chrono>

namespace parcae {

class standstill_watch {
public:
  using time_point = std::chrono::steady_clock::time_point;
  using milliseconds = std::chrono::milliseconds;

  /// More than `gap` between two beats is a standstill; what it did to others is seen within `window` after it.
  standstill_watch(milliseconds gap, milliseconds window) : gap_(gap), window_(window) {}

  /// Regularly.
  void beat(time_point now) {
    look(now);
    last_ = now;
  }

  /// Whether the process stood still a moment ago. What a standstill brought about may be handled before the beat that
  /// comes after it.
  bool recent(time_point now) {
    look(now);
    return now < until_;
  }

private:
  void look(time_point now) {
    if (last_ != time_point{} && now - last_ > gap_)
      until_ = std::max(until_, now + window_);
  }

  milliseconds gap_;
  milliseconds window_;
  time_point last_{}; ///< beat
  time_point until_{};
};

} // namespace parcae
