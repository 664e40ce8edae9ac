#pragma once

// How a job's training went, in bounded memory, for those who watch it. Plain classes: the time is an argument.

#include "protocols/client/client.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace parcae {

/// Losses over the steps. When it is full, neighbours are merged to their mean, so that it always spans the whole
/// training, with a resolution that halves now and then.
class loss_curve {
public:
  static constexpr std::size_t most_points = 256;

  /// The loss of the step that made version `steps`. What was known of that version and later ones is forgotten: they
  /// are computed again. A loss that is not finite is left out.
  void add(std::uint64_t steps, double loss);

  /// Ascending.
  const std::vector<loss_point>& points() const { return points_; }

private:
  std::vector<loss_point> points_;
  std::size_t per_point_ = 1; ///< losses merged in each point
  std::size_t in_last_ = 1;   ///< in the last one so far
};

/// Steps per second over the last minute, stalls and repeated steps included.
class commit_pace {
public:
  using time_point = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::seconds window{60};

  void add(time_point now, std::uint64_t steps_done);

  /// 0: unknown, or no progress.
  double steps_per_s() const;

private:
  std::deque<std::pair<time_point, std::uint64_t>> seen_; ///< at most two a second
};

} // namespace parcae
