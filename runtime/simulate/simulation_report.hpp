#pragma once

// What `parcae simulate` found, as a table, as JSON and as a plot. Plain values in, text out.

#include "planner/cost/profile.hpp"
#include "planner/simulation/simulator.hpp"

#include <boost/json/fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace parcae {

/// One policy on one trace.
struct policy_run {
  /// A moment; until the next one things are as they are here, and samples grow straight.
  struct moment {
    double hours = 0;
    shape used;         ///< width 0: none, or a system that does not say
    double samples = 0; ///< so far
    double ideal = 0;   ///< samples so far of the fastest that fits at each moment
  };

  std::string policy;
  std::string forecast; ///< empty where none is used
  double samples = 0;
  double samples_per_s = 0;         ///< of the whole trace; of a peer from its first start to its last step
  double ideal = 0;                 ///< samples of the fastest that fits at each moment, free of cost
  std::uint32_t migrations = 0;     ///< of a peer: regroupings
  std::optional<lost_samples> lost; ///< in real time
  std::vector<double> plan_ms;      ///< of each decision, rising
  double plan_total_ms = 0;
  std::optional<double> published_samples_per_s; ///< of a peer: what is published for the scaled p3 trace
  std::vector<moment> course;

  double share_of_ideal() const { return ideal > 0 ? samples / ideal : 0; }
};

/// The same for all policies.
struct simulation_setting {
  std::string profile, trace, accounting;
  std::optional<std::uint32_t> notice; ///< intervals; none: the trace gives notices
  std::uint32_t look_ahead = 0;        ///< intervals
  std::size_t intervals = 0;
};

/// Lines for people, with a header.
std::string to_table(const std::vector<policy_run>& runs);

/// One object; of several runs an object with the list "runs".
boost::json::object to_json(const simulation_setting& setting, const std::vector<policy_run>& runs);

/// Draws availability with its losses, slots and depth in use, samples, and how far they are behind the ideal, over
/// time into an SVG file, with gnuplot. A policy has the same colour in every plot. Throws std::runtime_error if
/// gnuplot is missing or fails, or if the file cannot be written.
void plot_runs(const std::string& path, const simulation_setting& setting, const fleet_history& history,
               const std::vector<policy_run>& runs);

} // namespace parcae
