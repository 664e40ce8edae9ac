#pragma once

// How it was over time, in bounded memory: neighbours go when there are too many points. Pure.

#include "protocols/base/described.hpp"
#include "protocols/client/client.hpp"

#include <vector>

namespace parcae {

struct history_point {
  std::int64_t wall_us = 0;
  std::uint64_t job = 0; ///< that is told in detail; 0: none
  std::uint64_t steps = 0;
  double loss = 0;
  double gradient_norm = 0;
  double learning_rate = 0;
  double samples_per_s = 0; ///< while it trains, else 0
  std::uint32_t slots = 0;  ///< of workers that are alive or leaving
  std::uint32_t used = 0;   ///< of them
  std::uint32_t keepers = 0;
  double forecast_mean = -1; ///< of slots, at the end of the next interval; -1: there is no forecast
  std::uint32_t forecast_low = 0;
  std::uint32_t forecast_high = 0;
};
BOOST_DESCRIBE_STRUCT(history_point, (),
                      (wall_us, job, steps, loss, gradient_norm, learning_rate, samples_per_s, slots, used, keepers,
                       forecast_mean, forecast_low, forecast_high))

/// Slots of workers that are there.
std::uint32_t slots_in(const status_reply& x);

history_point point_of(const status_reply& x);

class web_history {
public:
  static constexpr std::size_t max_points = 1024;

  /// Kept, unless it comes sooner after the last one than the present resolution says; a change of slots always is.
  void add(const history_point& x);
  const std::vector<history_point>& points() const { return points_; }

  /// {"wall_us": [...], ...}: a list for each field.
  std::string json() const;

private:
  std::vector<history_point> points_;
  std::int64_t between_us_ = 0;
};

} // namespace parcae
