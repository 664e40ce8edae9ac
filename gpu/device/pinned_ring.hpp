#pragma once

// Pinned memory for what is on its way between a device and the host.

#include "gpu/device/device.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <utility>

namespace parcae {

/// In parts, which are given back in the order in which they were taken. One thread.
class pinned_ring {
public:
  /// Throws device_error.
  pinned_ring(device& on, std::size_t bytes) : memory_(on.allocate_pinned(bytes)), bytes_(bytes) {}

  /// Null: there is no room before more is given back. At most all of the ring.
  std::byte* take(std::size_t bytes) {
    const auto n = std::max<std::size_t>(256, (bytes + 255) / 256 * 256);
    std::size_t begin = 0;
    if (!taken_.empty()) {
      const auto first = taken_.front().first, end = taken_.back().second;
      const bool wrapped = end <= first;
      begin = wrapped || end + n <= bytes_ ? end : 0;
      if ((wrapped || begin == 0) && begin + n > first)
        return nullptr;
    }
    taken_.emplace_back(begin, begin + n);
    return memory_.get() + begin;
  }

  void give_back() { taken_.pop_front(); }

private:
  const device_memory memory_;
  const std::size_t bytes_;
  std::deque<std::pair<std::size_t, std::size_t>> taken_; ///< begin and end of each part, oldest first
};

} // namespace parcae
