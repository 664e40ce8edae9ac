#pragma once

// What a job that changes its size for nothing, and knows all that comes, must pay at least: a bound for every policy.
// Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace parcae::market {

/// Instances of a place that train together, of one kind.
struct elastic_place {
  std::string name;
  std::vector<std::uint32_t> spot;    ///< to be had, by tick
  std::vector<double> spot_usd_per_h; ///< of an instance, by tick
  std::uint32_t on_demand = 0;        ///< to be had, always
  double on_demand_usd_per_h = 0;     ///< of an instance
  double speed = 1;                   ///< likewise, over that of the fastest place's
};

struct elastic_job {
  std::vector<double> samples_per_s; ///< of 0, 1, … instances
  double samples = 0;                ///< to be done
  double deadline_s = 0;
};

struct elastic_bound {
  double usd = 0;
  double usd_per_sample = 0; ///< what one sample more would cost
};

/// None: not even all that there is makes the deadline. A tick may be divided between two holdings; the job is in one
/// place at a time.
std::optional<elastic_bound> bound_of(const std::vector<elastic_place>& places, const elastic_job& job, double tick_s);

} // namespace parcae::market
