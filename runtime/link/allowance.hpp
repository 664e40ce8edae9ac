#pragma once

// How much somebody may say within some time.

#include <algorithm>
#include <chrono>

namespace parcae {

/// So much per second, and what was not used of the last one. Who took more waits.
class allowance {
public:
  using time_point = std::chrono::steady_clock::time_point;

  explicit allowance(double per_second) : per_second_(per_second), left_(per_second) {}

  /// Takes that much, though it may not be there. How long to wait before the next.
  std::chrono::milliseconds take(time_point now, double amount) {
    const std::chrono::duration<double> passed = now - at_;
    left_ = std::min(per_second_, left_ + passed.count() * per_second_) - amount;
    at_ = now;
    using std::chrono::milliseconds;
    return left_ >= 0 ? milliseconds(0) : milliseconds(static_cast<long>(-left_ / per_second_ * 1000) + 1);
  }

private:
  double per_second_;
  double left_;
  time_point at_ = time_point::min() + std::chrono::hours(24 * 365); ///< long ago
};

} // namespace parcae
