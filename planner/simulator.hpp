#pragma once

// Replays a trace under a policy, interval by interval, with the same planner code as the live manager. No clock: the
// caller may time decide().

#include "forecast/method.hpp"
#include "planner/liveput.hpp"
#include "planner/published_cost.hpp"

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

struct simulated_interval {
  shape used; ///< width 0: idle
  double samples = 0;
  double cost_ms = 0; ///< charged for a change in this interval
  bool migrated = false;
};

class simulator {
public:
  /// The arguments must outlive the simulator. `reload` not null: the reactive policy restarts from checkpoints at
  /// these costs, as in the published evaluation; else it migrates like everyone.
  simulator(const profile& workload, cost_model& costs, published_cost* reload, const fleet_history& history,
            simulation_options options);

  bool done() const { return next_ == history_.size(); }

  /// Plans the next interval.
  void decide();

  /// Carries the plan out: the interval's real event, then the account.
  void advance();

  const std::vector<simulated_interval>& intervals() const { return intervals_; }
  double samples() const { return samples_; }
  std::uint32_t migrations() const { return migrations_; }
  const training_state& state() const { return state_; }

private:
  void observe_up_to(std::size_t count);
  std::uint32_t plan_with_truth();
  std::uint32_t plan_with_forecast();
  simulated_interval reactive();

  const profile& workload_;
  move_table table_;
  published_cost* reload_;
  const fleet_history& history_;
  simulation_options options_;
  std::unique_ptr<forecast_method> forecast_; ///< null with the true future
  bool point_ = false;                        ///< the forecast is one path: the optimiser for a known future is used
  std::size_t observed_ = 0;
  std::size_t next_ = 0;
  std::uint32_t held_ = 0; ///< instances before the next interval's event
  std::uint32_t target_ = move_table::idle;
  std::vector<std::uint32_t> whole_plan_; ///< the true future to the end is planned once
  training_state state_;
  double left_ms_ = 0; ///< reactive: restart carried over
  std::vector<simulated_interval> intervals_;
  double samples_ = 0;
  std::uint32_t migrations_ = 0;
};

/// Instances the move table must cover: those of the largest pair in the throughput table and of the history's peak.
std::uint32_t table_instances(const profile& workload, const fleet_history& history, std::uint32_t devices);

} // namespace parcae
