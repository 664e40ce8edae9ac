#pragma once

// How good forecasts were on a history: the tables of `parcae forecast`.

#include "forecast/history.hpp"
#include "forecast/lattice.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace parcae {

/// CRPS of a distribution over counts against what came: Σ (F(n) − [n ≥ y])². In instances; smaller is better.
double crps(const distribution& p, std::uint32_t y);

/// Errors of one method at one horizon, over all origins after the warm-up. In instances; NaN where there are no
/// forecasts, or too few for an interval.
struct forecast_errors {
  std::string method;
  std::size_t horizon = 0;   ///< intervals ahead
  std::size_t forecasts = 0; ///< number compared
  double mae = 0;            ///< of the method's point forecast
  double crps = 0;
  double covered = 0; ///< share of outcomes inside the central 80 % of the distribution, ends included
  /// CRPS minus that of the first method: mean, and 95 % interval of a paired circular block bootstrap (fixed seed).
  double difference = 0;
  double difference_low = 0;
  double difference_high = 0;
};

/// Feeds the history to each method (names as for make_method) and scores it at the horizons from the `warm_up`th
/// interval on.
std::vector<forecast_errors> evaluate(const fleet_history& history, std::span<const std::string> methods,
                                      std::span<const std::size_t> horizons, std::size_t warm_up);

} // namespace parcae
