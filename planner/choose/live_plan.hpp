#pragma once

// The decision of a running job: from its measured layer times, its situation and a forecast to a configuration, with
// what speaks for it. Pure.

#include "forecast/fleet_recorder.hpp"
#include "planner/choose/throughput.hpp"
#include "planner/cost/profile.hpp"
#include "planner/cost/realistic_cost.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace parcae {

/// Where a job stands when it asks for a configuration.
struct situation {
  std::uint32_t slots = 0;         ///< usable
  std::vector<layer_cost> costs;   ///< per layer, as measured so far
  shape current;                   ///< of the generation that runs, or ran last; width 0: none yet
  std::vector<std::uint32_t> left; ///< its replicas that are still usable, by stage
  bool running = false;            ///< it is healthy: a change is prepared while it trains
  std::uint32_t keepers = 0;
  change_figures figures;              ///< as measured so far
  std::uint64_t slot_bytes = 0;        ///< memory of the smallest slot; 0: unknown
  std::vector<measured_step> measured; ///< of the configurations visited
  platform_cost platform;
};

/// Availability at the end of an interval of the look-ahead, in slots.
struct forecast_outlook {
  double mean = 0;
  std::uint32_t low = 0;  ///< 10 % quantile
  std::uint32_t high = 0; ///< 90 % quantile

  friend bool operator==(const forecast_outlook&, const forecast_outlook&) = default;
};

/// A configuration and the samples expected of it over the look-ahead.
struct live_choice {
  shape what; ///< width 0: waiting
  double samples = 0;

  friend bool operator==(const live_choice&, const live_choice&) = default;
};

/// Why a configuration was chosen, for people and for `status`.
struct decision_note {
  std::string policy;                     ///< that decided
  std::vector<forecast_outlook> forecast; ///< of the next intervals, at most `outlook_intervals`; empty without one
  live_choice chosen;
  std::vector<live_choice> runners_up; ///< best first, at most three
  std::string reason;
  double expected_ms = 0; ///< stall of the change to it; 0 if nothing changes
};

inline constexpr std::size_t outlook_intervals = 12;

struct live_decision {
  configuration choice;
  decision_note note;
  std::vector<configuration> all; ///< that the choice was from, those too large for memory left out
};

/// The workload as the optimiser sees it: state sizes, measured times, and the analytic throughput of every (D, P).
profile profile_of(const job_specification& job, std::span<const std::uint64_t> state_bytes,
                   std::span<const layer_cost> costs, std::span<const configuration> all);

/// Policy `throughput`: the fastest configuration of the present slots.
live_decision decide_by_throughput(const job_specification& job, std::span<const std::uint64_t> state_bytes,
                                   const situation& now);

/// Policy `liveput`: the most samples over the job's look-ahead, as the forecast has it. The present change costs what
/// this situation says, later ones their mean over random losses. Slots in use that are not in the forecast, or the
/// other way round, are taken to go, or come back, after the present interval.
live_decision decide_by_liveput(const job_specification& job, std::span<const std::uint64_t> state_bytes,
                                const situation& now, const fleet_forecast& forecast);

} // namespace parcae
