#pragma once

// The liveput optimiser: dynamic programming over the look-ahead on (configuration, still migrating?). Pure.

#include "planner/cost/cost_model.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace parcae {

/// What happens at the start of an interval.
struct fleet_change {
  std::uint32_t joined = 0;
  std::uint32_t lost = 0;
};

/// Where training stands between two intervals.
struct interval_state {
  std::uint32_t at = move_table::idle; ///< index in the move table
  bool begun = false;                  ///< false before the first configuration: starting reads no checkpoint
  bool migrating = false;              ///< the last change is not done
  double rest_ms = 0;                  ///< of it

  friend bool operator==(const interval_state&, const interval_state&) = default;
};

/// One interval under a decision: the accounting that planner and simulator share.
struct interval_outcome {
  interval_state next;
  double samples = 0;
  double cost_ms = 0; ///< charged in this interval's name: the migration, not what was carried in
  bool anew = false;  ///< what was carried in is dropped, since starting anew is cheaper
};

/// What a change still under way adds to the cost of a move: what is left of it. In published accounting also the cost
/// of redirecting. In real time, unless nothing moves, at most what a start from nothing takes longer than the move
/// alone.
double unfinished_ms(move_table& table, const interval_state& now, std::uint32_t target, double move_ms);

/// Carries out one move in an interval that lasts `seconds`. `held` is before the change. A target may be `idle`. What
/// of the cost does not fit the interval is carried to the next.
interval_outcome carry_out(move_table& table, const interval_state& now, std::uint32_t target, std::uint32_t held,
                           std::uint32_t lost, double seconds);

/// The best targets for a known future, the first of them for the first change; `held` instances before it. IDLE where
/// nothing fits, or in real time. Among equal samples the one with the least rest. In real time each move is counted in
/// full: exact where it is done before the next one.
std::vector<std::uint32_t> plan_known(move_table& table, const interval_state& now, std::uint32_t held,
                                      std::span<const fleet_change> future);

} // namespace parcae
