#pragma once

// What a change of configuration costs in real time with this project's own choreography and transfer plan
// (HOW_IT_WORKS.md, "Changing generation"): bytes over the busiest link, the phases of messages around them, and the
// work that is computed again. What is prepared while the old generation trains costs nothing. Pure.
//
//   announced (a notice, a join, a forecast)   not announced (a loss)
//   PREPARE   in the background                ABORT, DECIDE, plan, PREPARE   nobody trains
//   STOP      after the step in flight         the step in flight is computed again
//   ACTIVATE                                   ACTIVATE
//   parameters                                 parameters                    nobody trains
//   the first step, moments behind it          the first step, moments behind it

#include "planner/cost/cost_model.hpp"
#include "planner/cost/keeper_cost.hpp"
#include "protocols/choreography/choreography.hpp"

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace parcae {

/// One change, by what the time goes into. Milliseconds.
struct change_cost {
  double messages_ms = 0; ///< all phases in which nobody trains, without the bytes
  double bytes_ms = 0;    ///< moving over the busiest link what ranks need before they can compute
  /// No part of the stall: the first step's wait for the rest; with a feed, what the old configuration trains less than
  /// the new one while that is under way.
  double late_ms = 0;
  double replayed_ms = 0; ///< work computed again, by the new configuration; no part of the stall

  double stall_ms() const { return messages_ms + bytes_ms; }
  double total_ms() const { return stall_ms() + late_ms + replayed_ms; }

  change_cost& operator+=(const change_cost& x) {
    messages_ms += x.messages_ms;
    bytes_ms += x.bytes_ms;
    late_ms += x.late_ms;
    replayed_ms += x.replayed_ms;
    return *this;
  }

  friend change_cost operator*(double factor, const change_cost& x) {
    return {factor * x.messages_ms, factor * x.bytes_ms, factor * x.late_ms, factor * x.replayed_ms};
  }

  friend bool operator==(const change_cost&, const change_cost&) = default;
};

/// Most bytes that any participant sends, or receives, in these moves.
std::uint64_t busiest_link_bytes(std::span<const shard_move> moves, std::span<const std::uint64_t> layer_bytes);

/// Until a machine that vanished is missed, mean: it closes no connection, and the kernel knows after a second that it
/// owes an answer (runtime/link).
inline constexpr double vanished_ms = 1'050;

/// What changes of a workload take: as it was measured with its profile, else as usual. What a published profile says
/// other systems take to build models is no part of it: our own PREPARE builds none after a loss.
change_figures figures_of(const profile& workload);

/// From a notice until a new configuration is ready. With less than that nothing can be prepared in time.
double making_ready_ms(const change_figures& figures);

/// ABORT until the last DECIDED.
double settle_ms(const change_figures& figures, std::uint32_t lost);

/// The stall (STOPPED of the last rank, or the loss being declared, to the last ACTIVE) of a change that was planned.
/// `ranks`: of the new generation. `lost`: slots of the old generation that were; none given: it is healthy and trains
/// while the new one is prepared. Nothing is replayed. `early_bytes`: over the busiest link before all can compute.
change_cost cost_of(const change_figures& figures, std::optional<std::uint32_t> lost, std::uint32_t ranks,
                    double early_bytes);

/// Moving over the busiest link: what ranks need before they can compute, and what follows while they compute the first
/// step, of `step_ms`.
change_cost moving_cost(const change_figures& figures, double early_bytes, double late_bytes, double step_ms);

/// State that goes ahead while the old configuration trains.
struct feed_cost {
  double takes_ms = 0; ///< mean, until the change begins
  double costs_ms = 0; ///< of the new configuration's time: what the old one trains less meanwhile
};

/// Of so many bytes over the busiest link beside steps of `step_ms`, of each of which it brings `gradient_bytes` as
/// well. `next_step_ms`: of the new configuration. None: gradients are more than the link can bring.
std::optional<feed_cost> feeding_cost(const change_figures& figures, double step_ms, double next_step_ms,
                                      double gradient_bytes, double bytes);

/// What else the expectation needs to know.
struct realistic_options {
  change_figures figures;
  bool announced = false;    ///< losses come with enough notice: the old generation stops by itself, and those who
                             ///< leave still send what they hold
  std::uint32_t devices = 1; ///< per instance
  keeper_setup kept = {};
  bool feed = false; ///< state goes ahead while the old generation trains, and its gradients after it, where it can
  double notice_ms = std::numeric_limits<double>::infinity(); ///< of an announced loss, in which a feed must be done
};

/// Means over random losses. Cost of a case: survivors stay where they hold most of what is needed (a greedy choice,
/// largest overlap first; the real plan is by Kuhn–Munkres), every layer is sent in equal parts by all who hold it (the
/// real plan: whole layers). Exact over losses where there are at most `max_outcomes` different ones, else the mean of
/// as many drawn with a fixed seed.
class realistic_cost : public cost_model {
public:
  static constexpr std::size_t max_outcomes = 100;

  /// The workload must outlive it.
  realistic_cost(const profile& workload, const realistic_options& options);

  double move_ms(const shape& from, const shape& to, std::uint32_t held, std::uint32_t lost) override;
  double start_ms(const shape& to, bool beginning) override;
  double stall_of_start_ms(const shape& to) override {
    const auto x = start(to, false);
    return x.stall_ms() + x.late_ms;
  }
  double redirect_ms(const shape& to) override;
  bool real_time() const override { return true; }
  std::uint32_t devices() const override { return options_.devices; }

  /// Of the time that x trains, the part in which it only copies: at a snapshot's commit each rank copies its slice of
  /// its stage's state, which is streamed to the keepers behind the next steps.
  double snapshot_fraction(const shape& x);

  /// What move_ms is the total of.
  change_cost move(const shape& from, const shape& to, std::uint32_t held, std::uint32_t lost);
  change_cost start(const shape& to, bool beginning);

  /// The cost if exactly `left` replicas of each stage of `from` are left.
  change_cost given(const shape& from, const shape& to, std::span<const std::uint32_t> left);

private:
  struct cut {
    std::vector<std::uint32_t> first_layer;
    std::vector<double> bytes; ///< by stage
  };

  /// State that an old and a new stage have in common.
  struct overlap {
    std::uint32_t from = 0; ///< stages
    std::uint32_t to = 0;
    double bytes = 0;
  };

  /// One way to lose instances of the grid.
  struct outcome {
    std::vector<std::uint32_t> left; ///< replicas, by stage
    double weight = 0;               ///< they sum to 1
  };

  const cut& cut_of(std::uint32_t depth);
  const std::vector<overlap>& overlaps_of(std::uint32_t from_depth, std::uint32_t to_depth); ///< largest first
  const std::vector<outcome>& outcomes_of(const shape& from, std::uint32_t lost_in_grid);
  const change_cost& mean_of(const shape& from, const shape& to, std::uint32_t lost_in_grid);
  double step_ms(const shape& x) const;
  double slice_bytes(const shape& x);
  change_cost moved(const shape& to, double busiest_bytes) const;
  /// What is left of that if a feed moves them, of whom some leave; none: there is none, or none in time.
  std::optional<double> fed_ms(const shape& from, const shape& to, bool leaving, double busiest_bytes) const;

  const profile& workload_;
  realistic_options options_;
  std::vector<double> layer_bytes_;
  keeper_cost kept_;
  std::map<std::uint32_t, cut> cuts_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<overlap>> overlaps_;
  std::map<std::pair<shape, std::uint32_t>, std::vector<outcome>> outcomes_;
  std::map<std::tuple<shape, shape, std::uint32_t>, change_cost> means_;
};

} // namespace parcae
