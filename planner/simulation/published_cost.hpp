#pragma once

// The cost model of the Parcae authors' public artifact (NSDI'24), quirks included, with the expectation over
// preemptions computed exactly instead of sampled.

#include "planner/cost/cost_model.hpp"
#include "planner/simulation/replica_losses.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace parcae {

/// Layers of each stage as the artifact cuts them: depth + 1 boundaries.
std::vector<std::uint32_t> published_partition(std::uint32_t layers, std::uint32_t depth);

/// Exact for one device per instance: another depth while at most 64 slots of the grid can be asked in at most
/// `max_states` ways; the same depth wherever two stages practically cannot lose (nearly) all replicas at once, and
/// elsewhere up to `max_outcomes` cases. With several devices while the ways to lose instances of the grid that differ
/// (another depth: all; the same depth: in the stages they hold) stay below `max_subsets`. Else the mean of `samples`
/// subsets drawn with a fixed seed.
class published_cost : public cost_model {
public:
  static constexpr std::size_t max_states = 20'000;
  static constexpr std::size_t max_outcomes = 500;
  static constexpr std::size_t max_subsets = 2'000;
  static constexpr std::size_t samples = 64;

  published_cost(const profile& workload, const network_profile& network, std::uint32_t devices = 1);
  ~published_cost() override;

  double move_ms(const shape& from, const shape& to, std::uint32_t held, std::uint32_t lost) override;
  cost_bounds move_bounds(const shape& from, const shape& to, std::uint32_t lost) override;
  double start_ms(const shape& to, bool beginning) override;
  double redirect_ms(const shape& to) override;
  std::uint32_t devices() const override { return devices_; }

  double rebuild_ms(const shape& to, change kind) const;
  double restart_ms(const shape& to, change kind) const;

  /// Cost when exactly these slots of the grid are lost (size from.slots()), `lost` slots in all: what move_ms is the
  /// mean of.
  double move_given_ms(const shape& from, const shape& to, const std::vector<bool>& lost_of_grid, std::uint32_t lost);

  /// A restart after a checkpoint, as the reactive policy does it; without `checkpoint` at the beginning.
  double reload_ms(const shape& to, change kind, bool checkpoint);

private:
  /// A way to cut the layers.
  struct cut {
    std::vector<double> parameters;  ///< by stage
    std::vector<double> transfer_ms; ///< of a stage's state
    double largest_ms = 0;
    double all_ms = 0; ///< one stage after the other
    double max_ms = 0; ///< bound of any part of a stage; measured tables need not be monotone
    std::vector<std::uint32_t> first_layer;
  };

  /// A case, or the mean of some: the probability that intra-stage migration is enough, and the transfers (0 where it
  /// is enough).
  struct transfer_case {
    double enough = -1; ///< -1: not computed
    double ms = 0;
  };

  /// Another depth: sums[stage][losses asked] over the cases with fewer than `cases` losses, and the mean transfer by
  /// losses (-1: not computed). With `too_many` losses or more there are too many cases.
  struct other_depth {
    std::vector<std::vector<double>> sums;
    std::uint32_t cases = 0;
    std::uint32_t too_many = UINT32_MAX;
    std::vector<double> mean_ms;
  };

  const cut& cut_of(std::uint32_t depth);
  const transfer_case& same_depth(const shape& from, std::uint32_t to_width, std::uint32_t losses);
  /// The slowest transfer alone, which is all unless two stages lose (nearly) all replicas.
  transfer_case slowest_transfer(const shape& from, std::uint32_t to_width, std::uint32_t losses);
  /// Case by case, for every number of losses in the table.
  void enumerate_same_depth(std::vector<transfer_case>& table, const shape& from, std::uint32_t to_width);
  void sample_same_depth(std::vector<transfer_case>& table, const shape& from, std::uint32_t to_width);
  /// Of one outcome, replicas left by stage; clears `enough` if a stage lacks any.
  static double same_depth_transfer_ms(const std::vector<std::uint32_t>& left, std::uint32_t to_width,
                                       const std::vector<double>& transfer_ms, bool& enough);
  double other_depth_ms(const shape& from, std::uint32_t to_depth, std::uint32_t losses);
  void enumerate(other_depth& table, const shape& from, std::uint32_t to_depth, std::uint32_t losses);
  double sampled_ms(const shape& from, std::uint32_t to_depth, std::uint32_t losses);
  double last_transfer_ms(const shape& from, std::uint32_t to_depth, const std::vector<bool>& lost_of_grid);

  transfer_case given(const shape& from, const shape& to, const std::vector<bool>& lost_of_grid);
  double total_ms(const shape& from, const shape& to, std::uint32_t lost_slots, const transfer_case& x);
  const transfer_case& mean_by_instance(const shape& from, const shape& to, std::uint32_t lost_instances);
  double by_instance_ms(const shape& from, const shape& to, std::uint32_t held, std::uint32_t lost);
  change kind_of(const shape& from, const shape& to, std::uint32_t lost_slots) const {
    return to.slots() + lost_slots > from.slots() ? change::add : change::remove;
  }

  /// For each new stage the old stages, those whose slots lack least first; those that lack the same are one group, of
  /// which the lowest slot is asked first.
  struct greedy_order {
    struct group {
      double parameters;                 ///< that its slots lack
      double missing_ms;                 ///< transfer time of that
      std::vector<std::uint32_t> stages; ///< old
      std::uint64_t slots;               ///< as bits; only of grids of up to 64 slots
    };
    std::vector<std::vector<group>> groups; ///< by new stage
  };
  const greedy_order& order_of(const shape& from, std::uint32_t to_depth);

  /// Memory of enumerate(), kept from one to the next.
  struct asked_memory;

  const profile& workload_;
  const network_profile& network_;
  std::uint32_t devices_;
  std::unique_ptr<asked_memory> asked_;
  std::tuple<std::uint32_t, std::uint32_t, std::uint32_t> in_grid_key_{0, 0, 0}; ///< held, slots, lost
  std::vector<double> in_grid_{1};                                               ///< for that
  std::map<std::uint32_t, cut> cuts_;
  std::map<std::pair<shape, std::uint32_t>, std::vector<transfer_case>> same_depth_; ///< by losses in the grid
  std::map<std::pair<std::uint32_t, std::uint32_t>, replica_losses> replica_losses_; ///< by width and what it can spare
  std::map<std::pair<shape, std::uint32_t>, other_depth> other_depth_;
  std::map<std::pair<shape, std::uint32_t>, greedy_order> orders_;
  std::map<std::tuple<shape, shape, std::uint32_t>, transfer_case> by_instance_; ///< by lost instances of the grid
};

} // namespace parcae
