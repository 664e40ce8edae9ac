#pragma once

// What a change of configuration costs, as the optimiser and the simulator see it. Two accountings implement it:
// published_cost and realistic_cost.

#include "planner/profile.hpp"

#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

namespace parcae {

/// Costs in milliseconds in which nothing is trained. Single-threaded: implementations cache. Instances are numbered so that their
/// slots 0 … D·P−1 form the grid (stage = slot mod P), the rest are spares.
class cost_model {
public:
  virtual ~cost_model() = default;

  /// Mean cost of going from `from` to `to` when a uniformly random subset of `lost` of the `held` instances vanishes.
  /// Neither is idle; from.slots() ≤ held · devices.
  virtual double move_ms(const shape& from, const shape& to, std::uint32_t held, std::uint32_t lost) = 0;

  /// Cost of starting with no survivors: at the beginning of the job, or after IDLE.
  virtual double start_ms(const shape& to, bool beginning) = 0;

  /// Added when a change still under way is redirected to `to`.
  virtual double redirect_ms(const shape& to) = 0;

  /// Devices per instance; losses come by instance.
  virtual std::uint32_t devices() const = 0;
};

/// The configurations the optimiser chooses from, in order of (D, P), and their moves' costs, computed once each.
class move_table {
public:
  static constexpr std::uint32_t idle = UINT32_MAX;

  /// All allowed pairs of up to `instances` instances; those missing from the throughput table are never targets.
  move_table(const profile& workload, cost_model& costs, std::uint32_t instances);

  const std::vector<shape>& shapes() const { return shapes_; }
  double rate(std::uint32_t index) const { return rate_[index]; } ///< samples/s
  const cost_model& costs() const { return costs_; }

  /// Indices that can be chosen with this many instances, fewest slots first.
  const std::vector<std::uint32_t>& fitting(std::uint32_t instances);

  /// `idle` if the pair is not allowed or too large for the table.
  std::uint32_t index_of(const shape& x) const;

  double move_ms(std::uint32_t from, std::uint32_t to, std::uint32_t held, std::uint32_t lost) {
    auto& cell = row(from, held, lost)[to];
    return cell == cell ? cell : cell = costs_.move_ms(shapes_[from], shapes_[to], held, lost);
  }

  double start_ms(std::uint32_t to, bool beginning) { return costs_.start_ms(shapes_[to], beginning); }
  double redirect_ms(std::uint32_t to) { return costs_.redirect_ms(shapes_[to]); }

  /// Costs from one configuration to all, NaN where not computed yet. Valid until the next call for another (held, lost).
  double* row(std::uint32_t from, std::uint32_t held, std::uint32_t lost);

private:
  cost_model& costs_;
  std::vector<shape> shapes_;
  std::vector<double> rate_;
  std::vector<std::uint32_t> by_slots_; ///< targets, fewest slots first
  std::vector<std::vector<std::uint32_t>> fitting_;
  std::unordered_map<std::uint64_t, std::vector<double>> cells_; ///< by (held, lost)
};

} // namespace parcae
