#include "actors/conductor.hpp"

#include "gpu/seed.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace parcae {

namespace {

using enum phase;

constexpr std::size_t phases = static_cast<std::size_t>(ended) + 1;
constexpr std::size_t changes_kept = 1000;

/// The transition table. A transition that is not in it is a defect: it is logged as an error and taken all the same,
/// because the conductor is the only one who can still end the change.
///
///   from          to            when
///   waiting       planning      enough may be there
///   planning      waiting       the planner found nothing that fits, or no worker is left
///   planning      preparing     a configuration was chosen
///   planning      finishing     the version to go on from is the final one
///   preparing     transferring  all are PREPARED
///   preparing     clearing      a participant was lost, failed or missed the limit
///   running       readying      another configuration was chosen
///   running       aborting      a place was lost, communication failed, or there was no progress
///   running       finishing     all ranks STOPPED at the final version
///   readying      running       g+1 was given up
///   readying      stopping      all are PREPARED
///   readying      aborting      as from running
///   readying      finishing     as from running
///   stopping      transferring  all ranks STOPPED, g+1 is still good
///   stopping      planning      all ranks STOPPED, g+1 is not
///   stopping      aborting      a place was lost, communication failed, or the limit passed
///   stopping      finishing     all ranks STOPPED at the final version
///   transferring  activating    all are READY or DELIVERED
///   transferring  clearing      a participant was lost, failed or missed the limit
///   clearing      planning      all living participants ABORTED
///   clearing      waiting       … and no worker is left
///   activating    running       all are ACTIVE
///   activating    aborting      a place was lost, communication failed, or the limit passed: g+1 may be running
///   activating    finishing     all are ACTIVE and STOPPED at the final version
///   aborting      deciding      all living ranks ABORTED
///   deciding      planning      all living ranks DECIDED
///   deciding      waiting       … and no worker is left
///   finishing     planning      a place was lost, or a rank has to send its state again
///   any           ended         a keeper holds the final version, cancelled, or failed
constexpr std::pair<phase, phase> transitions[] = {
    {waiting, planning},       {planning, waiting},        {planning, preparing},    {planning, finishing},
    {preparing, transferring}, {preparing, clearing},      {running, readying},      {running, aborting},
    {running, finishing},      {readying, running},        {readying, stopping},     {readying, aborting},
    {readying, finishing},     {stopping, transferring},   {stopping, planning},     {stopping, aborting},
    {stopping, finishing},     {transferring, activating}, {transferring, clearing}, {clearing, planning},
    {clearing, waiting},       {activating, running},      {activating, aborting},   {activating, finishing},
    {aborting, deciding},      {deciding, planning},       {deciding, waiting},      {finishing, planning},
};

bool allowed(phase from, phase to) {
  return to == ended || std::ranges::find(transitions, std::pair{from, to}) != std::end(transitions);
}

/// The version at which the layers of a generation in progress will be when it stops. Stands for "whatever it is".
version running_version(generation g) {
  return {UINT64_MAX, g};
}

double ms_between(time_point from, time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

} // namespace

std::string to_string(phase x) {
  constexpr std::array<const char*, phases> names{"waiting",    "planning",  "preparing", "running",  "readying",
                                                  "stopping",   "clearing",  "aborting",  "deciding", "transferring",
                                                  "activating", "finishing", "ended"};
  return names[static_cast<std::size_t>(x)];
}

class conductor::machine {
public:
  machine(job_id job, job_specification specification, model_facts facts, conductor_options options,
          std::uint64_t token_seed) :
      job_(job),
      specification_(std::move(specification)), facts_(std::move(facts)), options_(options), token_seed_(token_seed) {
    view_.problem = "waiting for instances";
  }

  std::vector<effect> handle(time_point now, const conductor_event& x) {
    effects_.clear();
    if (view_.now != ended) {
      now_ = now;
      std::visit([this](const auto& event) { on(event); }, x);
    }
    return std::move(effects_);
  }

  std::optional<time_point> deadline() const {
    std::optional<time_point> earliest;
    auto consider = [&](std::optional<time_point> t) {
      if (t && (!earliest || *t < *earliest))
        earliest = t;
    };
    if (view_.now == ended)
      return {};
    consider(limit_);
    consider(plan_at_);
    for (const auto& [id, slot] : slots_)
      if (slot.excluded && !slot.asked_back)
        consider(slot.excluded);
    return earliest;
  }

  const job_view& view() const { return view_; }

private:
  struct slot_state {
    participant where;
    bool keeper = false;
    std::uint64_t age = 0;              ///< order of arrival
    inventory held;                     ///< as last heard
    std::optional<time_point> leaving;  ///< when it will be gone
    std::optional<time_point> excluded; ///< not used until then; time_point::max() for good
    bool asked_back = false;            ///< the exclusion is over, its inventory was asked for
    milliseconds back_off{0};
    std::vector<commit_result> results; ///< keepers: of the versions held
    std::vector<layer_digest> digests;  ///< keepers: of the final version

    bool usable() const { return !keeper && !leaving && !excluded; }
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
    bool committed = false; ///< its first step
  };

  /// A generation that was planned and has not been activated.
  struct change {
    prepare what;
    change_plan plan;
    bool good = true; ///< false: a participant was lost after STOP was sent
  };

  // --- effects
  // --------------------------------------------------------------------------------------------------------

  void send(const slot_id& to, command what) { effects_.push_back(tell{to, std::move(what)}); }

  void log(severity level, std::string text) { effects_.push_back(log_line{level, std::move(text)}); }

  void journal(std::string what) {
    view_.chain = chain_.links();
    effects_.push_back(record{chain_.links(), std::move(what)});
  }

  void enter(phase to) {
    if (!allowed(view_.now, to))
      log(severity::error, "illegal transition from " + to_string(view_.now) + " to " + to_string(to));
    view_.now = to;
    awaited_.clear();
    limit_.reset();
  }

  /// Enters a phase that ends when all of `slots` have answered.
  void enter_waiting_for(phase to, std::set<slot_id> slots, milliseconds limit) {
    enter(to);
    awaited_ = std::move(slots);
    limit_ = now_ + limit;
  }

  void end_job(bool good, const std::string& why) {
    for (const auto& [id, slot] : slots_) {
      if (!slot.keeper && current_)
        send(id, abort_generation{current_->g});
      send(id, forget{job_});
    }
    enter(ended);
    view_.problem = good ? "" : why;
    effects_.push_back(job_ended{good, why});
  }

  // --- membership
  // -----------------------------------------------------------------------------------------------------

  std::vector<participant> keepers() const {
    std::vector<participant> found;
    for (const auto& [id, slot] : slots_)
      if (slot.keeper)
        found.push_back(slot.where);
    return found;
  }

  std::uint64_t snapshot_token() const { return mix_seed(token_seed_, "snapshot", {job_.value}); }

  /// The set of keepers changed: snapshots go to those present, the first at the next commit.
  void protect_all() {
    const auto present = keepers();
    for (const auto& [id, slot] : slots_)
      if (!slot.keeper)
        send(id, protect{job_, present, snapshot_token(), !present.empty()});
    update_protection();
  }

  void on(const slot_joined& x) {
    auto& slot = slots_[x.where.slot];
    slot = {};
    slot.where = x.where;
    slot.keeper = x.keeper;
    slot.age = ++arrivals_;
    if (x.keeper) {
      send(x.where.slot, guard{job_, snapshot_token()});
      protect_all();
      return;
    }
    if (const auto present = keepers(); !present.empty())
      send(x.where.slot, protect{job_, present, snapshot_token(), false});
    plan_soon("join of " + to_string(x.where.slot));
  }

  void on(const slot_leaving& x) {
    const auto it = slots_.find(x.slot);
    if (it == slots_.end())
      return;
    it->second.leaving = x.expires;
    const auto remaining = std::chrono::duration_cast<milliseconds>(x.expires - now_);
    // Too short a notice for a change that counts on the slot: it must not end up with a place.
    if (next_ && next_->good && is_rank_of_next(x.slot) && remaining < short_notice) {
      if (view_.now == readying)
        give_up_next("notice to " + to_string(x.slot));
      else if (view_.now == stopping)
        next_->good = false;
      else if (view_.now == preparing || view_.now == transferring)
        clear_next("notice to " + to_string(x.slot));
    }
    plan_soon("notice to " + to_string(x.slot));
  }

  void on(const slot_lost& x) {
    const auto it = slots_.find(x.slot);
    if (it == slots_.end())
      return;
    const bool was_keeper = it->second.keeper;
    slots_.erase(it);
    if (was_keeper)
      protect_all();
    missing(x.slot, "loss of " + to_string(x.slot) + " (" + x.why + ")");
  }

  /// A slot is lost, or excluded as if lost: the table of design section 6.
  void missing(const slot_id& slot, const std::string& why) {
    const bool has_place = current_ && current_->rank_of.contains(slot);
    const bool takes_part = next_ && participates_in_next(slot);
    switch (view_.now) {
    case running:
      if (has_place)
        abort_current(why);
      break;
    case readying:
      if (has_place)
        abort_current(why);
      else if (takes_part)
        give_up_next(why);
      break;
    case stopping:
      if (takes_part)
        next_->good = false;
      if (has_place)
        abort_current(why);
      break;
    case preparing:
    case transferring:
      if (takes_part)
        clear_next(why);
      break;
    case activating:
      if (has_place)
        abort_current(why);
      break;
    case clearing:
    case aborting:
    case deciding:
      answered(slot);
      break;
    case finishing:
      if (has_place && !final_is_protected())
        plan_now(why);
      break;
    case waiting:
    case planning:
    case ended:
      break;
    }
  }

  /// A slot failed or did not answer in time. It is asked for its inventory when its back-off is over.
  void exclude(const slot_id& id, const std::string& why, bool for_good = false) {
    const auto it = slots_.find(id);
    if (it == slots_.end())
      return;
    auto& slot = it->second;
    slot.back_off = std::max(options_.exclusion, 2 * slot.back_off);
    slot.excluded = for_good ? time_point::max() : now_ + slot.back_off;
    slot.asked_back = for_good;
    slot.held.clear();
    log(severity::warning, to_string(id) + " is not used for now: " + why);
  }

  bool participates_in_next(const slot_id& slot) const {
    return std::ranges::any_of(next_->what.target.participants, [&](const auto& p) { return p.slot == slot; });
  }

  bool is_rank_of_next(const slot_id& slot) const {
    const auto& target = next_->what.target;
    for (std::uint32_t r = 0; r < target.ranks(); ++r)
      if (target.participants[r].slot == slot)
        return true;
    return false;
  }

  // --- planning
  // -------------------------------------------------------------------------------------------------------

  /// A reason to plan that waits a little for others, and for a change in progress.
  void plan_soon(const std::string& why) {
    trigger_ = why;
    if (view_.now == running || view_.now == waiting)
      plan_at_ = plan_at_ ? std::min(*plan_at_, now_ + options_.collect) : now_ + options_.collect;
    else
      plan_after_change_ = true;
  }

  /// Nothing runs: asks for a configuration at once, or waits for instances.
  void plan_now(const std::string& why) {
    trigger_ = why;
    next_.reset();
    current_.reset();
    if (view_.now != planning)
      enter(planning);
    update_protection();
    if (final_is_protected()) {
      finish();
    } else if (usable_slots() == 0) {
      enter(waiting);
      view_.problem = "waiting for instances";
    } else {
      ask_planner();
      limit_ = now_ + options_.request_limit;
    }
  }

  void ask_planner() { effects_.push_back(request_plan{++plan_request_, usable_slots(), facts_.costs}); }

  std::uint32_t usable_slots() const {
    return static_cast<std::uint32_t>(std::ranges::count_if(slots_, [](const auto& x) { return x.second.usable(); }));
  }

  void on(const plan_chosen& x) {
    if (x.request != plan_request_ || (view_.now != planning && view_.now != running))
      return;
    if (view_.now == planning)
      plan_from_inventory(x.choice);
    else
      plan_while_running(x.choice);
  }

  void plan_while_running(const configuration& choice) {
    if (choice.width == 0 || choice.width * choice.depth > usable_slots())
      return; // goes on while it can
    const bool all_stay = std::ranges::all_of(current_->rank_of, [&](const auto& x) {
      const auto slot = slots_.find(x.first);
      return slot != slots_.end() && slot->second.usable();
    });
    if (all_stay && choice.width == current_->grid.width && choice.depth == current_->grid.depth)
      return;
    begin_change(choice, running_version(current_->g));
    enter_waiting_for(readying, participants_of_next(), options_.prepare_limit);
  }

  void plan_from_inventory(const configuration& choice) {
    const auto layers = static_cast<std::uint32_t>(facts_.state_bytes.size());
    std::vector<holder> holders;
    for (const auto& [id, slot] : slots_)
      holders.push_back({id, slot.keeper, slot.held});
    const auto from = newest_complete(chain_, layers, holders);
    if (from.steps < chain_.newest().steps) {
      const auto lost = chain_.newest().steps - from.steps;
      log(severity::warning,
          std::to_string(lost) + " steps are lost: the newest version all layers are held at is " + to_string(from));
      chain_.cut(from.steps);
      view_.replayed_steps += lost;
      record_.replayed_steps += lost;
      view_.steps_done = from.steps;
      journal("go back to version " + to_string(from));
      update_protection();
      confirm_to_keepers(false);
    }
    if (choice.width == 0 || choice.width * choice.depth > usable_slots()) {
      if (choice.width == 0) {
        view_.problem = choice.reason;
        enter(waiting);
      } else {
        plan_now(trigger_); // someone left while the planner thought
      }
      return;
    }
    begin_change(choice, from);
    enter_waiting_for(preparing, participants_of_next(), options_.prepare_limit);
  }

  /// Plans the change to `choice` at version `from` and sends PREPARE.
  void begin_change(const configuration& choice, const version& from) {
    if (record_.trigger.empty())
      open_record(trigger_);
    std::vector<candidate> candidates;
    for (const auto& [id, slot] : slots_) {
      if (slot.excluded)
        continue;
      candidates.push_back({slot.where, {}, slot.keeper, slot.leaving.has_value(), slot.age});
      if (current_ && from == running_version(current_->g)) {
        if (const auto rank = current_->rank_of.find(id); rank != current_->rank_of.end()) {
          const auto stage = current_->grid.stage_of(rank->second);
          for (auto l = current_->grid.first_layer[stage]; l < current_->grid.first_layer[stage + 1]; ++l)
            candidates.back().held.push_back({l, from});
        }
      } else {
        candidates.back().held = slot.held;
      }
    }
    change next;
    next.plan = plan_change(choice.width, choice.first_layer, candidates, from, facts_.state_bytes,
                            last_grid_ ? &*last_grid_ : nullptr);
    newest_ = {newest_.value + 1};
    next.what = {newest_,        mix_seed(token_seed_, "generation", {job_.value, newest_.value}),
                 job_,           specification_,
                 data_digest_,   next.plan.target,
                 next.plan.moves};
    next_ = std::move(next);
    base_ = from;
    record_.to = newest_;
    record_.configuration = std::to_string(choice.width) + "×" + std::to_string(choice.depth);
    record_.kind = next_->plan.kind;
    record_.bytes = next_->plan.bytes;
    record_.planned_ms = ms_between(record_began_, now_);
    view_.problem.clear();
    log(severity::information, "generation " + std::to_string(newest_.value) + ": " + record_.configuration +
                                   " after " + record_.trigger + "; " + choice.reason + "; " + next_->plan.reason);
    for (const auto& p : next_->what.target.participants)
      send(p.slot, next_->what);
  }

  std::set<slot_id> participants_of_next() const {
    std::set<slot_id> all;
    for (const auto& p : next_->what.target.participants)
      all.insert(p.slot);
    return all;
  }

  // --- giving up a generation that never ran
  // --------------------------------------------------------------------------

  /// g is healthy and goes on. The answers are not waited for: a newer PREPARE supersedes.
  void give_up_next(const std::string& why) {
    for (const auto& slot : participants_of_next())
      send(slot, abort_generation{next_->what.next});
    next_.reset();
    log(severity::information, "change given up: " + why);
    record_ = {};
    enter(running);
    watch_progress();
    plan_soon(why);
  }

  /// Nothing runs: the inventories are needed to plan anew.
  void clear_next(const std::string& why) {
    trigger_ = why;
    std::set<slot_id> alive;
    for (const auto& slot : participants_of_next())
      if (slots_.contains(slot)) {
        send(slot, abort_generation{next_->what.next});
        alive.insert(slot);
      }
    log(severity::information, "change begun anew: " + why);
    enter_waiting_for(clearing, std::move(alive), options_.request_limit);
    if (awaited_.empty())
      plan_now(trigger_);
  }

  // --- ending a generation that ran
  // -----------------------------------------------------------------------------------

  void abort_current(const std::string& why) {
    log(severity::information, "abort of generation " + std::to_string(current_->g.value) + ": " + why);
    if (next_ && next_->what.next != current_->g)
      for (const auto& slot : participants_of_next())
        send(slot, abort_generation{next_->what.next});
    next_.reset();
    open_record(why);
    stall_began_ = now_;
    current_->aborted_ranks.clear();
    std::set<slot_id> alive;
    for (const auto& [slot, rank] : current_->rank_of)
      if (slots_.contains(slot)) {
        send(slot, abort_generation{current_->g});
        alive.insert(slot);
      }
    enter_waiting_for(aborting, std::move(alive), options_.request_limit);
    if (awaited_.empty())
      decide_step();
  }

  void decide_step() {
    std::vector<rank_report> reports;
    for (const auto& [rank, said] : current_->aborted_ranks)
      reports.push_back({rank, said});
    std::vector<kept> kept_by;
    for (const auto& [id, slot] : slots_)
      if (slot.keeper)
        kept_by.push_back({job_, slot.held, slot.results, {}});
    const auto decision = decide_open_step(current_->grid, current_->g, current_->base, reports, kept_by);
    chain_.end(current_->g, decision.last);
    if (decision.result.step == no_step) {
      ++view_.replayed_steps;
      ++record_.replayed_steps;
    } else {
      view_.last_result = decision.result;
    }
    view_.steps_done = decision.last;
    journal("generation " + std::to_string(current_->g.value) + " ends at " + std::to_string(decision.last) + ": " +
            decision.reason);
    log(severity::information, decision.reason);
    std::set<slot_id> alive;
    for (const auto& [slot, rank] : current_->rank_of)
      if (const auto it = slots_.find(slot); it != slots_.end() && current_->aborted_ranks.contains(rank)) {
        send(slot, decide{current_->g, decision.result});
        alive.insert(slot);
      }
    enter_waiting_for(deciding, std::move(alive), options_.request_limit);
    if (awaited_.empty())
      settle();
  }

  void settle() {
    record_.decided_ms = ms_between(record_began_, now_);
    plan_now(trigger_of_record());
  }

  std::string trigger_of_record() const { return record_.trigger.empty() ? trigger_ : record_.trigger; }

  // --- answers
  // --------------------------------------------------------------------------------------------------------

  /// One answer of the present phase is in, or will never come.
  void answered(const slot_id& slot) {
    if (awaited_.erase(slot) == 0 || !awaited_.empty())
      return;
    switch (view_.now) {
    case readying:
      record_.prepared_ms = ms_between(record_began_, now_);
      begin_stop();
      break;
    case preparing:
      record_.prepared_ms = ms_between(record_began_, now_);
      begin_transfer();
      break;
    case stopping:
      all_stopped();
      break;
    case transferring:
      record_.ready_ms = ms_between(record_began_, now_);
      begin_activation();
      break;
    case activating:
      all_active();
      break;
    case clearing:
      plan_now(trigger_);
      break;
    case aborting:
      decide_step();
      break;
    case deciding:
      settle();
      break;
    default:
      break;
    }
  }

  void begin_stop() {
    std::set<slot_id> ranks;
    for (const auto& [slot, rank] : current_->rank_of) {
      send(slot, stop{current_->g});
      if (!current_->stopped_ranks.contains(slot))
        ranks.insert(slot);
    }
    enter_waiting_for(stopping, std::move(ranks), progress_limit());
    if (awaited_.empty())
      all_stopped();
  }

  void all_stopped() {
    const auto at = current_->stopped_at;
    chain_.end(current_->g, at.steps);
    view_.steps_done = at.steps;
    journal("generation " + std::to_string(current_->g.value) + " stopped at version " + to_string(at));
    stall_began_ = now_;
    if (record_.trigger.empty())
      open_record(trigger_);
    record_.stopped_ms = ms_between(record_began_, now_);
    if (at.steps == specification_.steps) {
      if (next_)
        for (const auto& slot : participants_of_next())
          send(slot, abort_generation{next_->what.next});
      next_.reset();
      finish();
      return;
    }
    current_.reset();
    base_ = at;
    if (next_ && next_->good)
      begin_transfer();
    else {
      // Its participants are told by the PREPARE that supersedes it.
      plan_now(trigger_of_record());
    }
  }

  void begin_transfer() {
    const auto limit = options_.transfer_limit + milliseconds(next_->plan.bytes / 10'000);
    for (const auto& p : next_->what.target.participants)
      send(p.slot, transfer{next_->what.next, base_});
    enter_waiting_for(transferring, participants_of_next(), limit);
  }

  void begin_activation() {
    const auto g = next_->what.next;
    chain_.begin(g, base_.steps);
    journal("generation " + std::to_string(g.value) + " begins at version " + to_string(base_));
    run began{g, next_->what.target, base_.steps, {}, {}, {}, {}, false};
    std::set<slot_id> ranks;
    for (std::uint32_t r = 0; r < began.grid.ranks(); ++r) {
      began.rank_of[began.grid.participants[r].slot] = r;
      ranks.insert(began.grid.participants[r].slot);
    }
    current_ = std::move(began);
    last_grid_ = current_->grid;
    view_.current = g;
    view_.grid = current_->grid;
    // Those who only sent shards count no longer; those with a place keep what they hold until RELEASE.
    next_.reset();
    for (const auto& slot : ranks)
      send(slot, activate{g, base_});
    enter_waiting_for(activating, std::move(ranks), options_.request_limit);
  }

  void all_active() {
    record_.active_ms = ms_between(record_began_, now_);
    record_.stall_ms = stall_began_ ? ms_between(*stall_began_, now_) : 0;
    stall_began_.reset();
    if (current_->stopped_ranks.size() == current_->rank_of.size()) { // there was no step left to do
      finish();
      return;
    }
    enter(running);
    watch_progress();
    plan_at_ = now_ + milliseconds(specification_.planning_interval_ms);
    if (std::exchange(plan_after_change_, false))
      plan_soon(trigger_);
  }

  /// All ranks are at the final version; the job is done when the keepers hold it.
  void finish() {
    close_record();
    enter(finishing);
    if (chain_.links().back().last == UINT64_MAX) {
      chain_.end(current_->g, specification_.steps);
      journal("the final version is reached");
    }
    if (keepers().empty())
      view_.problem = "waiting for a keeper to hold the final version";
    update_protection();
    check_done();
  }

  void check_done() {
    if (view_.now != finishing || !final_is_protected())
      return;
    std::map<std::uint32_t, std::string> digests;
    for (const auto& [id, slot] : slots_)
      for (const auto& d : slot.digests)
        digests[d.layer] = d.sha256;
    if (digests.size() < facts_.state_bytes.size()) {
      if (!std::exchange(digests_asked_, true))
        confirm_to_keepers(true);
      return;
    }
    view_.layer_digests.clear();
    for (auto& [layer, digest] : digests)
      view_.layer_digests.push_back({layer, digest});
    journal("done: the keepers hold the final version " + to_string(view_.protected_version));
    end_job(true, "done");
  }

  bool final_is_protected() const { return view_.protected_version.steps == specification_.steps; }

  // --- keepers
  // --------------------------------------------------------------------------------------------------------

  void update_protection() {
    std::vector<holder> holders;
    for (const auto& [id, slot] : slots_)
      if (slot.keeper)
        holders.push_back({id, true, slot.held});
    const auto layers = static_cast<std::uint32_t>(facts_.state_bytes.size());
    const auto before = view_.protected_version;
    view_.protected_version = newest_complete(chain_, layers, holders);
    view_.protected_now = view_.protected_version.steps > 0 &&
                          view_.protected_version.steps + 2 * specification_.keeper_every > view_.steps_done;
    if (view_.protected_version != before && view_.protected_version.steps > 0)
      confirm_to_keepers(false);
  }

  void confirm_to_keepers(bool digests) {
    for (const auto& [id, slot] : slots_)
      if (slot.keeper)
        send(id, confirm{job_, view_.protected_version, chain_.links(), digests});
  }

  // --- reports
  // --------------------------------------------------------------------------------------------------------

  void on(const slot_reported& x) {
    if (const auto it = slots_.find(x.from); it != slots_.end())
      std::visit([&](const auto& what) { hear(x.from, it->second, what); }, x.what);
  }

  bool is_next(generation g) const { return next_ && next_->what.next == g; }
  bool is_current(generation g) const { return current_ && current_->g == g; }

  void hear(const slot_id& from, slot_state&, const prepared& x) {
    if (!is_next(x.next) || (view_.now != readying && view_.now != preparing))
      return;
    if (x.checksum != checksum_of(next_->what)) {
      exclude(from, "it understood another plan; is it another build?", true);
      missing(from, "a plan misunderstood by " + to_string(from));
      return;
    }
    if (!x.data_digest.empty()) {
      if (data_digest_.empty())
        data_digest_ = x.data_digest;
      if (data_digest_ != x.data_digest) {
        exclude(from, "its data at " + specification_.data.path + " differs from that of the others", true);
        missing(from, "different data at " + to_string(from));
        return;
      }
    }
    answered(from);
  }

  void hear(const slot_id& from, slot_state& slot, const stopped& x) {
    if (!is_current(x.current) || !current_->rank_of.contains(from))
      return;
    slot.held = x.held;
    if (!current_->stopped_ranks.empty() && current_->stopped_at != x.at) {
      log(severity::error,
          to_string(from) + " stopped at " + to_string(x.at) + ", others at " + to_string(current_->stopped_at));
      return; // the limit of the phase ends in an abort
    }
    current_->stopped_ranks.insert(from);
    current_->stopped_at = x.at;
    if (view_.now == stopping) {
      answered(from);
    } else if ((view_.now == running || view_.now == readying) &&
               current_->stopped_ranks.size() == current_->rank_of.size()) {
      all_stopped(); // the final version, unasked
    }
  }

  void hear(const slot_id& from, slot_state&, const delivered& x) {
    if (is_next(x.next) && view_.now == transferring)
      answered(from);
  }

  void hear(const slot_id& from, slot_state& slot, const ready& x) {
    if (!is_next(x.next) || view_.now != transferring)
      return;
    const auto& target = next_->what.target;
    for (std::uint32_t r = 0; r < target.ranks(); ++r)
      if (target.participants[r].slot == from)
        for (auto l = target.first_layer[target.stage_of(r)]; l < target.first_layer[target.stage_of(r) + 1]; ++l) {
          std::erase_if(slot.held, [&](const auto& h) { return h.layer == l; });
          slot.held.push_back({l, x.at});
        }
    std::ranges::sort(slot.held);
    answered(from);
  }

  void hear(const slot_id& from, slot_state&, const active& x) {
    if (is_current(x.current) && view_.now == activating)
      answered(from);
  }

  void hear(const slot_id& from, slot_state& slot, const aborted& x) {
    slot.held = x.held;
    if (slot.excluded && slot.asked_back && *slot.excluded != time_point::max()) {
      slot.excluded.reset();
      slot.asked_back = false;
      plan_soon("return of " + to_string(from));
    }
    if (view_.now == clearing && is_next(x.current)) {
      answered(from);
    } else if (view_.now == aborting && is_current(x.current)) {
      if (const auto rank = current_->rank_of.find(from); rank != current_->rank_of.end())
        current_->aborted_ranks[rank->second] = x;
      answered(from);
    }
  }

  void hear(const slot_id& from, slot_state& slot, const decided& x) {
    if (!is_current(x.current) || view_.now != deciding)
      return;
    slot.held = x.held;
    answered(from);
  }

  void hear(const slot_id&, slot_state& slot, const progress& x) {
    if (!is_current(x.current))
      return;
    slot.back_off = milliseconds(0);
    for (const auto& t : x.times)
      if (t.layer < facts_.costs.size()) {
        auto& cost = facts_.costs[t.layer];
        auto mend = [](double& old, double value) { old = old > 0 ? 0.5 * old + 0.5 * value : value; };
        mend(cost.forward_ms, t.forward_ms);
        mend(cost.backward_ms, t.backward_ms);
        mend(cost.optimizer_ms, t.optimizer_ms);
      }
    if (x.at.steps > view_.steps_done) {
      view_.steps_by_depth[current_->grid.depth] += x.at.steps - view_.steps_done;
      view_.steps_done = x.at.steps;
      view_.last_result = x.result;
      view_.step_ms = x.step_ms;
      if (view_.now == running || view_.now == readying)
        if (!limit_ || view_.now == running)
          watch_progress();
    }
    if (!std::exchange(current_->committed, true)) {
      record_.first_commit_ms = ms_between(record_began_, now_);
      close_record();
      release_all();
    }
  }

  /// The first step of the generation is committed: nothing older is needed.
  void release_all() {
    for (const auto& [id, slot] : slots_) {
      if (slot.keeper)
        continue;
      release x{current_->g, {}};
      if (const auto rank = current_->rank_of.find(id); rank != current_->rank_of.end()) {
        const auto stage = current_->grid.stage_of(rank->second);
        for (auto l = current_->grid.first_layer[stage]; l < current_->grid.first_layer[stage + 1]; ++l)
          x.keep.push_back(l);
      }
      send(id, std::move(x));
    }
    for (auto& [id, slot] : slots_)
      if (!slot.keeper && !current_->rank_of.contains(id))
        slot.held.clear();
  }

  void hear(const slot_id& from, slot_state& slot, const failed& x) {
    const auto why = to_string(from) + ": " + x.what;
    if (x.kind == failure::data) {
      exclude(from, x.what, true);
      if (std::ranges::all_of(
              slots_, [](const auto& s) { return s.second.keeper || s.second.excluded == time_point::max(); })) {
        end_job(false, x.what);
        return;
      }
      missing(from, why);
    } else if (x.kind == failure::unreachable && is_next(x.current)) {
      // Two live instances that cannot reach each other: the younger does without a place for a while.
      auto younger = from;
      if (x.peer < next_->what.target.participants.size())
        if (const auto peer = slots_.find(next_->what.target.participants[x.peer].slot);
            peer != slots_.end() && peer->second.age > slot.age)
          younger = peer->first;
      exclude(younger, why);
      missing(younger, why);
    } else if (x.kind == failure::communication) {
      log(severity::information, why);
      if (is_current(x.current) &&
          (view_.now == running || view_.now == readying || view_.now == stopping || view_.now == activating))
        abort_current("communication failed at " + why);
      else if (is_next(x.current) && (view_.now == preparing || view_.now == transferring))
        clear_next("communication failed at " + why);
      else if (is_next(x.current) && view_.now == readying)
        give_up_next("communication failed at " + why);
    } else if (is_current(x.current) || is_next(x.current)) {
      exclude(from, x.what);
      missing(from, why);
    } else {
      log(severity::warning, why);
    }
  }

  void hear(const slot_id&, slot_state& slot, const kept& x) {
    if (x.job != job_)
      return;
    slot.held = x.held;
    slot.results = x.results;
    if (!x.digests.empty())
      slot.digests = x.digests;
    update_protection();
    if (final_is_protected() && (view_.now == waiting || view_.now == planning))
      plan_now(trigger_);
    check_done();
  }

  // --- time
  // -----------------------------------------------------------------------------------------------------------

  milliseconds progress_limit() const {
    return std::max(options_.progress_limit, milliseconds(static_cast<std::int64_t>(10 * view_.step_ms)));
  }

  void watch_progress() { limit_ = now_ + progress_limit(); }

  void on(const tick&) {
    for (auto& [id, slot] : slots_)
      if (slot.excluded && !slot.asked_back && *slot.excluded <= now_) {
        slot.asked_back = true;
        send(id, abort_generation{{0}}); // no generation: only asks for the inventory
      }
    if (plan_at_ && *plan_at_ <= now_) {
      plan_at_.reset();
      if (view_.now == running) {
        ask_planner();
        plan_at_ = now_ + milliseconds(specification_.planning_interval_ms);
      } else if (view_.now == waiting) {
        plan_now(trigger_);
      }
    }
    if (limit_ && *limit_ <= now_)
      limit_passed();
  }

  void limit_passed() {
    if (view_.now == running) {
      abort_current("no progress within " + std::to_string(progress_limit().count()) + " ms");
      return;
    }
    if (view_.now == planning) { // the planner was restarted or is slow: ask again
      ask_planner();
      limit_ = now_ + options_.request_limit;
      return;
    }
    if (view_.now == stopping) {
      abort_current("the generation did not stop in time");
      return;
    }
    const auto late = awaited_;
    for (const auto& slot : late) {
      const auto why = "no answer from " + to_string(slot) + " while " + to_string(view_.now);
      exclude(slot, why);
      if (awaited_.contains(slot)) // the first may have ended the phase
        missing(slot, why);
    }
  }

  // --- records
  // --------------------------------------------------------------------------------------------------------

  void open_record(const std::string& why) {
    if (!record_.trigger.empty())
      return;
    record_.trigger = why.empty() ? "start" : why;
    record_began_ = now_;
  }

  void close_record() {
    const auto closed = std::exchange(record_, {});
    if (closed.active_ms < 0)
      return; // nothing changed
    ++view_.counts[static_cast<std::size_t>(closed.kind)];
    view_.changes.push_back(closed);
    if (view_.changes.size() > changes_kept)
      view_.changes.pop_front();
  }

  void on(const cancel_requested&) { end_job(false, "cancelled"); }

  static constexpr milliseconds short_notice{3'000}; ///< a change takes less than this

  const job_id job_;
  const job_specification specification_;
  model_facts facts_;
  const conductor_options options_;
  const std::uint64_t token_seed_;

  job_view view_;
  commit_chain chain_;
  std::map<slot_id, slot_state> slots_;
  std::uint64_t arrivals_ = 0;
  generation newest_; ///< highest number given
  std::optional<run> current_;
  std::optional<change> next_;
  std::optional<placement> last_grid_; ///< of the last generation that was activated
  version base_;                       ///< version at which next_ begins; running_version while g trains
  std::string data_digest_;
  bool digests_asked_ = false;

  std::set<slot_id> awaited_;       ///< whose answer the present phase waits for
  std::optional<time_point> limit_; ///< of the present phase
  std::optional<time_point> plan_at_;
  bool plan_after_change_ = false;
  std::uint64_t plan_request_ = 0;
  std::string trigger_ = "start";

  change_record record_; ///< of the change in progress; trigger empty: none
  time_point record_began_;
  std::optional<time_point> stall_began_;

  time_point now_;
  std::vector<effect> effects_;
};

conductor::conductor(job_id job, job_specification specification, model_facts facts, conductor_options options,
                     std::uint64_t token_seed) :
    machine_(std::make_unique<machine>(job, std::move(specification), std::move(facts), options, token_seed)) {}

conductor::~conductor() = default;

std::vector<effect> conductor::handle(time_point now, const conductor_event& x) {
  return machine_->handle(now, x);
}

std::optional<time_point> conductor::deadline() const {
  return machine_->deadline();
}

const job_view& conductor::view() const {
  return machine_->view();
}

} // namespace parcae
