#pragma once

// Learns from the changes of a running job what a change costs there. Pure.

#include "planner/realistic_cost.hpp"

#include <deque>

namespace parcae {

/// One change that went through without being begun anew. Durations in ms, -1 if there was no such phase.
struct measured_change {
  double settle_ms = -1;
  double plan_ms = -1;
  double prepare_ms = -1;  ///< only if nobody trained meanwhile
  double transfer_ms = -1; ///< with the bytes
  double activate_ms = -1;
  double busiest_bytes = 0;
};

class change_meter {
public:
  static constexpr std::size_t most = 15; ///< the newest changes that count

  void learn(const measured_change& x);

  /// Medians of the phases; of the link's rate, the median slope between transfers of different size (Theil and Sen).
  /// What was not measured yet is as change_figures has it.
  const change_figures& figures() const { return figures_; }

private:
  std::deque<measured_change> seen_; ///< oldest first
  change_figures figures_;
};

} // namespace parcae
