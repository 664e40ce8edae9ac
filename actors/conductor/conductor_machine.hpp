#pragma once

// The inside of class conductor. What happens in which phase is the table: its rows stand by phase, with their
// conditions and actions and what their phases begin with, in seeking.cpp (recovering, waiting, planning), changing.cpp
// (preparing, readying, warming, clearing, activating), training.cpp (running, stopping), ending.cpp (aborting,
// deciding) and finishing.cpp. The rest knows no phase: conductor.cpp (events, and how the table is run),
// membership.cpp (who comes, goes, and is excluded), reports.cpp (what is learnt of reports), keepers.cpp (what keepers
// hold, and put on disk), serving.cpp (what is other where a job serves).

#include "actors/conductor/change_log.hpp"
#include "actors/conductor/checkpoint_ledger.hpp"
#include "actors/conductor/conductor.hpp"
#include "actors/conductor/generations.hpp"
#include "actors/conductor/planning_desk.hpp"
#include "actors/conductor/protection.hpp"
#include "actors/conductor/recollection.hpp"
#include "actors/conductor/roster.hpp"
#include "actors/conductor/service.hpp"

#include <memory>
#include <set>
#include <utility>

namespace parcae {

class conductor::machine final : public conductor {
public:
  machine(conducted_job job, observer observe);
  std::vector<effect> handle(time_point now, const conductor_event& x) override;
  std::optional<time_point> deadline() const override;
  standing where() const override { return {phase_.now, generations_.last, course_.steps_done()}; }
  const loss_record& losses() const override { return losses_.known(); }
  job_view view() const override;
  std::vector<effect> last_will() override;
  std::string how_to_go_on() const override { return ledger_.how_to_go_on(); }
  bool writes(const slot_id& keeper) const override { return ledger_.needs(keeper); }
  bool can_go(const slot_id& slot) const override;

private:
  friend std::vector<transition> conductor::transitions();

  using row =
      machine_row<phase, trigger_kind, bool (machine::*)(const trigger&) const, void (machine::*)(const trigger&)>;

  struct phase_state {
    phase now = phase::waiting;
    std::set<slot_id> awaited;                                     ///< whose answer the phase waits for
    std::shared_ptr<const command> question;                       ///< to them
    std::optional<time_point> limit;                               ///< of the phase
    std::set<std::pair<std::string, std::uint32_t>> prolonged_for; ///< instances and slots, since it was set
    /// Why the job waits or failed; of phases before, too, until it is over.
    std::string problem = "waiting for instances";
  };

  /// What a manager's life means for the job.
  struct manager_life {
    std::optional<time_point> ends_at;         ///< the job stops before
    std::optional<time_point> returning_until; ///< those that a manager before had may still be dialling
  };

  // The table.

  static std::vector<row> recovering_rows();
  static std::vector<row> waiting_rows();
  static std::vector<row> planning_rows();
  static std::vector<row> changing_rows();
  static std::vector<row> beside_rows(); ///< of readying and warming
  static std::vector<row> training_rows();
  static std::vector<row> stopping_rows(); ///< with what is so while warming, too
  static std::vector<row> ending_rows();
  static std::vector<row> finishing_rows();
  static std::vector<row> common_rows();
  static const std::vector<row>& table(); ///< all of these, in order
  /// Takes the row for it. Null: there is none.
  const row* happens(const trigger& x);
  void enter(phase to);
  const phase_facts& facts() const { return facts_of(phase_.now); }

  // Conditions that several phases have.

  bool final_is_kept(const trigger& = {}) const { return protection_.newest().steps == final_steps(); }
  /// What came of its evaluation is known, too, if that is due: else somebody has to evaluate it, but for a manager
  /// that ends.
  bool final_is_settled(const trigger& = {}) const;
  bool final_is_gone(const trigger&) const;
  bool is_final(const trigger&) const { return generations_.current->stopped_at.steps == final_steps(); }
  bool no_keeper(const trigger& = {}) const { return !roster_.has_keepers(); }
  bool had_ended(const trigger& = {}) const { return !chain_.is_open(); }
  bool has_place(const trigger& x) const { return generations_.has_place(x.slot); }
  bool of_current(const trigger& x) const { return generations_.is_current(std::get<aborted>(*x.said).current); }
  bool of_next(const trigger& x) const { return generations_.is_next(std::get<aborted>(*x.said).current); }
  bool next_is_good(const trigger&) const { return generations_.next && generations_.next->good; }
  bool ends_before_change(const trigger& x) const;
  bool is_participant(const trigger& x) const { return ends_before_change(x) && generations_.takes_part(x.slot); }
  bool only_holder_is_awaited(const trigger& = {}) const;
  bool some_may_be_dialling() const { return manager_.returning_until && now_ < *manager_.returning_until; }

  // Actions that several phases have.

  void note_answer(const trigger& x) { answered(x.slot); }
  void note_answer_of_rank(const trigger& x);
  void note_aborted(const trigger& x);
  void note_lost(const trigger& x);
  void take_for_lost(const trigger&);
  void ask_too(const trigger& x);
  void plan_because(const trigger& x) { desk_.because(x.why); }
  void note_prepared(const trigger&) { changes_.mark(&change_status::prepared_ms, now_); }
  void abort(const trigger& x);
  void abort_broken(const trigger& x);
  void end_with_final(const trigger&);
  void end_for_planning(const trigger&);
  void say_farewell(const trigger& x);

  // Seeking: recovering, waiting, planning.

  bool nobody_came_before(const trigger&) const { return !phase_.limit; }
  bool of_ended(const trigger& x) const { return had_ended() && of_current(x); }
  bool of_none(const trigger& x) const { return std::get<aborted>(*x.said).current == generation{}; }
  bool may_train(const trigger&) const { return !had_ended(); }
  bool all_are_here(const trigger&) const;
  bool each_stage_answered(const trigger& = {}) const;
  bool rest_is_not_needed(const trigger&) const;
  bool all_train(const trigger&) const;
  bool may_be_moving(const trigger&) const;
  bool nobody_is_usable(const trigger&) const { return roster_.usable() == 0; }
  bool is_reading(const trigger& x) const { return roster_.find(x.slot)->reading && phase_.limit; }
  bool saving_is_open(const trigger&) const { return protection_.saving() > protection_.newest(); }
  bool nothing_fits(const trigger&) const { return desk_.choice.width == 0; }
  bool too_few_are_left(const trigger& = {}) const;
  bool newer_may_return(const trigger&) const;
  bool keepers_may_hold_newer(const trigger&) const;
  bool checkpoint_is_newer(const trigger&) const;
  bool checkpoint_can_be_read(const trigger&) const;
  bool checkpoint_is_lost(const trigger&) const;

  void begin_waiting();
  void begin_planning();

  void await_ranks(const trigger&) { phase_.limit = now_ + job_.options.return_limit; }
  void repeat_question(const trigger& x) { send(x.slot, phase_.question); }
  void wait_less_for_return(const trigger&);
  void note_broken(const trigger&);
  void await_state(const trigger&);
  /// By when ranks that are back have the state that was under way.
  time_point end_of_moving() const;
  void decide_as_before(const trigger&);
  void go_on(const trigger&);
  void abort_unheard(const trigger& x) { abort({x.kind, {}, return_of_manager}); }
  void say_loading(const trigger&) { phase_.problem = loading_data; }
  void look_for_more(const trigger& x);
  void look_again(const trigger&) { plan_soon(desk_.trigger()); }
  void save_again(const trigger&);
  void wait_for_reading(const trigger&);
  void fill_others(const trigger&) { fill_keepers(); }
  void note_read(const trigger& x);
  void note_last_read(const trigger& x);
  void close_waiting(const trigger&);
  void wait_for_anybody(const trigger&);
  void wait_for_fit(const trigger&);
  void wait_for_newer(const trigger&);
  void ask_for_newer(const trigger&);
  void read_checkpoint(const trigger&);
  void fail_for_layers(const trigger& x);
  void wait_for_layers(const trigger&);
  std::string missing_layers() const;
  void begin_from_held(const trigger&);
  void ask_again(const trigger& = {});
  /// Nobody is left to train: what those under notice hold, and the keepers do not, goes to the keepers.
  void save_what_leaves();
  /// What is needed next may be another checkpoint, and what was read of this one is dropped for newer state.
  void forget_readings();

  // Changing: preparing, readying, warming, clearing, activating.

  bool is_another_plan(const trigger& x) const;
  bool is_new_rank(const trigger& x) const { return ends_before_change(x) && generations_.next->rank(x.slot); }
  bool is_of_change(const trigger& x) const;
  bool goes_ahead(const trigger&) const { return generations_.next->feed_ms.has_value(); }
  bool fails_by_itself(const trigger& x) const { return std::get<failed>(*x.said).kind != failure::communication; }
  bool all_are_stopped(const trigger&) const { return generations_.current->all_stopped(); }

  void begin_preparing();
  void begin_warming();
  void begin_clearing();
  void begin_activating();

  void exclude_for_plan(const trigger& x);
  void exclude_younger(const trigger& x);
  void refuse_younger(const trigger& x);
  void refuse_place(const trigger& x);
  void spoil_and_refuse(const trigger& x);
  void give_up(const trigger& x);
  void give_up_broken(const trigger& x);
  void give_up_late(const trigger& x);
  void move_rest(const trigger& x);
  void note_warm(const trigger&);
  /// What layers of a plan that go ahead take; none: it is not worth it, the link does not keep up, or there is no
  /// memory for it.
  std::optional<double> feed_ms(const change_plan& plan) const;
  bool has_room_to_feed(const change_plan& plan) const;
  void give_up_for_notice(const trigger& x);
  void give_up_for_good(const trigger& x) { give_up({x.kind, {}, end_of_manager}); }
  void clear(const trigger& x);
  void clear_broken(const trigger& x);
  void clear_for_good(const trigger& x) { clear({x.kind, {}, end_of_manager}); }
  activate activation() const; ///< of the present generation: who has done it says so, or does nothing
  void note_begun(const trigger& x);
  void note_active(const trigger&);
  void abort_next(bool keeps = false); ///< g+1, at all; `keeps`: what went ahead counts, as g may be over, too
  void free_ahead();                   ///< g goes on
  /// Plans the change to the planner's choice at version `from`.
  void plan_next(const version& from);

  // Training: running, stopping.

  bool change_pays(const trigger&) const;
  bool outlasts_notice(const trigger&) const;

  void begin_running();
  void begin_stopping();

  /// Whether it is of a newer version than was known.
  bool learn_steps(const trigger& x);
  void note_progress(const trigger& x) { learn_steps(x); }
  void note_progress_in_time(const trigger& x);
  void watch_progress(const trigger& = {});
  void release_rest(const trigger& = {});
  void ask_in_time(const trigger&);
  void begin_beside(const trigger&);
  void secure(const trigger&);
  void spoil(const trigger&) { generations_.next->good = false; }
  bool lacks_source(const trigger&) const;
  void wait_less_for_source(const trigger&);
  void abort_for_source(const trigger& x);
  void watch_notices(const trigger&);
  void stop_for_good(const trigger&) { desk_.because(end_of_manager); }
  void close_without_keeper(const trigger& x);
  void abort_stuck(const trigger& x);
  void abort_unstopped(const trigger& x);
  void abort_at_notice(const trigger& x);
  void end_generation(const trigger&);
  /// From one commit to the next, with the evaluation that may be between; it takes no longer than training on as many
  /// samples.
  double longest_step_ms() const;
  milliseconds progress_limit() const;
  /// That, and in the first step what moments may take.
  milliseconds step_limit() const;
  /// When slots under notice that alone hold a stage have just the time left that moving it takes.
  std::optional<time_point> last_moment_to_move() const;
  data_token token_for(generation g) const { return token_of(job_.secret, "generation", {job_.id.value, g.value}); }
  /// What has to be over by a moment is given so long.
  static milliseconds moving(double ms);
  bool can_be_moved() const { return roster_.usable() > 0 || roster_.has_keepers(); }
  /// While a generation trains: when those under notice have trained as long as they could. Only if there are keepers
  /// and no change that is about to move the stage away.
  std::optional<time_point> moment_to_secure() const;

  // Ending: aborting, deciding.

  bool is_of_manager_before(const trigger& x) const { return !x.known; }
  bool keepers_were_asked(const trigger&) const { return generations_.current->keepers_asked; }
  bool keepers_are_to_be_asked(const trigger&) const;
  bool holder_may_be_dialling(const trigger&) const;
  bool nobody_is_awaited(const trigger&) const { return phase_.awaited.empty(); }

  void begin_aborting();
  void begin_deciding();

  void ask_last_word(const trigger& x) { send(x.slot, abort_generation{generations_.current->g}); }
  void wait_less_for_rest(const trigger& x);
  void wait_longer(const trigger&);
  void ask_keepers(const trigger&);
  void await_return(const trigger&) { phase_.limit = manager_.returning_until; }
  /// What becomes of the open step, by what was said.
  step_decision decision() const;
  /// Nobody who has said where it stands will apply the step that is decided on.
  bool nobody_applies(const trigger&) const;
  /// The end of g goes into the journal; `waits`: what follows waits for that.
  void end_by(const step_decision& decision, bool waits);
  void decide_step(const trigger&) { end_by(decision(), true); }
  void decide_untold(const trigger& x);
  void note_decided(const trigger& x);
  void settle(const trigger&);

  // Finishing.

  bool others_take_over(const trigger& x) const;

  void begin_finishing();
  void begin_ended() { generations_.on_grid = false; }

  void leave_grid(const trigger&) { generations_.on_grid = false; }
  void check_done(const trigger& = {});
  void check_done_again(const trigger&);
  void recall_from_all();
  bool awaits_losses(const trigger& = {}) const;
  void note_recalled(const trigger& x);
  void note_all_recalled(const trigger&);
  void tell_of_disk(const trigger& x);
  /// The job's steps, or those after which the present generation ended because validation did not get better. What
  /// becomes of the version at which one did is evaluated, and ended at, again.
  std::uint64_t final_steps() const { return generations_.early_end.value_or(job_.specification.steps); }
  void say_what_finishing_waits_for();
  /// The keepers write what they hold; what a step would make of it is worth nothing.
  void end_not_finite(const std::string& why);
  /// The next step towards the manager's end, after every event.
  void close();
  /// How far the job came, what of it is kept, and how to go on. `problem`: why not all is.
  std::string closing_text(const std::string& problem) const;

  // What phases ask, and are answered.

  /// The phase ends when all of them have answered that are here and not excluded. Who was excluded after it said what
  /// it holds may hold the only copy.
  void ask(const std::set<slot_id>& whom, command what, milliseconds limit, bool excluded_too = false);
  std::set<slot_id> keepers_in_use() const; ///< what they last said may be old, or be said to a manager before
  void wait_until(time_point limit);
  /// Who comes now has time to answer, once: the phase must not stay open for who comes again and again.
  void prolong_for(const slot_id& slot);
  /// One answer of the phase is in, or will never come.
  void answered(const slot_id& slot);

  // Effects.

  void send(const slot_id& to, command what) {
    send(to, std::make_shared<const command>(with_recorded(std::move(what))));
  }
  /// STOP and ABORT say which steps need not be told of.
  command with_recorded(command what) const;
  void send(const slot_id& to, std::shared_ptr<const command> what);
  void log(severity level, std::string text) { effects_.push_back(log_line{level, std::move(text)}); }
  /// `before`: the effects that follow need not wait for it.
  void persist(std::string what, bool before = false) {
    effects_.push_back(record{durable(), std::move(what), before});
  }
  durable_state durable() const;

  // Events.

  void on(const slot_joined& x);
  void on(const slot_leaving& x);
  void on(const slot_lost& x);
  void on(const slot_returned& x);
  void on(const slot_reported& x);
  void on(const plan_chosen& x);
  void on(const plan_wanted& x) { plan_soon(x.why); }
  void on(const checkpoint_wanted&);
  void on(const cancel_requested& x) { happens({trigger_kind::over, {}, x.why}); }
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
  guard guard_message() const { return {job_.id, protection_.key(), generations_.newest, job_.specification}; }
  release release_for(const slot_id& id) const;
  void send_release(const slot_id& id, slot_state& slot); ///< what goes with it does not count from now on
  /// If this life was lost before, or may have been a manager's that is no more: all that it may still be doing is
  /// ended, and what it holds is asked for; or, if the phase has a row for that, it is asked what that says.
  bool take_back(const slot_id& id, slot_state& slot);
  bool is_recovered() const { return job_.durable.reserved != generation{}; }
  /// A slot is lost, or excluded as if lost.
  void missing(const slot_id& slot, const std::string& why);
  /// A slot failed or did not answer in time. It is asked for its inventory when its back-off is over.
  void exclude(const slot_id& id, const std::string& why, bool for_good = false);
  /// A participant of g+1 failed, or is late, beside a healthy g, of which it may be a rank: it trains on there.
  void refuse_new_place(const slot_id& id, const std::string& why);
  /// Asks those whose exclusion is over for their inventory; an answer ends it, no answer begins another.
  void ask_back();
  void ask_what_is_held(const slot_id& id);
  void come_back(const slot_id& id, slot_state& slot);
  /// The job's data, before anything else.
  void ask_to_load(const slot_id& id, slot_state& slot, const char* arrival);
  void cannot_load(const slot_id& from, slot_state& slot, const std::string& why);

  // Planning.

  /// A reason to plan that waits a little for others, and for a change in progress.
  void plan_soon(const std::string& why);
  situation known() const;
  void ask_planner();
  platform_cost platform() const;
  /// The newest version held of every layer by those who are not excluded, or, `hoping`, may come back.
  version newest_held(bool hoping) const;
  /// A worker that holds nothing which the keepers have not.
  bool takes_nothing_along(const slot_id& id) const;
  /// What the change in progress, or the one to be planned, is for.
  std::string reason() const { return changes_.is_open() ? changes_.trigger() : desk_.trigger(); }

  // Keepers.

  /// The set of keepers changed: snapshots go to those present, the first at the next commit. What they have not got of
  /// the newest version comes from the others meanwhile.
  void protect_all();
  bool share_layers(); ///< among the keepers, anew; true if others are to have them
  void fill_keepers();
  void update_protection();
  void confirm_to(const slot_id& keeper);
  void confirm_to_keepers();
  /// The most steps that can have been committed by now: what was reported, or what can be done in the time that the
  /// generation has had, ten times as fast as the fastest step. Reports may be late, and the manager slow or frozen:
  /// nothing is taken from them but that.
  std::uint64_t max_steps() const;
  /// Keepers that told of more are looked at again.
  void believe_again();
  void keeper_has_news(const slot_id& from);
  /// If one is due: of what has its copies, unless that is old by now or there is no time.
  void write_checkpoint(bool at_once = false);
  void note_share(const std::optional<checkpoint_ledger::outcome>& x);

  // Reports: what is learnt of them in any phase; then the table has its say.

  void hear(const slot_id& from, slot_state& slot, const loaded& x, const report& said);
  void hear(const slot_id& from, slot_state& slot, const prepared& x, const report& said);
  void hear(const slot_id& from, slot_state&, const warmed& x, const report& said);
  void hear(const slot_id& from, slot_state& slot, const stopped& x, const report& said);
  void hear(const slot_id& from, slot_state&, const active& x, const report& said);
  void hear(const slot_id& from, slot_state& slot, const aborted& x, const report& said);
  void hear(const slot_id& from, slot_state& slot, const decided& x, const report& said);
  std::string problem_of(const progress& x) const;
  void hear(const slot_id& from, slot_state&, const progress& x, const report& said);
  void hear(const slot_id&, slot_state&, const evaluated& x, const report& said);
  void hear(const slot_id&, slot_state&, const traced&, const report&) {} // for people
  void hear(const slot_id& from, slot_state& slot, const failed& x, const report& said);
  void hear_unreachable(const slot_id& from, const slot_state& slot, const failed& x, const std::string& why);
  void hear(const slot_id& from, slot_state& slot, const kept& x, const report& said);
  void hear(const slot_id& from, slot_state&, const checkpointed& x, const report& said);
  void hear(const slot_id& from, slot_state& slot, const restored& x, const report& said);
  void hear(const slot_id& from, slot_state&, const recalled& x, const report& said);
  void hear(const slot_id& from, slot_state&, const served& x, const report& said);
  void hear(const slot_id&, slot_state&, const routed&, const report&) {} // of no slot that is in the roster

  // Serving.

  void tell_gateways();                   ///< who serves now, unless they were told
  bool learn_service(const trigger& x);   ///< true: all ranks have said that they are there since that was true last
  bool serves_on(const trigger& x) const; ///< a pipeline does that is not this slot's
  void lose_pipeline(const trigger& x);
  void lose_pipeline_and_change(const trigger& x);
  void lose_stopping(const trigger& x);
  void lose_activating(const trigger& x);
  void lose_unawaited(const trigger& x);
  bool has_part(const trigger& x) const { return !generations_.current->gone.contains(x.slot); }
  bool may_serve(const trigger& x) const { return job_.specification.serves() && may_train(x); }
  bool some_serve(const trigger&) const;
  void serve_by_some(const trigger& x);
  bool is_whole(const slot_id& rank) const;       ///< its pipeline is
  bool has_answered(const slot_id& rank) const;   ///< its pipeline has, all of it
  void cut_pipeline(const trigger& x);            ///< its ranks have no part in g any more
  std::string problem_with_bits(const loaded& x); ///< which must be the same in all workers; empty: they are

  // Losses.

  /// `of_losses` tells losses_ what somebody said.
  template <class F>
  void learn(F of_losses);
  void hear_losses(const slot_id& from, const std::vector<char>& block, std::uint64_t limit);
  /// That ranks told of, or that keepers hold, who may be heard when ranks were not.
  std::uint64_t steps_committed() const { return std::max(course_.steps_done(), protection_.newest().steps); }
  /// Who has just said something is asked for what is not known of the steps committed, now and then.
  void recall_losses(const slot_id& from, const report& said);
  void recall_from_keepers();
  /// What it was not told; before CHECKPOINT.
  void remind(const slot_id& keeper);

  static constexpr const char* loading_data = "waiting for instances to load the data";
  static constexpr const char* end_of_manager = "the end of the manager";
  static constexpr const char* return_of_manager = "the return of the manager";

  const conducted_job job_;
  const observer observe_;
  time_point now_;
  std::vector<effect> effects_; ///< of the event being handled
  phase_state phase_;
  manager_life manager_;
  roster roster_;
  commit_chain chain_;
  generations generations_;
  planning_desk desk_;
  change_log changes_;
  training_course course_;
  service service_;
  recollection losses_;
  protection protection_;
  checkpoint_ledger ledger_;
};

} // namespace parcae
