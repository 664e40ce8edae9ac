#pragma once

// Seeded traces of spot fleets. The default follows the statistics published for AWS p3 (peak 32, mean 24, 15 losses an
// hour in groups of 2.1, at most 6, that often come in a second wave, median life an hour); other kinds stress a
// planner.

#include "planner/simulation/trace.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

struct trace_options {
  double hours = 11.4;
  std::uint32_t capacity = 32;       ///< instances asked for; never more are there
  double loss_groups_per_hour = 3.6; ///< while instances are plentiful
  double mean_group = 2.1;           ///< instances lost at once
  std::uint32_t largest_group = 6;
  double second_wave = 0.4;   ///< probability that two minutes later another group is lost
  double joins_per_hour = 18; ///< groups, while below capacity and plentiful
  double mean_join_group = 1.7;
  double scarce_fraction = 0.35; ///< fraction of the time in which instances are scarce
  double scarce_hours = 1;       ///< mean length of such a time
  double scarce_factor = 2;      ///< losses come this much more often, joins this much more rarely
  double daily_swing = 0;        ///< 0 … 1: how far scarcity follows the time of day instead
  double notice_fraction = 0;    ///< of removals that give notice
  std::uint64_t notice_ms = 120'000;
};

/// "p3", "calm", "bursty", "collapsing", "daily", "large" (80 instances). Throws std::invalid_argument, with the list,
/// for others.
trace_options trace_kind(std::string_view name);
std::vector<std::string> trace_kinds();

/// The same for the same options and seed on every machine.
std::vector<trace_event> generate_trace(const trace_options& options, std::uint64_t seed);

} // namespace parcae
