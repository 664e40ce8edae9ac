#pragma once

// Replays a trace under a policy, interval by interval, with the same planner code as the live manager. No clock: the
// caller may time decide().

#include "forecast/method.hpp"
#include "planner/choose/liveput.hpp"
#include "planner/cost/realistic_cost.hpp"
#include "planner/simulation/published_cost.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace parcae {

enum class policy : std::uint8_t {
  ideal,      ///< the fastest configuration of each interval, free of cost
  throughput, ///< the fastest configuration of what is there, reactive
  liveput,    ///< the optimiser
};

struct simulation_options {
  parcae::policy policy = parcae::policy::liveput;
  std::string forecast = "auto"; ///< a forecast method, or "oracle" for the true future
  std::uint32_t notice = 0;      ///< intervals whose events are known before they are decided on
  std::uint32_t look_ahead = 12; ///< intervals, the present one included
};

/// Samples that the ideal has and a run has not, by what became of the time. They add up to the difference.
struct lost_samples {
  double bytes = 0;     ///< moving state
  double messages = 0;  ///< the other phases of changes
  double replayed = 0;  ///< computing again what was lost
  double snapshots = 0; ///< copying state for the keepers, while nobody trains
  double remainder = 0; ///< a slower configuration than the fastest that fits, or none
};

struct simulated_interval {
  shape used; ///< width 0: idle
  double samples = 0;
  double cost_ms = 0; ///< charged for a change in this interval
  bool migrated = false;
};

/// Instances the move table must cover: those of the largest pair in the throughput table and of the history's peak.
std::uint32_t table_instances(const profile& workload, const fleet_history& history, std::uint32_t devices);

class simulator {
public:
  /// As published: every interval counts as 60 s, with notice 0 moves are chosen before the interval's event is seen,
  /// and the reactive policy restarts from checkpoints. The arguments must outlive the simulator.
  simulator(const profile& workload, published_cost& costs, const fleet_history& history, simulation_options options);

  /// In real time: an interval lasts until the next, moves are chosen once its event is seen, and the reactive policy
  /// migrates like everyone. All losses were announced if the costs say so; else those of intervals in which all had
  /// notice were. Plans expect what at least half of the losses so far were, as the live ones do.
  simulator(const profile& workload, const realistic_options& costs, const fleet_history& history,
            simulation_options options);

  bool done() const { return next_ == history_.size(); }

  /// Plans the next interval.
  void decide();

  /// Carries the plan out: the interval's real event, then the account.
  void advance();

  const std::vector<simulated_interval>& intervals() const { return intervals_; }
  double samples() const { return samples_; }
  std::uint32_t migrations() const { return migrations_; }
  double ideal() const { return ideal_; }            ///< samples of the fastest configurations, free of cost, so far
  const lost_samples& lost() const { return lost_; } ///< in real time only
  double seconds(std::size_t interval) const;        ///< how long an interval lasts
  const interval_state& state() const { return state_; }

private:
  /// Costs, and what was worked out of them.
  struct account {
    std::unique_ptr<realistic_cost> real_time; ///< null as published
    move_table table;
    plan_memory memory;

    account(const profile& workload, cost_model& costs, const fleet_history& history) :
        table(workload, costs, table_instances(workload, history, costs.devices())) {}
    account(const profile& workload, const realistic_options& costs, const fleet_history& history);
  };

  /// Instances; of an interval in which not all had notice none counts as announced.
  struct losses {
    std::uint32_t all = 0;
    std::uint32_t announced = 0;

    void add(const fleet_interval& x);
  };

  void begin();
  account& account_for(const losses& x); ///< what most of them cost
  account& next_account();               ///< of the next interval's losses
  void observe_up_to(std::size_t count);
  std::uint32_t plan(std::span<const fleet_change> known, const availability_lattice& future, account& expected);
  std::uint32_t plan_with_truth();
  std::uint32_t plan_with_forecast();
  simulated_interval reactive();
  simulated_interval migrate();
  void account_for_lost(const shape& used, const shape& fastest);

  const profile& workload_;
  account account_;                    ///< of losses that `announced_` is not for
  std::unique_ptr<account> announced_; ///< in real time, unless all are
  published_cost* reload_ = nullptr;   ///< as published
  const fleet_history& history_;
  simulation_options options_;
  std::unique_ptr<forecast_method> forecast_; ///< null with the true future
  bool point_ = false;                        ///< the forecast is one path: the optimiser for a known future is used
  std::size_t observed_ = 0;
  losses so_far_; ///< the next interval's included
  std::size_t next_ = 0;
  std::uint32_t held_ = 0; ///< instances before the next interval's event
  std::uint32_t target_ = move_table::idle;
  std::vector<std::uint32_t> whole_plan_; ///< the true future to the end is planned once
  interval_state state_;
  double left_ms_ = 0; ///< reactive: restart carried over
  std::vector<simulated_interval> intervals_;
  double samples_ = 0;
  double ideal_ = 0;
  change_cost unpaid_; ///< real time: of the change under way
  lost_samples lost_;
  std::uint32_t migrations_ = 0;
};

} // namespace parcae
