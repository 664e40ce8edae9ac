#pragma once

// Policies of others, and the bound, on a market's history: window by window, side by side. Pure.

#include "planner/market/elastic_bound.hpp"
#include "planner/market/gang_world.hpp"
#include "planner/market/purchase.hpp"

#include <optional>
#include <string>
#include <vector>

namespace parcae::market {

struct rented_market {
  double tick_s = 0;
  std::vector<elastic_place> places;           ///< with histories of the same length
  std::vector<std::vector<double>> usd_per_gb; ///< from a place to another
  double fixed_usd_per_h = 0;                  ///< as long as the job lasts
};

struct rented_job {
  gang_job gang;                                ///< work: of the gang
  std::uint32_t instances = 1;                  ///< of the gang
  std::vector<double> samples_per_s;            ///< by instances, for the bound; empty: not known
  std::optional<purchase_options> elastic = {}; ///< for the budget policy; none: it has a gang
};

/// A decision to hold something else.
struct purchase_record {
  double hours = 0; ///< from the window's beginning
  purchase decision;
};

/// A window of the deadline's length.
struct window_run {
  double begin_h = 0;
  double usd = 0;                 ///< with the last bill
  std::optional<double> finish_h; ///< of the gang; none: too late, or the bound, which does not say
  bool in_time = true;
  double spot_h = 0, on_demand_h = 0;          ///< of the gang, or of as many instances
  unsigned launches = 0;                       ///< of an elastic job: changes
  std::vector<purchase_record> decisions = {}; ///< of an elastic job
};

struct market_run {
  std::string policy; ///< "uniform:us-east-2b" in one place
  std::vector<window_run> windows;

  double mean_usd() const;
  double max_usd() const;
  std::size_t late() const;
};

/// Those that run_policy knows, the bound first.
std::vector<std::string> policy_names();

/// In each window that fits into the history, one after the other; `uniform` gives a run for each place. Throws
/// std::invalid_argument, one line for the user.
std::vector<market_run> run_policy(const std::string& name, const rented_market& market, const rented_job& job);

} // namespace parcae::market
