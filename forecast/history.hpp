#pragma once

// What was seen of a fleet, interval by interval. Plain values.

#include <cstdint>
#include <vector>

namespace parcae {

/// One planning interval: what happened at its start, and how many instances there are after it.
struct fleet_interval {
  double seconds = 0; ///< time of its start, from the start of the trace
  std::uint32_t joined = 0;
  std::uint32_t lost = 0;
  std::uint32_t available = 0;
  /// For each lost instance the index of the interval in which it joined; empty where instances have no names.
  std::vector<std::uint32_t> lost_joined_in;
  std::uint32_t announced = 0; ///< of a trace: those of the lost that had notice
};

/// Oldest first, without gaps.
using fleet_history = std::vector<fleet_interval>;

} // namespace parcae
