#pragma once

// What a job will yet cost and when it ends, as a distribution: courses of chance through the states of availability,
// in each of which the price of progress is followed. Pure, with a fixed seed.

#include "planner/market/progress_price.hpp"

#include <cstddef>
#include <functional>
#include <random>
#include <span>
#include <vector>

namespace parcae::market {

/// Between which eight of ten runs are expected, and the middle; infinite: not done by then.
struct spread {
  double p10 = 0, p50 = 0, p90 = 0;

  bool operator==(const spread&) const = default;
};

struct outlook_setting {
  double samples = 0;                                    ///< left
  double interval_s = 0;                                 ///< in which one choice is held
  std::size_t intervals = 0;                             ///< until all is asked for on demand
  std::size_t state = 0;                                 ///< now, of availability
  std::span<const std::vector<interval_choice>> choices; ///< by state; cheapest first
  /// Chances of the next state, by state and state, in one course.
  std::function<std::vector<double>(std::mt19937_64&)> chances;
  /// What a sample is worth in an interval and a state, with so many left.
  std::function<double(std::size_t interval, std::size_t state, double samples)> usd_per_sample;
  double gain = 0; ///< of what is trained: another choice is worth so much more, or the present one stays
  double least_speed = 1, most_speed = 1; ///< times that of the choices: of a course, between these
  double kept_s = 0;                      ///< behind the last interval, of which a part passes
  interval_choice behind = {}; ///< that is held behind the last interval; no samples: nothing is done any more
};

struct outlook {
  double finish_s = 0;    ///< from now on, mean of those that are done
  spread usd_spread;      ///< still to be paid
  spread finish_s_spread; ///< from now on
};

/// Of so many courses, at least one.
outlook outlook_of(const outlook_setting& x, std::size_t courses);

} // namespace parcae::market
