#pragma once

// The rules of a worker's side of the choreography: what follows from a command, and from what came of an effect.

#include "protocols/base/rule_table.hpp"
#include "protocols/choreography/choreography.hpp"
#include "protocols/values/loss_record.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace parcae {

/// Where a worker stands in one generation.
enum class worker_phase : std::uint8_t {
  absent,     ///< it has no part in that generation, or has none any more
  preparing,  ///< allocates, and connects with all others
  prepared,   ///< is connected
  warming,    ///< sends layers of the generation that trains, or follows them
  unprepared, ///< could not prepare, and said so
  moving,     ///< sends and receives shards
  delivered,  ///< no rank; it sent what it was to send
  unmoved,    ///< shards could not be moved, and it said so
  cut,        ///< ABORT was heard before it trained; ABORTED follows
  running,    ///< trains
  stopped,    ///< by the stop bit, or because no step is left
  broken,     ///< training failed, and it said so
  aborting,   ///< ABORT was heard while it trained; ABORTED follows
  aborted,    ///< said ABORTED, or a newer generation took its place
};

std::string to_string(worker_phase x);

/// What can happen to a part. Triggers that are "heard" count at once, also in the middle of a step; all others come in
/// order, between two steps.
enum class worker_trigger : std::uint8_t {
  prepare_heard,  ///< PREPARE
  connected,      ///< with all participants; memory is there. Heard
  not_connected,  ///< memory or a connection is missing. Heard
  warm,           ///< WARM
  followed,       ///< all that is sent to it, and nothing is behind
  not_fed,        ///< some could not be sent, or followed
  stop_heard,     ///< STOP, which is taken in its order as well
  activate_heard, ///< ACTIVATE, likewise
  abort_heard,    ///< ABORT, or FORGET; likewise
  stop,
  activate,
  moved,        ///< what a rank needs to compute arrived; of others: all was sent
  not_moved,    ///< some was not
  begun,        ///< its layers are bound, the first step can begin
  evaluated,    ///< the present version
  committed,    ///< a step was exchanged and applied
  no_step_left, ///< the present version is the job's last
  drained,      ///< it serves, and its pipeline takes nothing more
  step_failed,
  abort,
  settled, ///< after ABORT: nothing that was given to the device or the network changes anything any more
  decide,
  applied,     ///< the step that was decided on
  not_applied, ///< applying it failed
  superseded,  ///< a newer generation takes the state over
  released,    ///< RELEASE of this generation
  left_behind, ///< RELEASE of a newer one
  trace,       ///< TRACE: spans of steps are asked for
  protect,     ///< keepers were named, or a snapshot asked for
  forget,      ///< the job is over
};

/// As in "PREPARE comes".
std::string to_string(worker_trigger x);

using worker_phases = enum_set<worker_phase>;

/// Of the worker's table. A trigger without a row is ignored.
using worker_row = table_row<worker_phase, worker_trigger>;

/// A generation of a job.
struct job_generation {
  job_id job;
  generation number;

  friend auto operator<=>(const job_generation&, const job_generation&) = default;
};

/// How far training is in the generation that was activated last.
struct training_state {
  version at;
  std::uint64_t complete = no_step; ///< step whose gradients are complete, and not applied
  commit_result result;             ///< of the last exchange completed here
  bool voided = false;              ///< an apply threw: the stage's shards are worth nothing
  bool is_final = false;            ///< no step follows: it is the last, or validation does not get better
  bool wants_snapshot = false;      ///< one is due, and was put off
  std::int64_t at_ms = 0;           ///< now, since 1970
  /// From the last answer of the worker that the conductor waited for to begun(); below 0: not known.
  double began_ms = -1;
  std::uint64_t early_bytes = 0; ///< received before begun()
  double early_ms = 0;           ///< what that took
};

/// What the machine's carrier is to do.
namespace worker_effects {

/// Send this report to the conductor.
struct say {
  worker_report what;
};
/// Get memory and connections for a part, beside what goes on; then call connected() or not_connected().
struct connect {
  prepare plan;
};
/// End the part's communication: every wait for it ends.
struct cut {
  job_generation of;
};
/// Destroy all that there is of the part.
struct drop {
  job_generation of;
};
/// Send layers of the part's plan, or follow those that are sent to it, until its shards are moved; then call warmed(),
/// at once if nothing is sent to it, or not_fed().
struct warm {
  job_generation of;
};
/// Of the part's layers hold those that were followed, each at its version; then call kept_followed().
struct keep_followed {
  job_generation of;
};
/// Move shards as the part's plan says, all of version `at`; then call moved() or not_moved().
struct move {
  job_generation of;
  version at;
};
/// The part that trains, or trained, gives up what one generation alone can use (NCCL).
struct leave {};
/// Let the part train from this version on; then call begun() or step_failed(). The part before goes. Of its layers the
/// moments may still come: became_whole() is called before the part contributes to a step, and before begun() or
/// no_step_left() at the last version.
struct begin {
  job_generation of;
  version at;
  bool snapshot; ///< one is due
};
/// Ask all ranks to stop, in the next exchange.
struct ask_to_stop {
  job_generation of;
  bool snapshot; ///< and to send the version at which they stop to the keepers
};
/// Send a snapshot with the next commit at which no earlier one is on its way.
struct ask_for_snapshot {};
/// Wait until the device does nothing more for the part that trained, hold nothing of layers that are not whole; then
/// call settled().
struct settle {};
/// Apply the open step with this result; then call applied() or not_applied().
struct apply {
  commit_result result;
};
/// Drop the gradients of the open step.
struct drop_gradients {};
/// Send this rank's slice of its stage to the keepers, or the `whole` stage.
struct send_snapshot {
  commit_result result; ///< that made the version
  bool whole;
  bool steps_follow; ///< which share the links with it; else it is waited for
};
/// Report PROGRESS, if it is time for it or `surely` is set.
struct report_progress {
  bool surely;
};
/// Report all spans of the next steps.
struct trace {
  std::uint32_t steps;
};
/// Free the shards of these layers.
struct free_shards {
  std::vector<std::uint32_t> layers; ///< sorted
};
/// Have buffers ready for these layers of the job that was loaded, until a generation begins to train or the job is
/// over.
struct make_room {
  std::vector<std::uint32_t> layers;
};
/// Send snapshots to these keepers from now on.
struct use_keepers {
  protect what;
};
/// The job's keepers and data are not needed any more. What it was computed with went before.
struct forget_job {
  job_id job;
};

} // namespace worker_effects

using worker_effect =
    std::variant<worker_effects::say, worker_effects::connect, worker_effects::cut, worker_effects::drop,
                 worker_effects::warm, worker_effects::keep_followed, worker_effects::move, worker_effects::leave,
                 worker_effects::begin, worker_effects::ask_to_stop, worker_effects::ask_for_snapshot,
                 worker_effects::settle, worker_effects::apply, worker_effects::drop_gradients,
                 worker_effects::send_snapshot, worker_effects::report_progress, worker_effects::trace,
                 worker_effects::free_shards, worker_effects::make_room, worker_effects::use_keepers,
                 worker_effects::forget_job>;

/// A worker keeps what came of this number of steps at least, for a manager that was away meanwhile: 12 MiB.
inline constexpr std::uint64_t losses_kept = std::uint64_t{1} << 18;

/// Pure: no clock, thread, lock, tensor or socket. Its carrier (gpu/training, or the simulation) makes one call at a
/// time, of two kinds: what is "heard" cannot wait for the step in progress; all else comes in order, between two
/// steps. The effects that a call returns are done in their order, before the next call of the same kind. LOAD is not
/// the machine's.
class worker_machine {
public:
  using effects = std::vector<worker_effect>;

  explicit worker_machine(slot_id self) : self_(std::move(self)) {}
  worker_machine(const worker_machine&) = delete;

  // Heard. PREPARE is no more than that; other commands are taken in their order as well.

  effects hear(prepare x);
  effects hear(const worker_command& x);
  /// `checksum`: of the plan as it was understood.
  effects connected(const job_generation& of, std::uint64_t checksum);
  effects not_connected(const job_generation& of, failed why);

  // In their order.

  effects take(const worker_command& x);
  effects warmed(const job_generation& of, std::uint64_t bytes, double ms);
  effects not_fed(const job_generation& of, failure kind, std::string why);
  /// `held`: what is held now.
  effects kept_followed(const job_generation& of, inventory held);
  /// `held`: what is held now. Layers of which a part is missing are not.
  effects moved(const job_generation& of, inventory held);
  /// Shards that arrived are held.
  effects not_moved(const job_generation& of, failure kind, std::string why, inventory held);
  effects begun(const training_state& x);
  /// All its layers are held.
  effects became_whole(inventory held);
  /// `sums` is empty but in the last stage. `loss`: the mean that follows from those of all ranks.
  effects evaluated(const training_state& x, std::uint32_t first_replica, std::vector<double> sums, double loss);
  effects committed(const training_state& x);
  effects no_step_left(const training_state& x);
  effects drained(const training_state& x);
  /// Of a step, of an evaluation, or of what an effect needs.
  effects step_failed(const training_state& x, failure kind, std::string why);
  /// A step ended because its communication was cut.
  effects interrupted(const training_state& x);
  effects settled(inventory held);
  effects applied(const training_state& x);
  effects not_applied(const training_state& x, std::string why);

  /// A step is the next thing to do, unless there is something to be taken.
  bool trains() const { return current_.phase == worker_phase::running; }
  const inventory& held() const { return held_; }
  /// What came of the job's steps since it has a part in that.
  const loss_record& losses() const { return results_; }
  worker_phase phase_of(const job_generation& x) const {
    return next_.of == x && next_.is_there() ? next_.phase : current_.of == x ? current_.phase : worker_phase::absent;
  }

  static std::vector<worker_row> table();
  /// Called for each row taken, by its number and the phase it is taken from. For tests.
  std::function<void(std::size_t, worker_phase)> observe;

private:
  /// Its part in one generation.
  struct part {
    worker_phase phase = worker_phase::absent;
    job_generation of;
    bool is_rank = false;
    std::uint32_t first_layer = 0;         ///< of a rank's stage
    std::uint32_t last_layer = 0;          ///< one past
    std::optional<worker_report> answer{}; ///< to PREPARE, or why shards could not be moved; said when asked again
    std::optional<worker_report> warmth{}; ///< to WARM, once there is one
    bool was_told_warm = false;
    version base{}; ///< at which it begins; of ACTIVATE

    bool is_there() const { return phase != worker_phase::absent; }
    bool is(generation g) const { return is_there() && of.number == g; }
  };
  struct trigger {
    worker_trigger on;
    part& of;
    const worker_command* told; ///< the command, if it is one
    const failed* failure;      ///< why, if training failed

    template <class T>
    const T& as() const {
      return std::get<T>(*told);
    }
  };
  using row = machine_row<worker_phase, worker_trigger, bool (*)(const worker_machine&, const trigger&),
                          void (*)(worker_machine&, const trigger&)>;
  static const std::vector<row> rows;

  effects happens(part& of, worker_trigger on, const worker_command* told = nullptr);
  void take_row(part& of, const trigger& x);
  void on(part& of, worker_trigger what, const worker_command& told);
  void on_part_of(generation g, worker_trigger what, const worker_command& told);
  void take_one(const warm& x, const worker_command& told);
  void take_one(const stop& x, const worker_command& told);
  void take_one(const activate& x, const worker_command& told);
  void take_one(const abort_generation& x, const worker_command& told);
  void take_one(const decide& x, const worker_command& told);
  void take_one(const release& x, const worker_command& told);
  void take_one(const protect& x, const worker_command& told);
  void take_one(const trace_steps& x, const worker_command& told);
  void take_one(const forget& x, const worker_command& told);
  void take_one(const recall& x, const worker_command&);
  void take_one(const prepare&, const worker_command&) {} // was heard
  void take_one(const load&, const worker_command&) {}
  void end_older(generation than);
  void free_all_but(const std::vector<std::uint32_t>& keep);
  void free_stage();
  void free_followed();
  void learn(const training_state& x);
  void note_result();
  /// Those of another job are forgotten.
  loss_record& results_of(job_id job);
  /// The newest of what the conductor lacks, as a block; empty: nothing.
  std::vector<char> unrecorded() const;

  struct conditions;
  struct actions;
  friend struct worker_faults; // of tests, which run the machine with a row that is wrong

  const std::vector<row>* rules_ = &rows;
  const slot_id self_;
  part current_;          ///< of the generation activated last
  part next_;             ///< of the one prepared last
  job_generation newest_; ///< of the PREPAREs heard
  inventory held_;
  job_id stored_;              ///< whose shards these are
  job_generation followed_of_; ///< never began, and layers that went ahead to it are held:
  inventory followed_;         ///< these

  // Of current_.
  training_state state_;
  bool has_stopped_ = false;
  std::optional<failed> failure_;
  std::optional<parcae::evaluated> losses_; ///< the newest

  // Outlive generations.
  loss_record results_;
  job_id results_of_;           ///< whose these are
  std::uint64_t recorded_ = 0;  ///< steps of it that the journal has, as the conductor said
  job_id protected_;            ///< whose snapshots are taken by keepers; 0: none are
  version protected_at_;        ///< when they were named last
  bool wants_snapshot_ = false; ///< keepers have not been sent one since they were named, or it was put off
  effects effects_;             ///< of the call in progress
};

} // namespace parcae
