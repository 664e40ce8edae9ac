#pragma once

// What one sample more is worth now: the price of progress. From the least expected cost of all that is left, over
// states of availability that come and go by chance. Pure.

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace parcae::market {

/// What may be held for an interval.
struct interval_choice {
  double samples = 0;
  double usd = 0;
};

struct progress_setting {
  double samples = 0;             ///< left at the beginning
  std::size_t intervals = 0;      ///< until the deadline, less the reserve
  std::size_t states = 1;         ///< of availability
  double late_usd_per_sample = 0; ///< of what is left at the end; much

  /// In an interval and a state; to hold nothing may always be chosen, and an interval may be divided.
  std::function<std::span<const interval_choice>(std::size_t interval, std::size_t state)> choices;
  /// Probabilities of the states in the interval after it.
  std::function<std::span<const double>(std::size_t interval, std::size_t state)> next;

  std::size_t points = 1200; ///< of samples left, straight lines between them
  std::size_t kept = 1;      ///< intervals that are asked for
};

class progress_price {
public:
  explicit progress_price(const progress_setting& x);

  /// Least expected cost of what is left, at the beginning of an interval; one that is not kept is the last that is.
  double usd(std::size_t interval, std::size_t state, double samples_left) const;

  /// What it falls by with a sample done.
  double usd_per_sample(std::size_t interval, std::size_t state, double samples_left) const;

  /// The most samples that can be expected for so much.
  double samples_for(std::size_t interval, std::size_t state, double usd) const;

private:
  std::span<const double> row(std::size_t interval, std::size_t state) const;

  std::size_t points_, states_, kept_;
  double step_;               ///< samples between two points
  std::vector<double> least_; ///< by interval, state, point
};

/// Those that are worth most at some price of a sample, cheapest first, without the empty one.
std::vector<interval_choice> corners_of(std::vector<interval_choice> all);

} // namespace parcae::market
