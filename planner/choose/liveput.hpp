#pragma once

// Liveput: the samples to be expected over the look-ahead, migration included, when the future is a distribution. The
// optimiser is dynamic programming over the nodes of a lattice and the configurations; what will be known when a
// decision is taken (the notice) is part of the recursion, so that waiting and hedging have their right price. Pure.

#include "forecast/lattice.hpp"
#include "planner/choose/optimizer.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace parcae {

/// What decisions on the same move table work out of it, kept from one to the next: the moves between the
/// configurations of the last few. Results do not depend on it. Not to outlive the table.
class plan_memory {
public:
  class selection; // in the source

  plan_memory();
  ~plan_memory();

  selection& find(move_table& table, std::vector<std::uint32_t> shapes);

private:
  static constexpr std::size_t most = 8;              ///< sets of configurations
  static constexpr std::size_t max_cells = 1'000'000; ///< moves of a set; beyond that they are worked out anew

  std::vector<std::unique_ptr<selection>> recent_; ///< latest first
};

struct liveput_options {
  std::uint32_t shapes_per_size =
      4; ///< how many of the pairs that fit a number of instances are considered: the fastest
  /// Cost in ms of the present move to a target, all included, where more is known of it than the table's mean; only
  /// with `known` not empty. Null: the table's.
  std::function<double(std::uint32_t target)> first_ms = nullptr;
  plan_memory* memory = nullptr; ///< null: this decision's own
};

/// A configuration and what is expected of it over the look-ahead if it is chosen now and all goes on optimally.
struct liveput_choice {
  std::uint32_t target = move_table::idle;
  double samples = 0;

  friend bool operator==(const liveput_choice&, const liveput_choice&) = default;
};

/// Chooses the move for the present interval: the best, and up to three runners-up behind it. `held` instances before
/// it. With `known` empty the interval's change is not known: the target may ask for more instances than there are and
/// will be clipped, and later decisions will be as blind. Else `known` are the changes known already, the present one
/// first, the lattice starts behind them, and later decisions will know the change of their interval.
std::vector<liveput_choice> plan_liveput(move_table& table, const interval_state& now, std::uint32_t held,
                                         std::span<const fleet_change> known, const availability_lattice& future,
                                         const liveput_options& options = {});

} // namespace parcae
