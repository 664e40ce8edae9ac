#pragma once

// Where the time of each rank's steps goes.

#include "protocols/values/step_parts.hpp"

#include <chrono>
#include <cstdint>
#include <map>

namespace parcae {

/// Means over the last seconds of a generation. Plain: the time is an argument.
class rank_times {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// What is longer ago counts e times less.
  static constexpr std::chrono::seconds window{5};

  void begin() { of_.clear(); }
  /// Nothing if it is no time, or none yet.
  void hear(time_point now, std::uint32_t rank, const step_parts& x);

  /// By rank, as far as heard.
  std::map<std::uint32_t, step_parts> means() const;

private:
  struct mean {
    time_point at;
    step_parts parts;
  };
  std::map<std::uint32_t, mean> of_;
};

} // namespace parcae
