#pragma once

// How the regime chain compares with the other methods.

#include "forecast/evaluation.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace parcae {

/// By method: CRPS over that of the last value spread by its errors, mean over horizons of 1, 4, 8 and 12 intervals,
/// from the 60th interval on.
inline std::map<std::string, double> relative_crps(const fleet_history& history) {
  const std::vector<std::string> methods{"last-spread", "regime", "smoothing", "nearest", "survival"};
  const std::vector<std::size_t> horizons{1, 4, 8, 12};
  const auto rows = evaluate(history, methods, horizons, 60);
  std::map<std::string, double> relative;
  for (std::size_t i = 0; i < rows.size(); ++i)
    relative[rows[i].method] += rows[i].crps / rows[i % horizons.size()].crps / static_cast<double>(horizons.size());
  return relative;
}

/// The regime chain over the best of the others; any sums of what `relative_crps` gives.
inline double regime_to_best(const std::map<std::string, double>& relative) {
  double best = std::numeric_limits<double>::infinity();
  for (const auto& [method, value] : relative)
    if (method != "regime")
      best = std::min(best, value);
  return relative.at("regime") / best;
}

} // namespace parcae
