#pragma once

// The changes of generation of a job: the one in progress, those that were, what they took, and the decisions that led
// to them. Pure.

#include "actors/conductor/job_view.hpp"
#include "planner/cost/change_meter.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace parcae {

class change_log {
public:
  static constexpr std::size_t changes_kept = 1000;
  static constexpr std::size_t decisions_kept = 100;

  /// `before`: of a manager that is no more.
  explicit change_log(history_status before = {}) : view_(std::move(before)) {}

  /// A change begins, unless one is in progress.
  void open(time_point now, const std::string& why);
  bool is_open() const { return !record_.trigger.empty(); }
  const std::string& trigger() const { return record_.trigger; }
  void add_trigger(const std::string& why);

  /// This phase of it is over.
  void mark(double change_status::*phase_ms, time_point now);
  void wait() { record_.waited = true; } ///< for instances
  /// How the aborted generation ends is decided; `lost`: how many of its slots were.
  void settle(time_point now, std::uint32_t lost);
  /// Committed steps, or the one in progress, are computed again.
  void replay(std::uint64_t steps);

  /// Nothing trains from now on.
  void stall(time_point now) { stall_began_ = now; }
  std::optional<time_point> stall_began() const { return stall_began_; }

  /// The planner, asked because of `trigger`, has answered.
  void decided(time_point now, const std::string& trigger, decision x);

  /// `running`: beside a healthy generation. `busiest_bytes`: over the busiest link before all
  /// ranks can compute.
  void plan(time_point now, generation to, const change_plan& plan, bool running, double busiest_bytes);
  const change_status& record() const { return record_; }
  /// Of the change that is planned so much is moved while nobody trains, over the busiest link.
  void move_after(double busiest_bytes) { busiest_bytes_ = busiest_bytes; }

  /// All ranks compute. `early_ms`: the longest that one waited for state before.
  void activate(time_point now, double early_ms, generation g, std::uint32_t ranks);
  /// A rank of that generation waited `ms` in its first step for moments.
  void wait_for_state(generation g, double ms);
  /// Of the generation that is active everywhere.
  void first_commit(time_point now, generation g);
  /// It comes to nothing.
  void give_up() { record_ = {}; }
  /// Kept if something changed.
  void close();
  /// The generation that it is of was activated, and another change begins before its first commit was heard.
  void close_if_active();

  const change_figures& figures() const { return meter_.figures(); }
  const history_status& view() const { return view_; }

private:
  /// What its phases took, if nothing came in between.
  void learn(std::uint32_t ranks);

  history_status view_;
  change_status record_;   ///< of the change in progress; trigger empty: none
  time_point began_;       ///< likewise
  std::uint32_t lost_ = 0; ///< slots of the old generation that were lost until its end was decided
  bool running_ = false;   ///< when planned last, the old generation was healthy
  double busiest_bytes_ = 0;
  std::optional<time_point> stall_began_;
  time_point active_at_; ///< when the last generation was activated
  change_meter meter_;
};

} // namespace parcae
