#pragma once

// What the executor of a worker promises, as choreography.hpp says it and gpu/training does it, in virtual time: it
// computes nothing, but a layer's bits follow from what it was trained on.

#include "gpu/executor/executor.hpp"
#include "tests/simulation/data_plane.hpp"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

namespace parcae::simulation {

/// What a simulation is made to find: see faults.hpp.
struct executor_faults {
  bool applies_stale_decisions = false;
};

/// What executors of one cluster share.
struct executor_surroundings {
  engine& time;
  data_plane& plane;
  witness& sees;
  executor_faults faults;
};

class worker_double final : public executor, data_end {
public:
  worker_double(const executor_surroundings& around, process_ptr p, const slot_id& slot,
                std::function<void(report)> report_to);
  ~worker_double() override;

  void submit(command x) override;
  void want_snapshot() override;

  /// Its computation throws: what its stage holds is void.
  void break_down();

private:
  /// A generation that was prepared.
  struct part {
    prepare what;
    std::uint32_t self = 0;
    bool ended = false;                ///< communication, by itself
    std::set<std::uint32_t> closed;    ///< participants whose connections ended
    std::optional<report> answer;      ///< to PREPARE
    std::optional<report> transferred; ///< answer to TRANSFER
    std::map<std::uint32_t, layer_state> arrived;
    version at;
    std::uint64_t complete = no_step;
    commit_result result;
    bool voided = false;
    wishes next;                                  ///< with the next exchange
    bool due = false;                             ///< a snapshot
    std::optional<version> transfers_at;          ///< while it does
    std::map<std::uint64_t, std::uint32_t> heard; ///< by step: so many of the others
    std::map<std::uint64_t, wishes> all;

    /// A step needs all ranks.
    bool broken() const { return !closed.empty() && *closed.begin() < what.target.ranks(); }
    bool is_rank() const { return self < what.target.ranks(); }
    std::uint32_t first() const { return what.target.first_layer[what.target.stage_of(self)]; }
    std::uint32_t last() const { return what.target.first_layer[what.target.stage_of(self) + 1]; }
  };

  // Of the data plane.
  void on_connected(generation g) override;
  void on_unreachable(generation g, std::uint32_t peer) override;
  void on_closed(generation g, std::uint32_t peer) override;
  void on_shard(generation g, std::uint32_t layer, const layer_state& x) override;
  void on_computed(generation g, std::uint64_t step) override;
  void on_wishes(generation g, std::uint64_t step, const wishes& x) override;

  void begin_preparation(prepare x);
  /// Does the next command, or the next step.
  void go_on();
  void later(nanoseconds delay, void (worker_double::*what)());
  void do_next();

  template <class T>
  void handle(const T&) {} // never queued, or for keepers
  void handle(const stop& x);
  void handle(const transfer& x);
  void handle(const activate& x);
  void handle(const abort_generation& x);
  void handle(const decide& x);
  void handle(const release& x);
  void handle(const protect& x);
  void handle(const forget& x);

  void end_superseded(generation by);
  void finish_transfer();
  void train();
  void look_for_exchange();
  void apply(const commit_result& result);
  void applied_step();
  void committed(const commit_result& result);
  void end_training();
  void end_failed(failure kind, const std::string& why);
  void interrupted(failure kind, const std::string& why);
  void send_final_state(bool whole);
  bool send_snapshot(const commit_result& result, bool whole);
  void report_stopped();
  void end(part& x);
  bool is_final() const { return current_->at.steps == current_->what.specification.steps; }
  bool is(const std::unique_ptr<part>& x, generation g) const { return x && x->what.next == g; }
  inventory held() const;
  void say(report x);
  void store_changed();

  executor_surroundings around_;
  std::function<void(report)> report_to_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::deque<command> queue_;
  bool busy_ = false;    ///< does something that takes time, or waits for a peer
  bool running_ = false; ///< trains
  bool in_step_ = false;
  bool stopped_ = false;
  std::optional<failed> failure_;
  std::unique_ptr<part> current_, next_;
  std::pair<job_id, generation> newest_;
  job_id stored_;
  std::map<std::uint32_t, layer_state> store_;
  protect feed_;
  bool wanted_ = false; ///< a snapshot
  std::shared_ptr<int> streams_;
  time_point told_at_; ///< of the last progress
};

} // namespace parcae::simulation
