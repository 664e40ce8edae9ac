#pragma once

// The inside of class conductor: its state, and one handler per event and report. Sources: conductor.cpp (membership,
// time, records), conductor_planning.cpp (when and from what to plan), conductor_change.cpp (how generations begin and
// end), conductor_reports.cpp (what executors say), conductor_checkpoints.cpp (what the keepers put on disk),
// conductor_returns.cpp (what comes back after it was away).

#include "actors/conductor/conductor.hpp"
#include "planner/cost/change_meter.hpp"
#include "planner/cost/step_meter.hpp"

#include <memory>
#include <set>
#include <utility>

namespace parcae {

class conductor::machine {
public:
  machine(job_id job, job_specification specification, model_facts facts, conductor_options options,
          const secret_key& secret);
  std::vector<effect> handle(time_point now, const conductor_event& x);
  std::optional<time_point> deadline() const;
  const job_view& view() const { return view_; }
  bool writes(const slot_id& keeper) const;

  std::vector<effect> last_will();
  std::string how_to_go_on() const;

private:
  /// The newest generations that a slot was told to prepare, and to compute.
  struct generations_told {
    generation prepared;
    generation activated;
  };

  struct slot_state {
    participant where;
    bool keeper = false;
    std::uint64_t slot_bytes = 0; ///< 0: unknown
    machine_facts machine;
    std::uint64_t age = 0;              ///< order of arrival
    inventory held;                     ///< as last heard; keepers: as far as it can be true
    inventory told;                     ///< keepers: as last heard
    std::optional<time_point> leaving;  ///< when it will be gone
    bool loaded = false;                ///< workers: it has the data
    std::string arrival;                ///< workers: why there is planned once it has
    std::string data_problem;           ///< workers: why it could not load it when it last tried
    int data_problems = 0;              ///< times in a row
    std::optional<time_point> excluded; ///< not used until then; time_point::max() for good
    bool asked_back = false;            ///< its inventory was asked for, to be answered until `excluded`
    milliseconds back_off{0};           ///< the last one; doubles
    /// It failed to prepare beside a healthy generation, in which it may have a place: no new place until then.
    std::optional<time_point> no_new_place;
    std::vector<commit_result> results; ///< keepers: of the versions held
    std::vector<layer_digest> digests;  ///< keepers: of the final version
    bool reading = false;               ///< keepers: RESTORE was sent and not answered
    std::optional<restored> read;       ///< keepers: the answer
    generations_told given;

    bool usable() const { return !keeper && loaded && !leaving && !excluded && !no_new_place; }
  };

  /// The generation that trains, or the one that is being ended.
  struct run {
    generation g;
    placement grid;
    std::uint64_t base = 0;
    std::map<slot_id, std::uint32_t> rank_of;
    std::set<slot_id> stopped_ranks;
    version stopped_at;
    std::map<std::uint32_t, aborted> aborted_ranks;
    commit_result decision;                       ///< while deciding
    bool committed = false;                       ///< its first step
    std::set<std::uint32_t> answered_stages = {}; ///< of which a rank has answered the ABORT or DECIDE in progress
  };

  /// A generation that was planned and has not been activated.
  struct change {
    prepare what;
    std::uint64_t checksum = 0; ///< of it
    change_plan plan;
    bool good = true; ///< false: a participant was lost after STOP was sent
  };

  /// A checkpoint being written.
  struct writing {
    version at;
    std::string name;
    time_point limit; ///< then it is given up, if another is due or nothing else is to be done
    std::set<slot_id> awaited;
    std::set<std::uint32_t> layers; ///< on disk
    std::vector<std::pair<slot_id, std::string>> folders;
    std::string problem;
    checkpoint command;
  };

  // Effects.

  void send(const slot_id& to, command what) { send(to, std::make_shared<const command>(std::move(what))); }

  /// To several slots, without a copy for each: PREPARE is as large as the fleet.
  void send(const slot_id& to, std::shared_ptr<const command> what) {
    note_told(to, *what);
    effects_.push_back(tell{to, std::move(what)});
  }

  void log(severity level, std::string text) { effects_.push_back(log_line{level, std::move(text)}); }

  void journal(std::string what);
  void enter(phase to);
  /// Enters a phase that ends when all of `slots` have answered.
  void enter_waiting_for(phase to, std::set<slot_id> slots, milliseconds limit);
  void end_job(bool good, const std::string& why);

  // Membership.

  /// Where snapshots go: those that stay, or if none does those under notice.
  std::vector<participant> keepers() const;
  secret_key snapshot_key() const { return key_of(secret_, "snapshots", {job_.value}); }
  snapshot_pass pass(const slot_id& of) const { return pass_of(snapshot_key(), of.life, of.index); }
  /// To all keepers, or to one: generations up to the newest may send snapshots.
  guard guard_message() const { return {job_, snapshot_key(), newest_, specification_}; }

  /// The set of keepers changed: snapshots go to those present, the first at the next commit.
  void protect_all();
  void on(const slot_joined& x);
  void on(const slot_leaving& x);
  /// Under notice that may end before the change that is under way: the table of design section 6.
  void leaves_before_next(const slot_id& slot, const std::string& why);
  void on(const slot_lost& x);
  /// A slot is lost, or excluded as if lost: the table of design section 6.
  void missing(const slot_id& slot, const std::string& why);
  void exclude_until(slot_state& slot, time_point t);
  void look_again_at(time_point t);
  void find_next_return();
  /// A slot failed or did not answer in time. It is asked for its inventory when its back-off is over.
  void exclude(const slot_id& id, const std::string& why, bool for_good = false);
  /// The first back-off, or twice the last, which is thereby used.
  milliseconds next_back_off(slot_state& slot) const;
  /// A participant of g+1 failed, or is late, beside a healthy g, of which it may be a rank: it trains on there.
  void refuse_new_place(const slot_id& id, const std::string& why);
  /// Asks those whose exclusion is over for their inventory; an answer ends it, no answer begins another.
  void ask_back();
  /// The job's data, before anything else.
  void ask_to_load(const slot_id& id, slot_state& slot, const char* arrival);
  void cannot_load(const slot_id& from, slot_state& slot, const std::string& why);
  /// One line if all workers said, more than once, that they cannot load the data; else empty.
  std::string data_problem_of_all() const;
  bool participates_in_next(const slot_id& slot) const;
  bool is_rank_of_next(const slot_id& slot) const;

  // Returns.

  void on(const slot_returned& x);
  /// Asks again for what the present phase waits for from this slot, and for what holds in all phases.
  void repeat_command(const slot_id& id, const slot_state& slot);
  void note_told(const slot_id& to, const command& what);
  /// Of a slot that is lost, should it come back.
  void remember_life(const slot_id& id, const slot_state& slot);
  /// If this life was lost before: all that it may still be doing is ended, and what it holds is asked for.
  bool take_back(const slot_id& id, slot_state& slot);
  /// This process was stopped for a while: limits that passed meanwhile say nothing of others.
  void notice_standstill(time_point now);

  // The end of the manager.

  void on(const manager_ends& x);
  /// The next step towards it, after every event.
  void close();
  void close_waiting();
  /// `problem`: why not all is kept.
  void end_closed(const std::string& problem);

  // Planning.

  /// One reason more, unless it is named already: "a; b".
  static void add_cause(std::string& to, const std::string& why);
  /// A reason to plan that waits a little for others, and for a change in progress.
  void plan_soon(std::string why);
  /// Nothing runs: asks for a configuration at once, or waits for instances.
  void plan_now(const std::string& why);
  void ask_planner();

  std::uint32_t usable_slots() const;
  void on(const plan_chosen& x);
  void plan_while_running(const configuration& choice);
  void plan_from_inventory(const configuration& choice);
  /// The newest version held of every layer by those who are not excluded; if `hoping`, also by those who will be asked
  /// back and have not failed too often.
  version newest_held(bool hoping) const;
  /// Nothing can run now.
  void wait_for_slots(const std::string& why);
  /// Keeps what the planner said.
  void note_decision(const plan_chosen& x);
  /// Plans the change to `choice` at version `from` and sends PREPARE.
  void begin_change(const configuration& choice, const version& from);
  /// Stall of the change just planned. Made of figures of earlier changes: no time of this one is in it.
  double predicted_stall_ms() const;
  std::set<slot_id> participants_of_next() const;

  // Giving up a generation that never ran.

  /// g is healthy and goes on. The answers are not waited for: a newer PREPARE supersedes.
  void give_up_next(const std::string& why);
  /// Nothing runs: the inventories are needed to plan anew.
  void clear_next(const std::string& why);

  // Ending a generation that ran.

  void abort_current(const std::string& why);
  /// While aborting: whether of some stage nobody has said what it holds, and somebody will. Without that steps would
  /// be given up, and within a layer, or the optimizer, nobody hears.
  /// The same while deciding.
  bool only_holder_is_awaited() const;
  void decide_step();
  void settle();
  std::string trigger_of_record() const { return record_.trigger.empty() ? trigger_ : record_.trigger; }

  // Answers.

  /// One answer of the present phase is in, or will never come.
  void answered(const slot_id& slot);
  void begin_stop(bool snapshot = false);
  /// When slots under notice that alone hold a stage have just the time left that moving it takes.
  std::optional<time_point> last_moment() const;
  /// While stopping, and others could take the stage over or keep it: makes that the limit of the phase, if it is
  /// earlier. ABORT is sent then.
  void watch_notices();
  bool can_be_moved() const { return usable_slots() > 0 || !keepers().empty(); }
  /// While a generation trains: when `secure` has to begin. Only if there are keepers and no change that is about to
  /// move the stage away.
  std::optional<time_point> moment_to_secure() const;
  /// Those under notice have trained as long as they could: the generation stops, and its state goes to the keepers.
  void secure();
  /// Nobody is left to train: what those under notice hold, and the keepers do not, goes to the keepers.
  void save_what_leaves();
  void all_stopped();
  void begin_transfer();
  void begin_activation();
  void all_active();
  /// All ranks are at the final version; the job is done when the keepers hold it.
  void finish();
  void say_what_finishing_waits_for();
  /// While finishing: if neither the keepers nor the ranks hold the final version, what is left of it must be found, or
  /// computed, again.
  void check_final_state(const std::string& why);
  void check_done();
  bool final_is_protected() const { return view_.protected_version.steps == specification_.steps; }

  // Keepers.

  void update_protection();
  void confirm_to_keepers(bool digests);
  void confirm_to(const slot_id& keeper, bool digests);
  /// The most steps that can have been committed by now: what was reported, or what can be done in the time that the
  /// generation has had, ten times as fast as the fastest step. Reports may be late, and the manager slow or frozen:
  /// nothing is taken from them but that.
  std::uint64_t most_steps() const;
  /// Takes into the inventory what a keeper says, but for versions beyond that: a forged one would end the job, or void
  /// the true ones. They are looked at again with each event.
  void believe(slot_state& keeper);
  void believe_again();
  void keeper_has_news(const slot_id& from);

  // Checkpoints.

  /// Of the newest version that the keepers hold, if one is due and none is being written.
  void write_checkpoint();
  void on(const checkpoint_wanted&);
  /// This keeper's share is on disk, or will never be.
  void share_written(const slot_id& keeper);
  /// Nobody holds the version on record or a newer one: the keepers are to read it. Called again when they answered.
  void read_checkpoint();
  /// As long as moving all state once may take.
  milliseconds disk_limit() const;
  bool final_is_on_disk() const { return view_.checkpoint.steps == specification_.steps; }

  // Reports.

  void on(const slot_reported& x);
  bool is_next(generation g) const { return next_ && next_->what.next == g; }
  bool is_current(generation g) const { return current_ && current_->g == g; }

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
  /// Brings what is known of configurations up to date, now and then.
  void refine_configurations();
  struct shared_machine {
    machine_facts facts;
    std::uint32_t slots = 0; ///< usable
  };
  std::map<std::string, shared_machine> machines() const; ///< by id; those not known are left out
  std::uint64_t slot_bytes() const;                       ///< memory of the smallest usable slot; 0: unknown
  platform_cost platform() const;
  /// The most ranks that one machine has; 1 where machines are not known.
  std::uint32_t side_by_side(const placement& grid) const;
  /// Of the generation that is active everywhere: its change is over, and nothing older is needed.
  void first_commit();
  void release_all();
  release release_for(const slot_id& id) const;
  void hear(const slot_id& from, slot_state& slot, const failed& x);
  void hear(const slot_id& from, slot_state& slot, const kept& x);
  void hear(const slot_id& from, slot_state&, const checkpointed& x);
  void hear(const slot_id& from, slot_state& slot, const restored& x);

  // Time.

  /// From one commit to the next, with the evaluation that may be between; it takes no longer than training on as many
  /// samples.
  double longest_step_ms() const;
  milliseconds progress_limit() const;
  void watch_progress() { limit_ = now_ + progress_limit(); }

  void on(const tick&);
  void limit_passed();

  // Records.

  void open_record(const std::string& why);
  void close_record();
  /// The generation that the record is of was activated, and another change begins before its first commit was heard.
  void close_record_of_active();
  /// The change went through: what its phases took is learnt, if nothing came in between.
  void learn_from_record();
  void on(const plan_wanted& x) { plan_soon(x.why); }

  void on(const cancel_requested&) { end_job(false, "cancelled"); }

  static constexpr double move_margin = 2; ///< times the expected duration of a move that has to be over by a moment
  static constexpr milliseconds refine_interval{500};
  static constexpr double fastest_step = 10; ///< no step is so many times faster than the fastest reported
  static constexpr double least_step_ms = 0.02;
  static constexpr int quick_restarts = 3;  ///< without a step between them; more are put off longer and longer
  static constexpr int returns_awaited = 8; ///< back-offs up to so many times the first
  static constexpr const char* loading_data = "waiting for instances to load the data";
  static constexpr milliseconds longest_back_off{30'000};
  static constexpr int data_attempts = 2; ///< what is mounted a moment late is there at the second

  const job_id job_;
  const job_specification specification_;
  const model_facts facts_;
  const conductor_options options_;
  const secret_key secret_;

  job_view view_;
  commit_pace pace_;
  commit_chain chain_;
  std::map<slot_id, slot_state> slots_;
  std::set<slot_id> leaving_; ///< under notice
  /// Not later than the end of any exclusion, or lack of room, that ends; found anew by each tick and with each phase.
  /// So that no report has to look at all slots.
  std::optional<time_point> next_return_;
  std::deque<std::pair<slot_id, generations_told>> lost_lives_; ///< newest last
  std::uint64_t arrivals_ = 0;
  generation newest_; ///< highest number given
  std::optional<run> current_;
  std::optional<change> next_;
  std::optional<placement> last_grid_; ///< of the last generation that was activated
  version base_;                       ///< version at which next_ begins; running_version while g trains
  version confirmed_;                  ///< newest that the keepers were told to be complete: they dropped what is older
  std::string data_digest_;            ///< of the first node that loaded the data, or of what the job goes on from
  bool data_found_ = false;            ///< a node has this data
  bool digests_asked_ = false;

  std::optional<writing> writing_;
  bool checkpoint_asked_ = false;       ///< by a user, or because of the notice to a keeper
  std::string checkpoint_name_;         ///< folder of view_.checkpoint
  std::uint64_t checkpoint_failed_ = 0; ///< steps of the last that could not be written
  std::deque<std::uint64_t> on_disk_;   ///< steps of the complete checkpoints, ascending, as many as are kept

  std::set<slot_id> awaited_;       ///< whose answer the present phase waits for
  std::optional<time_point> limit_; ///< of the present phase
  std::optional<time_point> plan_at_;
  bool news_ = false; ///< plan_at_ is because of an event, not only of the interval
  bool plan_after_change_ = false;
  std::uint64_t plan_request_ = 0;
  std::string trigger_ = "start";
  int restarts_ = 0;                        ///< changes that communication failed in, since the last step or loss
  int stuck_ = 0;                           ///< times that there was no progress, since the last step
  std::optional<time_point> closing_until_; ///< the manager ends

  version evaluated_at_;                            ///< the version that these are of
  std::map<std::uint32_t, double> evaluation_sums_; ///< by virtual replica, as far as heard

  change_record record_;          ///< of the change in progress; trigger empty: none
  generation evaluated_by_;       ///< the newest that evaluated
  std::uint32_t record_lost_ = 0; ///< slots of the old generation that were lost until its end was decided
  bool record_running_ = false;   ///< when planned last, the old generation was healthy
  double record_busiest_bytes_ = 0;
  change_meter meter_;
  step_meter steps_;
  time_point begun_at_;                ///< when the last generation was told to begin
  std::optional<double> shortest_ms_;  ///< step reported
  std::optional<time_point> doubtful_; ///< since when a keeper has told of more than can be true
  bool doubt_told_ = false;            ///< to people
  time_point refined_at_;              ///< when view_.configurations was brought up to date
  std::optional<time_point> stall_began_;
  bool stop_is_snapshot_ = false; ///< of the last STOP
  version saved_;                 ///< that the keepers are being sent by those under notice
  time_point active_at_;          ///< when the last generation was activated

  time_point now_;
  std::vector<effect> effects_;
};

/// The version at which the layers of a generation in progress will be when it stops. Stands for "whatever it is".
inline version running_version(generation g) {
  return {UINT64_MAX, g};
}

/// Milliseconds.
inline double ms_between(time_point from, time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

} // namespace parcae
