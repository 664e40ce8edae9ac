#pragma once

// The inside of class conductor. What happens in which phase is the table in transitions.cpp; here are its conditions,
// what a row does, and what a phase begins with. Sources: conductor.cpp (events), conductor_phases.cpp (what a phase
// begins with, and limits), conductor_deeds.cpp (what rows do), conductor_reports.cpp (what executors say),
// conductor_keepers.cpp (what keepers hold, and put on disk), conductor_end.cpp (the end of the job, or the manager).

#include "actors/conductor/change_log.hpp"
#include "actors/conductor/checkpoint_ledger.hpp"
#include "actors/conductor/conductor.hpp"
#include "actors/conductor/generations.hpp"
#include "actors/conductor/planning_desk.hpp"
#include "actors/conductor/protection.hpp"
#include "actors/conductor/roster.hpp"

#include <memory>
#include <set>
#include <utility>

namespace parcae {

/// Of a happening.
struct cause {
  std::string why = {};
  slot_id slot = {}; ///< of whom
  bool good = false; ///< the job is done
};

class conductor::machine final : public conductor {
public:
  machine(conducted_job job, observer observe);
  std::vector<effect> handle(time_point now, const conductor_event& x) override;
  std::optional<time_point> deadline() const override;
  standing where() const override { return {stand_.now, generations_.last, course_.steps_done()}; }
  job_view view() const override;
  std::vector<effect> last_will() override;
  std::string how_to_go_on() const override { return ledger_.how_to_go_on(); }
  bool writes(const slot_id& keeper) const override { return ledger_.needs(keeper); }
  bool can_go(const slot_id& slot) const override;

private:
  friend std::vector<transition> conductor::transitions();

  struct row {
    phases from;
    happening on;
    const char* condition; ///< for people; empty: always
    bool (machine::*holds)(const cause&) const;
    const char* does;                   ///< for people
    void (machine::*act)(const cause&); ///< before the next phase begins; may be null
    std::optional<phase> to;
  };

  static const std::vector<row> rows;

  struct stand {
    phase now = phase::waiting;
    std::set<slot_id> awaited;               ///< whose answer the phase waits for
    std::shared_ptr<const command> question; ///< to them
    std::optional<time_point> limit;         ///< of the phase
  };

  // The table.

  /// Takes the row for it, if there is one.
  bool happens(happening on, const cause& x = {});
  void enter(phase to);

  /// The job's steps, or those after which the present generation ended because validation did not get better. What
  /// becomes of the version at which one did is evaluated, and ended at, again.
  std::uint64_t final_steps() const { return early_end_.value_or(job_.specification.steps); }

  // Conditions.

  bool final_is_kept(const cause& = {}) const { return protection_.newest().steps == final_steps(); }
  bool final_is_gone(const cause&) const;
  bool nothing_fits(const cause&) const { return desk_.choice.width == 0; }
  bool too_few_are_left(const cause&) const;
  bool newer_may_return(const cause& = {}) const;
  bool some_may_be_dialling() const { return returning_until_ && now_ < *returning_until_; }
  bool keepers_may_hold_newer(const cause&) const;
  bool checkpoint_is_newer(const cause&) const;
  bool checkpoint_can_be_read(const cause&) const;
  bool checkpoint_is_lost(const cause&) const;
  bool change_pays(const cause&) const;
  bool is_final(const cause&) const { return generations_.current->stopped_at.steps == final_steps(); }
  bool next_is_good(const cause&) const { return generations_.next && generations_.next->good; }
  bool all_are_stopped(const cause&) const { return generations_.current->all_stopped(); }
  bool no_keeper(const cause& = {}) const { return !roster_.has_keepers(); }
  bool ends_before_change(const cause& x) const;
  bool is_of_change(const cause& x) const;
  bool is_participant(const cause& x) const { return ends_before_change(x) && generations_.takes_part(x.slot); }
  bool is_new_rank(const cause& x) const { return ends_before_change(x) && generations_.next->rank(x.slot); }
  bool others_take_over(const cause& x) const;
  bool outlasts_notice(const cause&) const;
  bool only_holder_is_awaited(const cause& = {}) const;
  bool keepers_are_to_be_asked(const cause&) const;
  bool holder_may_be_dialling(const cause&) const;
  bool nobody_is_awaited(const cause&) const { return stand_.awaited.empty(); }
  bool had_ended(const cause&) const { return !chain_.is_open(); }
  bool all_are_here(const cause&) const;
  bool each_stage_answered(const cause&) const;

  // What rows do. Those that only change a phase do nothing.

  void wait_for_anybody(const cause&);
  void wait_for_fit(const cause&);
  void wait_for_newer(const cause&);
  void wait_for_layers(const cause&);
  void ask_for_newer(const cause&);
  void read_checkpoint(const cause&);
  void fail_for_layers(const cause&);
  std::string missing_layers() const;
  void look_for_more(const cause& x);
  void plan_because(const cause& x) { desk_.because(x.why); }
  void ask_in_time(const cause&);
  void ask_again(const cause&);
  void begin_from_held(const cause&);
  void begin_beside(const cause&);
  void give_up(const cause& x);
  void give_up_late(const cause&);
  void give_up_for_notice(const cause& x);
  void spoil(const cause&) { generations_.next->good = false; }
  void clear(const cause& x);
  void clear_broken(const cause& x);
  void secure(const cause&);
  void note_prepared(const cause&) { changes_.mark(&change_record::prepared_ms, now_); }
  void note_ready(const cause&) { changes_.mark(&change_record::ready_ms, now_); }
  void note_active(const cause&) { changes_.activate(now_, generations_.last, generations_.current->grid.ranks()); }
  void end_with_final(const cause&);
  void end_generation(const cause&);
  void end_for_planning(const cause&);
  void abort(const cause& x);
  void abort_broken(const cause& x);
  void abort_stuck(const cause&);
  void abort_unstopped(const cause&);
  void abort_at_notice(const cause&) { abort({"the step outlasts the notice to those who alone hold a stage"}); }
  void ask_keepers(const cause&);
  void await_return(const cause&) { stand_.limit = returning_until_; }
  void decide_step(const cause&);
  void settle(const cause&);
  void decide_as_before(const cause&);
  void go_on(const cause&);
  void abort_unheard(const cause&) { abort({return_of_manager}); }
  void note_lost(const cause& x);
  void wait_longer(const cause&);
  void take_for_lost(const cause&);
  void leave_grid(const cause&) { generations_.on_grid = false; }
  void check_done(const cause& = {});
  void check_done_again(const cause&);
  void stop_for_good(const cause&) { desk_.because(end_of_manager); }
  void give_up_for_good(const cause&) { give_up({end_of_manager}); }
  void clear_for_good(const cause&) { clear({end_of_manager}); }
  void close_without_keeper(const cause&) { say_farewell({closing_text("there is no keeper")}); }
  void close_waiting(const cause&);
  void say_farewell(const cause& x);

  // What phases begin with.

  void begin_waiting();
  void begin_planning();
  void begin_running(phase from);
  void begin_stopping();
  void begin_activating();
  void begin_finishing();
  /// The phase ends when all of them have answered that are here and not excluded. Who was excluded after it said what
  /// it holds may hold the only copy.
  void ask(const std::set<slot_id>& whom, command what, milliseconds limit, bool excluded_too = false);
  /// While recovering: ranks of a generation that trains no more are not long waited for, once each stage has answered.
  void await_rest();
  /// What keepers last said may be old, and a manager that has just begun may not have heard it.
  void ask_all_keepers(generation about);
  /// Who comes while the phase waits is waited for as well.
  void ask_too(const slot_id& id);
  /// Whether the phase waits for answers to such a command.
  template <class Command>
  bool asks() const {
    return stand_.question && std::holds_alternative<Command>(*stand_.question);
  }
  /// One answer of the phase is in, or will never come.
  void answered(const slot_id& slot);

  // Effects.

  void send(const slot_id& to, command what) { send(to, std::make_shared<const command>(std::move(what))); }
  void send(const slot_id& to, std::shared_ptr<const command> what);
  void abort_next(); ///< g+1, at all its participants
  void log(severity level, std::string text) { effects_.push_back(log_line{level, std::move(text)}); }
  /// `before`: the effects that follow need not wait for it.
  void journal(std::string what, bool before = false) { effects_.push_back(record{memory(), std::move(what), before}); }
  job_memory memory() const;

  // Events.

  void on(const slot_joined& x);
  void on(const slot_leaving& x);
  void on(const slot_lost& x);
  void on(const slot_returned& x);
  void on(const slot_reported& x);
  void on(const plan_chosen& x);
  void on(const plan_wanted& x) { plan_soon(x.why); }
  void on(const checkpoint_wanted&);
  void on(const cancel_requested& x) { happens(happening::over, {x.why}); }
  void on(const manager_ends& x);
  void on(const tick&);
  /// So that a standstill shows that ends just after a limit.
  std::optional<time_point> next_beat() const;
  /// This process was stopped for a while: limits that passed meanwhile say nothing of others.
  void notice_standstill(time_point now);

  // Membership.

  /// To a worker: where its snapshots go.
  protect protect_message(const slot_id& of, bool now) const;
  /// To a keeper: generations up to the newest may send snapshots.
  guard guard_message() const { return {job_.id, snapshot_key_, generations_.newest, job_.specification}; }
  /// The set of keepers changed: snapshots go to those present, the first at the next commit. What they have not got of
  /// the newest version comes from the others meanwhile.
  void protect_all();
  void fill_keepers();
  /// If this life was lost before, or may have been a manager's that is no more: all that it may still be doing is
  /// ended, and what it holds is asked for. While recovering, or aborting, a rank is asked what the phase asks.
  bool take_back(const slot_id& id, slot_state& slot);
  bool is_recovered() const { return job_.memory.reserved != generation{}; }
  /// A slot is lost, or excluded as if lost.
  void missing(const slot_id& slot, const std::string& why);
  /// A slot failed or did not answer in time. It is asked for its inventory when its back-off is over.
  void exclude(const slot_id& id, const std::string& why, bool for_good = false);
  /// A participant of g+1 failed, or is late, beside a healthy g, of which it may be a rank: it trains on there.
  void refuse_new_place(const slot_id& id, const std::string& why);
  /// Asks those whose exclusion is over for their inventory; an answer ends it, no answer begins another.
  void ask_back();
  /// Without a generation, unless its own is being ended: only asks for the inventory.
  void ask_what_is_held(const slot_id& id);
  /// The job's data, before anything else.
  void ask_to_load(const slot_id& id, slot_state& slot, const char* arrival);
  void cannot_load(const slot_id& from, slot_state& slot, const std::string& why);

  // Planning.

  /// A reason to plan that waits a little for others, and for a change in progress.
  void plan_soon(const std::string& why);
  void ask_planner();
  platform_cost platform() const;
  /// The newest version held of every layer by those who are not excluded, or, `hoping`, may come back.
  version newest_held(bool hoping) const;
  /// Plans the change to the planner's choice at version `from`.
  void plan_next(const version& from);
  std::string trigger() const { return changes_.is_open() ? changes_.trigger() : desk_.trigger(); }

  // Time.

  /// From one commit to the next, with the evaluation that may be between; it takes no longer than training on as many
  /// samples.
  double longest_step_ms() const;
  milliseconds progress_limit() const;
  void watch_progress() { stand_.limit = now_ + progress_limit(); }
  /// When slots under notice that alone hold a stage have just the time left that moving it takes.
  std::optional<time_point> last_moment_to_move() const;
  /// While stopping, and others could take the stage over or keep it: makes that the limit of the phase, if it is
  /// earlier. ABORT is sent then.
  void watch_notices();
  bool can_be_moved() const { return roster_.usable() > 0 || roster_.has_keepers(); }
  /// While a generation trains: when those under notice have trained as long as they could. Only if there are keepers
  /// and no change that is about to move the stage away.
  std::optional<time_point> moment_to_secure() const;
  void first_commit();
  release release_for(const slot_id& id) const {
    return {generations_.current->g, generations_.current->layers_of(id)};
  }

  // Keepers.

  void update_protection();
  void confirm_to(const slot_id& keeper);
  void confirm_to_keepers();
  /// The most steps that can have been committed by now: what was reported, or what can be done in the time that the
  /// generation has had, ten times as fast as the fastest step. Reports may be late, and the manager slow or frozen:
  /// nothing is taken from them but that.
  std::uint64_t most_steps() const;
  /// Keepers that told of more are looked at again.
  void believe_again();
  void keeper_has_news(const slot_id& from);
  /// Nobody is left to train: what those under notice hold, and the keepers do not, goes to the keepers.
  void save_what_leaves();
  void say_what_finishing_waits_for();
  /// If one is due: of what has its copies, unless that is old by now or there is no time.
  void write_checkpoint(bool at_once = false);
  /// What is needed next may be another checkpoint, and what was read of this one is dropped for newer state.
  void forget_readings();
  void note_share(const std::optional<checkpoint_ledger::outcome>& x);

  // The end.

  /// The keepers write what they hold; what a step would make of it is worth nothing.
  void end_not_finite(const std::string& why);
  /// The next step towards the manager's end, after every event.
  void close();
  /// How far the job came, what of it is kept, and how to go on. `problem`: why not all is.
  std::string closing_text(const std::string& problem) const;

  // Reports.

  void hear(const slot_id& from, slot_state& slot, const loaded& x);
  void hear(const slot_id& from, slot_state&, const prepared& x);
  void hear(const slot_id& from, slot_state& slot, const stopped& x);
  void hear(const slot_id& from, slot_state& slot, const delivered& x);
  void hear(const slot_id& from, slot_state& slot, const ready& x);
  void hear(const slot_id& from, slot_state&, const active& x);
  void hear(const slot_id& from, slot_state& slot, const aborted& x);
  void hear(const slot_id& from, slot_state& slot, const decided& x);
  void hear(const slot_id& from, slot_state&, const progress& x);
  void hear(const slot_id&, slot_state&, const evaluated& x);
  void hear(const slot_id& from, slot_state& slot, const failed& x);
  void hear_unreachable(const slot_id& from, const slot_state& slot, const failed& x, const std::string& why);
  void hear(const slot_id& from, slot_state& slot, const kept& x);
  void hear(const slot_id& from, slot_state&, const checkpointed& x);
  void hear(const slot_id& from, slot_state& slot, const restored& x);
  void come_back(const slot_id& id, slot_state& slot);

  static constexpr const char* loading_data = "waiting for instances to load the data";
  static constexpr const char* end_of_manager = "the end of the manager";
  static constexpr const char* return_of_manager = "the return of the manager";

  const conducted_job job_;
  const secret_key snapshot_key_ = key_of(job_.secret, "snapshots", {job_.id.value});
  const observer observe_;
  time_point now_;
  std::vector<effect> effects_; ///< of the event being handled
  stand stand_;
  roster roster_;
  commit_chain chain_;
  generations generations_;
  planning_desk desk_;
  change_log changes_;
  training_course course_;
  protection protection_;
  checkpoint_ledger ledger_;
  std::optional<std::uint64_t> early_end_;        ///< by steps
  std::string problem_ = "waiting for instances"; ///< why the job waits or failed
  std::optional<time_point> closing_until_;       ///< the manager ends
  std::optional<time_point> returning_until_;     ///< those that a manager before had may still be dialling
};

} // namespace parcae
