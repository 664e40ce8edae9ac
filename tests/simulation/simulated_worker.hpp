#pragma once

// A worker's executor in virtual time: carries the product's worker_machine. It computes nothing; a layer's bits follow
// from what it was trained on.

#include "gpu/executor/executor.hpp"
#include "gpu/executor/worker_machine.hpp"
#include "gpu/gateway/pipelines.hpp"
#include "gpu/keeper/keeper_machine.hpp"
#include "protocols/model/model_description.hpp"
#include "tests/simulation/data_plane.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>

namespace parcae::simulation {

/// How FAILED says that there are no data.
inline constexpr const char* lost_data = "the data is away";

/// What a node has not, for now.
struct shortage {
  bool of_data = false;
  bool of_memory = false; ///< for another generation
};

/// What executors of one cluster share, and what their node lacks.
/// What is asked for of a served model: so many requests a second, each as long as the one before; then from the
/// beginning.
struct request_course {
  std::vector<double> per_s{};
  nanoseconds each = 1s;

  bool is_nothing() const { return per_s.empty(); }
  double at(time_point t) const { return per_s[static_cast<std::size_t>(t.time_since_epoch() / each) % per_s.size()]; }
};

struct executor_surroundings {
  engine& time;
  data_plane& plane;
  witness& sees;
  std::function<void(worker_machine&)> spoil{};        ///< puts a fault into the rules; may be empty
  std::shared_ptr<const shortage> lacks{};             ///< null: nothing
  nanoseconds wake = 2ms;                              ///< until a thread goes on, at most
  std::function<void(keeper_machine&)> spoil_keeper{}; ///< likewise
  std::optional<std::uint32_t> with_course{};          ///< the layer whose state has the course of validation
  bool caches_lie = false;                             ///< a fault
  std::function<void(request_book&, pipelines&)> spoil_gateway{}; ///< likewise
  request_course comes{};
};

class simulated_worker final : public executor_of<worker_command>, data_end {
public:
  simulated_worker(const executor_surroundings& around, process_ptr p, const slot_id& slot,
                   std::function<void(report)> report_to);
  ~simulated_worker() override;

  void want_snapshot() override;

  /// Its computation throws: what its stage holds is void.
  void break_down();

private:
  void obey(worker_command x) override;

  /// What there is of a generation.
  struct part {
    explicit part(prepare x) : what(std::move(x)) {}

    const prepare what;
    std::uint32_t self = 0;
    std::set<std::uint32_t> closed;                ///< participants whose connections ended
    std::set<std::uint32_t> computable;            ///< layers of which what passes need has arrived
    std::map<std::uint32_t, layer_state> arrived;  ///< whole
    std::map<std::uint32_t, layer_state> followed; ///< layers that came ahead, by number
    /// Layers that it sends ahead, each with the destination; of those that come or go what is moved after the stop.
    std::set<std::pair<std::uint32_t, std::uint32_t>> feeds, cold;
    bool is_warm = false;                ///< it was told WARM
    bool said_warm = false;              ///< what it follows is there
    std::optional<version> transfers_at; ///< until it begins, or, no rank, has sent all
    bool is_whole = false;               ///< a rank that trains holds all its layers
    bool begins_whole = false;           ///< it does not say that it begins until then
    time_point sent_at;                  ///< when it has sent all it is to send
    training_state state;
    wishes next; ///< with the next exchange
    joint_work doing;
    bool has_computed = false;                     ///< its part of that
    std::map<joint_work, std::uint32_t> heard;     ///< of so many others
    std::map<std::uint64_t, wishes> all;           ///< by step
    bool ends_whole = false;                       ///< no step follows, which it says when it is whole
    bool has_stopped = false;                      ///< it said so
    bool put_off = false;                          ///< the snapshot that was due with the last exchange
    bool drained = false;                          ///< of a job that serves: its pipeline takes nothing more
    std::set<std::uint32_t> awaited, came;         ///< moves of caches to it
    std::vector<stage_caches::content> came_early; ///< before ACTIVATE was heard

    job_generation id() const { return {what.job, what.next}; }
    /// A step needs all ranks.
    bool broken() const {
      if (what.specification.serves() && is_whole) // its own pipeline
        return std::ranges::any_of(closed, [&](auto x) {
          return x < what.target.ranks() && what.target.pipeline_of(x) == what.target.pipeline_of(self);
        });
      return (!closed.empty() && *closed.begin() < what.target.ranks()) ||
             (!is_whole && std::any_of(what.moves.begin(), what.moves.end(), [&](const shard_move& x) {
               return x.destination == self && !arrived.contains(x.layer) && closed.contains(x.source);
             }));
    }
    bool is_rank() const { return self < what.target.ranks(); }
    /// Moments come behind what passes need.
    bool has_late_parts() const { return moments_of(what.specification.optimizer) > 0; }
    std::uint32_t first() const { return what.target.first_layer[what.target.stage_of(self)]; }
    std::uint32_t last() const { return what.target.first_layer[what.target.stage_of(self) + 1]; }
  };

  // Of the data plane.
  void on_connected(generation g) override;
  void on_unreachable(generation g, std::uint32_t peer) override;
  void on_closed(generation g, std::uint32_t peer) override;
  void on_shard(generation g, std::uint32_t layer, const layer_state& x, bool late) override;
  void on_fed(generation g, std::uint32_t from, const fed& x) override;
  void on_computed(generation g, const joint_work& what) override;
  void on_told(generation g, const joint_work& what, const wishes& x) override;
  bool serves_now(generation g) const override;
  pass_outcome on_pass(generation g, pass_frame& x) override;
  void on_caches(generation g, std::uint32_t move, const stage_caches::content& all) override;

  /// Until others have done their part of a step, or sent shards.
  bool must_wait(const worker_command& x) const;
  /// Does the next command, or the next step.
  void go_on();
  void later(nanoseconds delay, void (simulated_worker::*what)());
  void do_next();

  /// Of which the gradients are complete; no_step: none.
  std::uint64_t open_step() const;
  void look_at(const worker_command& x, std::uint64_t open);
  void look_at(const worker_report& x);

  void do_all(const worker_machine::effects& all);
  void do_one(const worker_effects::say& x);
  void do_one(const worker_effects::connect& x);
  void do_one(const worker_effects::cut& x);
  void do_one(const worker_effects::drop& x);
  void do_one(const worker_effects::warm& x);
  void do_one(const worker_effects::keep_followed& x);
  void do_one(const worker_effects::move& x);
  void do_one(const worker_effects::leave&) {}
  void do_one(const worker_effects::begin& x);
  void do_one(const worker_effects::ask_to_stop& x);
  void do_one(const worker_effects::ask_for_snapshot&);
  void do_one(const worker_effects::settle&);
  void do_one(const worker_effects::apply& x);
  void do_one(const worker_effects::drop_gradients&);
  void do_one(const worker_effects::send_snapshot& x);
  void do_one(const worker_effects::report_progress& x);
  void do_one(const worker_effects::trace& x);
  void do_one(const worker_effects::free_shards& x);
  void do_one(const worker_effects::make_room&) {}
  void do_one(const worker_effects::use_keepers& x);
  void do_one(const worker_effects::forget_job& x);

  void answer_load(const load& x);
  void cannot_prepare(generation g);
  void finish_transfer(part& x);
  /// So its layers are in the store.
  void keep_arrived(part& x);
  void look_whether_whole(part& x);
  void contribute(part& x);
  void move_all(part& x, bool late);
  /// Layers that it trains go ahead to that generation: others of them, and a step of those that went.
  void feed(part& to, std::optional<std::uint64_t> step);
  void end_feed(part& x, const version& at);
  void look_whether_warm(part& x);
  void not_fed(generation g, failure kind);
  bool is_streaming() const;
  bool is_unsent() const;
  void complete_stage(part& x, const version& at);
  /// Of a job that serves.
  bool serves() const { return current_ && parts_.at(*current_).what.specification.serves(); }
  void move_caches(part& x);
  bool awaits_caches(const part& x) const;
  /// It is to stop, and stage 0 of its pipeline has taken its last rows; or a peer is gone.
  bool ends_service() const;
  void end_service();
  void say_served(generation g);
  void train();
  void begin_together(part& x, const joint_work& what);
  void train_evaluated(part& x);
  void end_if_whole(part& x);
  /// Of what it does with others: whether all are heard that must be. If one of them is gone it fails.
  void look_for_others();
  bool has_heard_all(const part& x) const;
  void exchange(part& x);
  void evaluated_version();
  void apply(const commit_result& result);
  void applied_step();
  part* find(generation g);
  part* current() { return current_ ? &parts_.at(*current_) : nullptr; }
  inventory held() const;
  void store_changed();

  executor_surroundings around_;
  std::function<void(report)> report_to_;
  worker_machine machine_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::deque<worker_command> queue_;
  bool busy_ = false;    ///< does something that takes time, or waits for a peer
  bool in_step_ = false; ///< may be applying, then it is busy too
  std::map<job_generation, part> parts_;
  std::optional<job_generation> current_;
  generation newest_; ///< that it was told to prepare
  std::map<std::uint32_t, layer_state> store_;
  stage_caches caches_;
  generation drained_; ///< the newest that it ended so
  protect feed_;
  std::shared_ptr<int> streams_;
  std::vector<std::weak_ptr<const parcel>> sent_; ///< by these streams
  version sent_at_;                               ///< the newest of that
  time_point rests_until_;                        ///< from copying
  std::optional<std::uint64_t> snapshot_by_;      ///< the version by which one was asked for
  time_point told_at_;                            ///< of the last progress
  time_point waits_since_;                        ///< for the rest of its layers, when it had computed
  double late_wait_ms_ = 0;                       ///< in its first step
  generation kept_of_;                            ///< never began, and layers that went ahead to it were kept:
  inventory kept_;                                ///< these
};

} // namespace parcae::simulation
