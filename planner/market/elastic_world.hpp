#pragma once

// An elastic job in a market's history, under the budget policy: instances that start, are lost, are paid for. Pure.

#include "planner/market/elastic_bound.hpp"
#include "planner/market/purchase.hpp"

#include <functional>
#include <optional>
#include <vector>

namespace parcae::market {

struct rented_hours {
  double spot = 0, on_demand = 0; ///< of an instance
};

struct elastic_bill {
  double usd = 0;
  std::optional<double> finish_s;     ///< none: not until the deadline, or the money was spent
  double spot_h = 0, on_demand_h = 0; ///< of an instance
  std::vector<rented_hours> places;   ///< the same by place
  unsigned changes = 0;
  unsigned moves = 0;
  std::optional<double> reserve_s; ///< since when all was on demand
  std::vector<purchase> decisions; ///< by interval
};

/// Only decisions that change something have spreads. Nothing of the future is known: only what is there now, and what
/// was before. `samples`: to be done. What is lost is lost at the beginning of a tick, of which an interval between
/// decisions is a multiple.
elastic_bill run_elastic(const std::vector<elastic_place>& places, double samples, double tick_s,
                         const purchase_options& options);

/// The same under another rule, which is asked as the budget policy is.
elastic_bill run_elastic(const std::vector<elastic_place>& places, double samples, double tick_s,
                         const purchase_options& options, const std::function<purchase(const purchase_state&)>& rule);

} // namespace parcae::market
