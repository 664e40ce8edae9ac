#pragma once

// What a change of configuration costs, as the optimiser and the simulator see it. Two accountings implement it:
// published_cost and realistic_cost.

#include "planner/cost/profile.hpp"

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

namespace parcae {

/// Length of a planning interval where nothing else is said, as published.
inline constexpr double interval_s = 60;

/// What is cheaply known of a cost. Milliseconds.
struct cost_bounds {
  double least_ms = 0;
  double max_ms = std::numeric_limits<double>::infinity();
};

/// Costs in milliseconds in which nothing is trained. Single-threaded: implementations cache. Instances are numbered so
/// that their slots 0 … D·P−1 form the grid (stage = slot mod P), the rest are spares.
class cost_model {
public:
  virtual ~cost_model() = default;

  /// Mean cost of going from `from` to `to` when a uniformly random subset of `lost` of the `held` instances vanishes.
  /// Neither is idle; from.slots() ≤ held · devices.
  virtual double move_ms(const shape& from, const shape& to, std::uint32_t held, std::uint32_t lost) = 0;

  /// Bounds of move_ms for any number held, so that most moves need not be worked out.
  virtual cost_bounds move_bounds(const shape&, const shape&, std::uint32_t /*lost*/) { return {}; }

  /// Cost of starting with no survivors: at the beginning of the job, or after IDLE.
  virtual double start_ms(const shape& to, bool beginning) = 0;

  /// Of that of a later start, what nobody trains: without the work that is computed again.
  virtual double stall_of_start_ms(const shape& to) { return start_ms(to, false); }

  /// Added when a change still under way is redirected to `to`.
  virtual double redirect_ms(const shape& to) = 0;

  /// Whether the account is in real time. Then plans count a move that outlasts its interval in full at once, as
  /// negative samples, and may count on waiting also where something fits (though not now). As published its rest is
  /// carried over in plans, too, and waiting is a choice only where nothing fits.
  virtual bool real_time() const { return false; }

  /// Devices per instance; losses come by instance.
  virtual std::uint32_t devices() const = 0;
};

/// The configurations the optimiser chooses from, and what their moves yield, computed once each. Targets first, those
/// with fewest slots first, so that the ones that fit are always a prefix; behind them the allowed pairs that are
/// missing from the throughput table, which only a clipped decision can lead to.
class move_table {
public:
  static constexpr std::uint32_t idle = UINT32_MAX;
  static constexpr std::size_t dense = 256;

  /// All allowed pairs of up to `instances` instances, for intervals of `seconds`.
  move_table(const profile& workload, cost_model& costs, std::uint32_t instances, double seconds = interval_s);

  const std::vector<shape>& shapes() const { return shapes_; }
  std::uint32_t instances() const { return instances_; }
  double seconds() const { return seconds_; }                     ///< length of an interval
  double rate(std::uint32_t index) const { return rate_[index]; } ///< samples/s
  cost_model& costs() const { return costs_; }

  /// Number of targets that fit this many instances.
  std::uint32_t fitting(std::uint32_t instances) const;

  /// The fastest targets that fit, at most `count`, fastest first. Cached for one `count`.
  const std::vector<std::uint32_t>& fastest(std::uint32_t instances, std::uint32_t count);

  /// `idle` if the pair is not allowed or larger than the table.
  std::uint32_t index_of(const shape& x) const;

  /// What becomes of a target that was chosen before it was known that only `instances` are left: narrower at its
  /// depth, else the single pipeline of all instances, else idle.
  std::uint32_t clipped(std::uint32_t target, std::uint32_t instances) const;

  double move_ms(std::uint32_t from, std::uint32_t to, std::uint32_t held, std::uint32_t lost) const {
    return costs_.move_ms(shapes_[from], shapes_[to], held, lost);
  }

  /// Samples of an interval that begins with this move; negative if it takes longer than the interval. Cached.
  double gain(std::uint32_t from, std::uint32_t to, std::uint32_t held, std::uint32_t lost) {
    return gain_in(cells_of(held, lost), from, to, held, lost);
  }

  /// The same for moves between some configurations: calls f(i, j, samples) for i, j of 0 … n−1 where wanted(i, j).
  template <class Wanted, class F>
  void each_gain(std::span<const std::uint32_t> shapes, std::uint32_t held, std::uint32_t lost, Wanted wanted, F f) {
    auto& cells = cells_of(held, lost);
    for (std::uint32_t i = 0; i < shapes.size(); ++i)
      for (std::uint32_t j = 0; j < shapes.size(); ++j)
        if (wanted(i, j))
          f(i, j, gain_in(cells, shapes[i], shapes[j], held, lost));
  }

  /// Gains of the moves from one configuration to those of the first `count` targets that can be of use: calls f(to,
  /// samples) where wanted(to, bound), which is asked in the order of targets. The bound is not below the gain, and
  /// infinite where the rest of the move may be carried to the next interval. Only of tables of up to `dense` shapes.
  template <class Wanted, class F>
  void each_gain_from(std::uint32_t from, std::uint32_t count, std::uint32_t held, std::uint32_t lost, Wanted wanted,
                      F f) {
    const auto* most = max_gains(from, lost);
    auto& cells = cells_of(held, lost);
    for (std::uint32_t to = 0; to < count; ++to)
      if (wanted(to, most[to]))
        f(to, gain_in(cells, from, to, held, lost));
  }

private:
  double gain_of(std::uint32_t from, std::uint32_t to, std::uint32_t held, std::uint32_t lost) const;

  /// Gains by (from, to): a matrix with NaN where not computed for tables of up to `dense` shapes, else a map.
  struct gain_cells {
    std::vector<double> matrix;
    std::unordered_map<std::uint64_t, double> map;
  };

  double gain_in(gain_cells& x, std::uint32_t from, std::uint32_t to, std::uint32_t held, std::uint32_t lost) {
    if (x.matrix.empty()) {
      const auto [found, fresh] = x.map.try_emplace(static_cast<std::uint64_t>(from) << 32 | to, 0);
      return fresh ? found->second = gain_of(from, to, held, lost) : found->second;
    }
    auto& cell = x.matrix[static_cast<std::size_t>(from) * shapes_.size() + to];
    return cell == cell ? cell : cell = gain_of(from, to, held, lost);
  }

  gain_cells& cells_of(std::uint32_t held, std::uint32_t lost);
  const double* max_gains(std::uint32_t from, std::uint32_t lost);

  cost_model& costs_;
  std::uint32_t instances_;
  double seconds_;
  std::uint32_t targets_ = 0;
  std::vector<shape> shapes_;
  std::vector<double> rate_;
  std::map<shape, std::uint32_t> index_;
  std::unordered_map<std::uint64_t, gain_cells> cells_;              ///< by (held, lost)
  std::vector<std::vector<std::uint32_t>> fastest_;                  ///< by instances
  std::unordered_map<std::uint32_t, std::vector<double>> max_gains_; ///< by lost: matrix by (from, to)
};

} // namespace parcae
