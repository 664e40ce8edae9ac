#include "gpu/executor/worker_machine.hpp"

#include <algorithm>

// The table that a worker runs, its conditions and its actions.

namespace parcae {

using phase = worker_phase;
using namespace worker_effects;

struct worker_machine::conditions {
  /// The whole stage, at that version.
  static bool holds(const worker_machine& m, const part& of, const version& at) {
    for (auto layer = of.first_layer; layer < of.last_layer; ++layer)
      if (std::ranges::find(m.held_, layer_version{layer, at}) == m.held_.end())
        return false;
    return true;
  }

  static bool no_participant(const worker_machine&, const trigger& x) { return x.of.answer.has_value(); }
  static bool a_rank(const worker_machine&, const trigger& x) { return x.of.is_rank; }
  static bool no_rank(const worker_machine&, const trigger& x) { return !x.of.is_rank; }
  static bool last_version(const worker_machine& m, const trigger&) { return m.state_.is_final; }
  static bool to_stop_early(const worker_machine& m, const trigger&) {
    return m.state_.result.stop && !m.state_.is_final;
  }
  /// Of layers that went ahead of this part.
  static bool are_to_be_kept(const worker_machine&, const trigger& x) {
    return x.of.was_told_warm && x.as<abort_generation>().keeps_followed;
  }
  static bool are_kept_in_vain(const worker_machine& m, const trigger& x) {
    return !m.followed_.empty() && m.followed_of_.number == x.of.of.number && !x.as<abort_generation>().keeps_followed;
  }
  static bool step_is_open(const worker_machine& m, const trigger& x) {
    const auto step = x.as<parcae::decide>().result.step;
    return step != no_step && m.state_.complete == step && m.state_.at.steps == step;
  }
  static bool not_by_the_cut(const worker_machine&, const trigger& x) {
    return x.failure->kind != parcae::failure::communication;
  }
  /// The stage's shards are whole, of the version that was trained: no apply spoilt them, nor were others moved there
  /// since.
  static bool is_good(const worker_machine& m) { return holds(m, m.current_, m.state_.at); }
  static bool snapshot_wanted(const worker_machine& m, const trigger&) { return m.wants_snapshot_; }
  static bool whole_and_wanted(const worker_machine& m, const trigger& x) {
    return x.as<parcae::protect>().whole && is_good(m);
  }
  static bool last_and_whole(const worker_machine& m, const trigger&) { return m.state_.is_final && is_good(m); }
};

struct worker_machine::actions {
  static void say(worker_machine& m, worker_report x) { m.effects_.push_back(worker_effects::say{std::move(x)}); }
  static void do_it(worker_machine& m, worker_effect x) { m.effects_.push_back(std::move(x)); }

  static void answer(worker_machine& m, const trigger& x) {
    if (x.of.answer)
      say(m, *x.of.answer);
  }
  static void cut(worker_machine& m, const trigger& x) { do_it(m, worker_effects::cut{x.of.of}); }
  static void drop(worker_machine& m, const trigger& x) { do_it(m, worker_effects::drop{x.of.of}); }

  static void warm(worker_machine& m, const trigger& x) {
    x.of.was_told_warm = true;
    do_it(m, worker_effects::warm{x.of.of});
  }
  static void keep_followed(worker_machine& m, const trigger& x) {
    if (m.stored_ != x.of.of.job)
      m.free_all_but({});
    do_it(m, worker_effects::keep_followed{x.of.of});
  }
  static void free_followed(worker_machine& m, const trigger& x) {
    m.free_followed();
    aborted(m, x);
  }
  static void warmed(worker_machine& m, const trigger& x) {
    if (x.of.warmth)
      say(m, *x.of.warmth);
  }
  static void cut_and_answer(worker_machine& m, const trigger& x) {
    cut(m, x);
    answer(m, x);
  }

  /// The state is this part's from now on.
  static void move(worker_machine& m, const trigger& x) {
    const auto& told = x.as<activate>();
    m.end_older(told.next);
    auto& results = m.results_of(x.of.of.job);
    results.go_back(told.at.steps);
    if (!told.losses.empty())
      results.put(decode_loss_block(told.losses), told.at.steps);
    do_it(m, leave{});
    m.followed_.clear(); // they go with RELEASE, like others
    if (std::exchange(m.stored_, x.of.of.job) != x.of.of.job)
      m.free_all_but({});
    x.of.base = told.at;
    do_it(m, worker_effects::move{x.of.of, told.at});
  }

  static void begin(worker_machine& m, const trigger& x) {
    m.state_ = {};
    m.state_.at = x.of.base;
    m.protected_at_ = {};                                   // perhaps of another job
    m.recorded_ = std::min(m.recorded_, m.state_.at.steps); // what is computed again is not known
    m.has_stopped_ = false;
    m.failure_.reset();
    m.losses_.reset();
    do_it(m, worker_effects::begin{x.of.of, m.state_.at, m.wants_snapshot_});
  }
  static void active(worker_machine& m, const trigger& x) {
    say(m, parcae::active{x.of.of.number, m.state_.began_ms, m.state_.early_bytes, m.state_.early_ms});
  }
  static void active_and_secure(worker_machine& m, const trigger& x) {
    active(m, x);
    secure(m, x);
  }
  static void where_it_stands(worker_machine& m, const trigger& x) {
    active(m, x);
    if (m.losses_)
      say(m, *m.losses_);
    if (m.has_stopped_)
      stopped(m, x);
    else if (m.failure_)
      say(m, *m.failure_);
    else if (x.of.phase != phase::running) // by a manager that could not say what becomes of it
      say(m, failed{x.of.of.number, parcae::failure::communication, 0, "was told to abort it", m.held_});
  }

  static void ask_to_stop(worker_machine& m, const trigger& x) {
    do_it(m, worker_effects::ask_to_stop{x.of.of, x.as<stop>().snapshot});
  }
  static void stopped(worker_machine& m, const trigger& x) {
    m.has_stopped_ = true;
    say(m, parcae::stopped{x.of.of.number, m.state_.at, m.held_, m.state_.is_final, m.unrecorded()});
  }
  static void failure(worker_machine& m, const trigger&) { say(m, *m.failure_); }

  static void losses(worker_machine& m, const trigger&) { say(m, *m.losses_); }
  static void keep(worker_machine& m, const trigger&) {
    snapshot(m, m.state_.result, false, !m.state_.is_final && !m.state_.result.stop);
    m.wants_snapshot_ |= m.state_.wants_snapshot; // also if this generation ends before it can be taken
    do_it(m, report_progress{m.state_.is_final || m.state_.result.stop});
  }
  static void keep_and_stop(worker_machine& m, const trigger& x) {
    keep(m, x);
    stopped(m, x);
  }
  static void secure_and_stop(worker_machine& m, const trigger& x) {
    const auto& last = m.state_.result;
    if (m.wants_snapshot_ || m.protected_at_ == m.state_.at || !last.snapshot || last.step + 1 != m.state_.at.steps)
      secure(m, x); // keepers were named after the last commit, or it did not go to them
    stopped(m, x);
  }
  static void fail(worker_machine& m, const trigger& x) {
    if (m.state_.voided) {
      m.free_stage();
      m.state_.complete = no_step; // DECIDE shall not apply it
      do_it(m, drop_gradients{});
    }
    m.failure_ = *x.failure;
    m.failure_->held = m.held_;
    say(m, *m.failure_);
  }

  static void aborted(worker_machine& m, const trigger& x) {
    parcae::aborted answer{x.of.of.number, {}, no_step, {}, m.held_, m.unrecorded()};
    if (x.of.is_rank) // it may hold its stage already, without having begun to train
      for (const auto& held : m.held_)
        if (held.layer == x.of.first_layer && conditions::holds(m, x.of, held.at))
          answer.at = held.at;
    say(m, std::move(answer));
  }
  static void aborted_and_drop(worker_machine& m, const trigger& x) {
    aborted(m, x);
    drop(m, x); // after the answer: its preparation may take long to end
  }
  static void settle(worker_machine& m, const trigger&) { do_it(m, worker_effects::settle{}); }
  static void last_word(worker_machine& m, const trigger& x) {
    if (m.losses_)
      say(m, *m.losses_);
    parcae::aborted answer{x.of.of.number, {}, no_step, m.state_.result, m.held_, m.unrecorded()};
    if (conditions::is_good(m)) {
      answer.at = m.state_.at;
      answer.complete = m.state_.complete;
    }
    say(m, std::move(answer));
  }

  static void apply(worker_machine& m, const trigger& x) { do_it(m, worker_effects::apply{x.as<decide>().result}); }
  static void drop_step(worker_machine& m, const trigger& x) {
    m.state_.complete = no_step;
    do_it(m, drop_gradients{});
    decided(m, x);
  }
  static void decided(worker_machine& m, const trigger& x) { say(m, parcae::decided{x.of.of.number, m.held_}); }
  static void keep_applied(worker_machine& m, const trigger& x) {
    snapshot(m, m.state_.result, false, false);
    decided(m, x);
  }
  static void fail_and_decided(worker_machine& m, const trigger& x) {
    fail(m, x);
    decided(m, x);
  }

  static void trace(worker_machine& m, const trigger& x) {
    do_it(m, worker_effects::trace{std::min(x.as<trace_steps>().steps, trace_steps::most)});
  }

  static void ask_for_snapshot(worker_machine& m, const trigger&) { do_it(m, worker_effects::ask_for_snapshot{}); }
  static void secure(worker_machine& m, const trigger&) { final_state(m, false); }
  static void secure_whole(worker_machine& m, const trigger&) { final_state(m, true); }

  /// There will be no further commit to send a snapshot at.
  static void final_state(worker_machine& m, bool whole) {
    auto result = m.state_.result;
    result.step = m.state_.at.steps - 1;
    result.snapshot = true;
    snapshot(m, result, whole, false);
  }
  static void snapshot(worker_machine& m, const commit_result& result, bool whole, bool steps_follow) {
    if (!result.snapshot || m.protected_ == job_id{})
      return;
    m.wants_snapshot_ = false;
    do_it(m, send_snapshot{result, whole, steps_follow});
  }
};

// clang-format off
const std::vector<worker_machine::row> worker_machine::rows = [] {
  using enum worker_phase;
  using enum worker_trigger;
  using c = conditions;
  using a = actions;
  return std::vector<row>{
    {absent, prepare_heard, "it is no participant", c::no_participant, "FAILED", a::answer, unprepared},
    {absent, prepare_heard, "", nullptr, "allocates, connects", nullptr, preparing},
    // The manager that asked first may be gone, with the answer.
    {{prepared, warming, unprepared, moving, delivered, unmoved}, prepare_heard, "", nullptr, "the answer again", a::answer, {}},
    {preparing, connected, "", nullptr, "PREPARED", a::answer, prepared},
    {preparing, not_connected, "", nullptr, "FAILED", a::answer, unprepared},

    // Between two steps, of whose versions it may send; that it prepared beside them says PREPARED.
    {prepared, worker_trigger::warm, "", nullptr, "sends or follows layers", a::warm, warming},
    {warming, worker_trigger::warm, "", nullptr, "WARMED, if that was said", a::warmed, {}},
    {warming, followed, "", nullptr, "WARMED", a::warmed, {}},
    {warming, not_fed, "", nullptr, "cuts its connections; FAILED", a::cut_and_answer, unprepared},

    {{prepared, warming}, activate, "", nullptr, "the generation before goes; moves shards", a::move, moving},
    {unmoved, activate, "", nullptr, "FAILED", a::answer, {}},
    {moving, moved, "a rank", c::a_rank, "begins to train", a::begin, running},
    {moving, moved, "", nullptr, "", nullptr, delivered},
    {moving, not_moved, "", nullptr, "FAILED", a::answer, unmoved},

    // Cutting ends what waits for a peer; only then is there an answer.
    {{preparing, prepared, warming, unprepared, moving, delivered, unmoved}, abort_heard, "", nullptr, "cuts its connections", a::cut, cut},
    {cut, abort, "layers that went ahead are to be kept", c::are_to_be_kept, "holds what it followed", a::keep_followed, {}},
    {cut, settled, "", nullptr, "ABORTED", a::aborted_and_drop, absent},
    {cut, abort, "", nullptr, "ABORTED", a::aborted_and_drop, absent},
    // The generation that trains goes on, of which they are no version any more.
    {absent, abort, "layers that went ahead were kept in vain", c::are_kept_in_vain, "frees them; ABORTED", a::free_followed, {}},
    {absent, abort, "", nullptr, "ABORTED", a::aborted, {}},

    // No commit will come that a snapshot could be sent with.
    {running, begun, "at the last version", c::last_version, "ACTIVE; its state goes to the keepers", a::active_and_secure, {}},
    {running, begun, "", nullptr, "ACTIVE", a::active, {}},
    // Said again, by a manager that came back: at once, and between two steps what it may have missed.
    {running, activate_heard, "", nullptr, "ACTIVE", a::active, {}},
    {{running, stopped, broken, aborting, aborted}, activate, "", nullptr, "ACTIVE, and its last word again", a::where_it_stands, {}},

    // What was done when ABORT was heard counts; so does a commit.
    {{running, aborting}, evaluated, "", nullptr, "EVALUATED", a::losses, {}},
    // The bit came with the commit exchange, so all ranks stop behind the same step.
    {running, committed, "a rank asked to stop, and steps are left", c::to_stop_early, "snapshot; PROGRESS; STOPPED", a::keep_and_stop, stopped},
    {{running, aborting}, committed, "", nullptr, "snapshot, if it is time; PROGRESS", a::keep, {}},
    {running, no_step_left, "", nullptr, "its state goes to the keepers, if they lack it; STOPPED", a::secure_and_stop, stopped},
    // Of a job that serves: stage 0 heard STOP, and said so behind all rows that it took.
    {running, drained, "", nullptr, "STOPPED", a::stopped, stopped},
    {{running, stopped}, step_failed, "", nullptr, "voids what an apply spoilt; FAILED", a::fail, broken},
    // That a step fails by the cut is what the cut is for.
    {aborting, step_failed, "not for want of its connections", c::not_by_the_cut, "voids what an apply spoilt; FAILED", a::fail, {}},

    {running, stop_heard, "", nullptr, "sets its stop bit", a::ask_to_stop, {}},
    // It was heard before ACTIVATE was done.
    {running, stop, "", nullptr, "sets its stop bit", a::ask_to_stop, {}},
    {stopped, stop, "", nullptr, "STOPPED", a::stopped, {}},
    {broken, stop, "", nullptr, "FAILED", a::failure, {}},

    {running, abort_heard, "", nullptr, "cuts its connections", a::cut, aborting},
    // A peer may wait for it.
    {{stopped, broken, aborted}, abort_heard, "", nullptr, "cuts its connections", a::cut, {}},
    // What came whole counts, what else was on its way does not.
    {{stopped, broken, aborting, aborted}, abort, "", nullptr, "waits for the device, drops what is not whole", a::settle, {}},
    {{stopped, broken, aborting, aborted}, settled, "", nullptr, "ABORTED", a::last_word, aborted},
    // Said again, it finds that its step is open no more.
    {{stopped, broken, aborted}, decide, "its step is open here", c::step_is_open, "applies it", a::apply, {}},
    {{stopped, broken, aborted}, decide, "", nullptr, "drops its gradients; DECIDED", a::drop_step, {}},
    {{absent, preparing, prepared, warming, unprepared, moving, delivered, unmoved, cut, running, aborting},
     decide, "", nullptr, "DECIDED", a::decided, {}},
    {{stopped, broken, aborted}, applied, "", nullptr, "snapshot, if it is time; DECIDED", a::keep_applied, {}},
    {{stopped, broken, aborted}, not_applied, "", nullptr, "voids the stage; FAILED; DECIDED", a::fail_and_decided, broken},

    // Its ABORT never came.
    {running, superseded, "", nullptr, "cuts its connections", a::cut, aborted},
    {{stopped, broken, aborting, aborted}, left_behind, "", nullptr, "all of it goes", a::drop, absent},
    // Its part in the change is over.
    {{preparing, prepared, warming, unprepared, moving, delivered, unmoved, cut}, released, "no rank", c::no_rank, "all of it goes", a::drop, absent},
    {{cut, stopped, broken, aborting, aborted}, forget, "", nullptr, "all of it goes", a::drop, absent},

    {running, trace, "", nullptr, "reports spans of the next steps", a::trace, {}},

    {running, protect, "a snapshot is due", c::snapshot_wanted, "one with the next commit", a::ask_for_snapshot, {}},
    // Else each replica of a stage sends a slice, and others may be gone.
    {{stopped, broken, aborting, aborted}, protect, "the whole stage is asked for, and is good", c::whole_and_wanted,
     "it goes to the keepers", a::secure_whole, {}},
    {{stopped, broken, aborted}, protect, "at the last version, and that is good", c::last_and_whole, "its state goes to the keepers", a::secure, {}},
  };
}();
// clang-format on

} // namespace parcae
