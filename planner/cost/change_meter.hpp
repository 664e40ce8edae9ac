#pragma once

// Learns from the changes of a running job what a change costs there. Pure.

#include "planner/cost/realistic_cost.hpp"

#include <deque>

namespace parcae {

/// One change that went through without being begun anew. Durations in ms, -1 if there was no such phase.
struct measured_change {
  double settle_ms = -1;
  double plan_ms = -1;
  double prepare_ms = -1;  ///< only if nobody trained meanwhile
  double transfer_ms = -1; ///< with the bytes
  double activate_ms = -1;
  std::uint32_t lost = 0;  ///< slots of the old generation that were lost
  std::uint32_t ranks = 0; ///< of the new generation
  double busiest_bytes = 0;
};

class change_meter {
public:
  static constexpr std::size_t most = 15; ///< the newest changes that count

  void learn(const measured_change& x);

  /// Robust regression of the phases, of settling on losses, of transfers on bytes, of activations on ranks, with
  /// change_figures' values as what is believed before: they weigh as much as one change that was seen, or less, but
  /// keep a byte's and a rank's share plausible until changes differ enough in them.
  const change_figures& figures() const { return figures_; }

private:
  std::deque<measured_change> seen_; ///< oldest first
  change_figures figures_;
};

} // namespace parcae
