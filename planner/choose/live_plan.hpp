#pragma once

// The decision of a running job: from its measured layer times, its situation and a forecast to a configuration, with
// what speaks for it. Pure.

#include "forecast/fleet_recorder.hpp"
#include "planner/choose/throughput.hpp"
#include "planner/cost/profile.hpp"
#include "planner/cost/realistic_cost.hpp"
#include "protocols/values/decision.hpp"
#include "protocols/values/serving.hpp"

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
  slot_memory memory;                  ///< of the smallest slot
  std::vector<measured_step> measured; ///< of the configurations visited
  platform_cost platform;
  service_measures service = {}; ///< of a job that serves
};

inline constexpr std::size_t outlook_intervals = 12; ///< of a decision's forecast, at most

/// A decision, and what it is about.
struct plan_answer {
  configuration choice;
  decision why;                        ///< the planner's part of it
  std::vector<configuration> all = {}; ///< that the choice was from, those too large for memory left out
};

/// The workload as the optimiser sees it: state sizes, measured times, and the analytic throughput of every (D, P).
profile profile_of(const job_specification& job, std::span<const std::uint64_t> state_bytes,
                   std::span<const layer_cost> costs, std::span<const configuration> all);

/// The same of a situation, for all (D, P) of `slots` slots that fit a slot's memory.
profile profile_of(const job_specification& job, std::span<const std::uint64_t> state_bytes, const situation& now,
                   std::uint32_t slots);

/// Policy `throughput`: the fastest configuration of the present slots.
plan_answer decide_by_throughput(const job_specification& job, std::span<const std::uint64_t> state_bytes,
                                 const situation& now);

/// Policy `liveput`: the most samples over the job's look-ahead, as the forecast has it. The present change costs what
/// this situation says, later ones their mean over random losses. Slots in use that are not in the forecast, or the
/// other way round, are taken to go, or come back, after the present interval.
plan_answer decide_by_liveput(const job_specification& job, std::span<const std::uint64_t> state_bytes,
                              const situation& now, const fleet_forecast& forecast);

} // namespace parcae
