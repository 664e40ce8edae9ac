#include "actors/conductor/conductor_machine.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace parcae {

using enum phase;

void conductor::machine::give_up_next(const std::string& why) {
  for (const auto& slot : participants_of_next())
    send(slot, abort_generation{next_->what.next});
  next_.reset();
  log(severity::information, "change given up: " + why);
  record_ = {};
  enter(running);
  watch_progress();
  plan_soon(why);
}

void conductor::machine::clear_next(const std::string& why) {
  trigger_ = why;
  std::set<slot_id> alive;
  for (const auto& id : participants_of_next())
    if (const auto slot = slots_.find(id); slot != slots_.end()) {
      send(id, abort_generation{next_->what.next});
      if (!slot->second.excluded)
        alive.insert(id);
    }
  log(severity::information, "change begun anew: " + why);
  enter_waiting_for(clearing, std::move(alive), options_.request_limit);
  if (awaited_.empty())
    plan_now(trigger_);
}

void conductor::machine::abort_current(const std::string& why) {
  log(severity::information, "abort of generation " + std::to_string(current_->g.value) + ": " + why);
  if (next_ && next_->what.next != current_->g)
    for (const auto& slot : participants_of_next())
      send(slot, abort_generation{next_->what.next});
  next_.reset();
  close_record_of_active();
  open_record(why);
  stall_began_ = now_;
  current_->aborted_ranks.clear();
  current_->answered_stages.clear();
  std::set<slot_id> alive;
  std::set<std::uint32_t> stages;
  for (const auto& [id, rank] : current_->rank_of)
    if (const auto slot = slots_.find(id); slot != slots_.end()) {
      send(id, abort_generation{current_->g});
      if (!slot->second.excluded) {
        alive.insert(id);
        stages.insert(current_->grid.stage_of(rank));
      }
    }
  // Where a stage has nobody left the keepers decide, and what they last said may be old.
  if (stages.size() < current_->grid.depth)
    for (const auto& [id, slot] : slots_)
      if (slot.keeper && !slot.excluded) {
        send(id, abort_generation{current_->g});
        alive.insert(id);
      }
  enter_waiting_for(aborting, std::move(alive), options_.request_limit);
  if (awaited_.empty())
    decide_step();
}

bool conductor::machine::only_holder_is_awaited() const {
  const auto& said = current_->answered_stages;
  return said.size() < current_->grid.depth && std::ranges::any_of(awaited_, [&](const slot_id& slot) {
           const auto rank = current_->rank_of.find(slot);
           return rank != current_->rank_of.end() && !said.contains(current_->grid.stage_of(rank->second));
         });
}

void conductor::machine::decide_step() {
  std::vector<rank_report> reports;
  for (const auto& [rank, said] : current_->aborted_ranks)
    reports.push_back({rank, said});
  std::vector<kept> kept_by;
  for (const auto& [id, slot] : slots_)
    if (slot.keeper)
      kept_by.push_back({job_, slot.held, slot.results, {}});
  auto decision = decide_open_step(current_->grid, current_->g, current_->base, reports, kept_by);
  // What the keepers once had complete was committed by all, and older versions are gone, whoever is left to say so.
  if (confirmed_.by == current_->g && confirmed_.steps > decision.last)
    decision = {{}, confirmed_.steps, "version " + to_string(confirmed_) + " was complete in the keepers"};
  const auto lost = view_.steps_done - std::min(view_.steps_done, decision.last);
  view_.replayed_steps += lost;
  record_.replayed_steps += lost;
  chain_.end(current_->g, decision.last);
  // The step in progress, if there is one after the newest version, is computed again, unless the decision saves it.
  const bool was_final = std::max(view_.steps_done, decision.last) == specification_.steps;
  const auto saved = std::ranges::any_of(reports, [&](const auto& x) {
    return decision.result.step != no_step && x.said.at.steps == decision.result.step;
  });
  if (!saved && !was_final) {
    ++view_.replayed_steps;
    ++record_.replayed_steps;
  }
  if (decision.result.step != no_step)
    view_.last_result = decision.result;
  view_.steps_done = decision.last;
  journal("generation " + std::to_string(current_->g.value) + " ends at " + std::to_string(decision.last) + ": " +
          decision.reason);
  log(severity::information, decision.reason);
  if (lost > 0)
    log(severity::warning, counted(lost, "committed step") + " after version " + std::to_string(decision.last) +
                               (lost == 1 ? " is" : " are") + " lost with those who alone held a stage");
  if (std::ranges::any_of(reports, [&](const auto& x) { return x.said.at > version{decision.last, current_->g}; }))
    protect_all(); // it may have snapshots of that on their way, which are void
  current_->answered_stages.clear();
  current_->decision = decision.result;
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

void conductor::machine::settle() {
  record_.decided_ms = ms_between(record_.at, now_);
  record_lost_ = static_cast<std::uint32_t>(
      std::ranges::count_if(current_->rank_of, [&](const auto& x) { return !slots_.contains(x.first); }));
  plan_now(trigger_of_record());
}

void conductor::machine::answered(const slot_id& slot) {
  if (awaited_.erase(slot) == 0 || !awaited_.empty())
    return;
  switch (view_.now) {
  case readying:
    record_.prepared_ms = ms_between(record_.at, now_);
    begin_stop();
    break;
  case preparing:
    record_.prepared_ms = ms_between(record_.at, now_);
    begin_transfer();
    break;
  case stopping:
    all_stopped();
    break;
  case transferring:
    record_.ready_ms = ms_between(record_.at, now_);
    begin_activation();
    break;
  case activating:
    all_active();
    break;
  case waiting: // for keepers that read a checkpoint
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

void conductor::machine::begin_stop(bool snapshot) {
  std::set<slot_id> ranks;
  for (const auto& [slot, rank] : current_->rank_of) {
    send(slot, stop{current_->g, snapshot});
    if (!current_->stopped_ranks.contains(slot))
      ranks.insert(slot);
  }
  stop_is_snapshot_ = snapshot;
  enter_waiting_for(stopping, std::move(ranks), progress_limit());
  watch_notices();
  if (awaited_.empty())
    all_stopped();
}

std::optional<time_point> conductor::machine::last_moment() const {
  const auto& grid = current_->grid;
  std::set<std::uint32_t> stages; // of which somebody leaves
  for (const auto& id : leaving_)
    if (const auto rank = current_->rank_of.find(id); rank != current_->rank_of.end())
      stages.insert(grid.stage_of(rank->second));
  std::optional<time_point> earliest;
  for (auto s : stages) {
    std::optional<time_point> end; // when the last replica is gone
    bool stays = false;
    for (std::uint32_t pipeline = 0; pipeline < grid.width; ++pipeline)
      if (const auto slot = slots_.find(grid.participants[grid.rank(pipeline, s)].slot); slot != slots_.end()) {
        stays = stays || !slot->second.leaving;
        end = std::max(end, slot->second.leaving);
      }
    if (stays || !end)
      continue;
    const auto bytes = std::accumulate(facts_.state_bytes.begin() + grid.first_layer[s],
                                       facts_.state_bytes.begin() + grid.first_layer[s + 1], std::uint64_t{0});
    const auto move = cost_of(meter_.figures(), 0, grid.ranks(), static_cast<double>(bytes)).stall_ms();
    const auto moment = *end - milliseconds(static_cast<std::int64_t>(std::ceil(move_margin * move)));
    earliest = std::min(earliest.value_or(moment), moment);
  }
  return earliest;
}

void conductor::machine::watch_notices() {
  if (const auto moment = last_moment(); moment && can_be_moved() && view_.now == stopping && limit_)
    limit_ = std::min(*limit_, *moment);
}

std::optional<time_point> conductor::machine::moment_to_secure() const {
  if (leaving_.empty())
    return {};
  const bool change_is_due = view_.now == running && news_ && usable_slots() > 0;
  if ((view_.now != running && view_.now != readying) || keepers().empty() || change_is_due)
    return {};
  const auto moment = last_moment();
  if (!moment)
    return {};
  // The keepers take what all stages hold, and the step in progress ends before, with the evaluation if one comes until
  // then.
  const auto every = specification_.evaluate_every;
  const auto steps_to_evaluation = every > 0 ? (every - view_.steps_done % every) % every : 0;
  const bool evaluates = static_cast<double>(steps_to_evaluation) * view_.step_ms < ms_between(now_, *moment);
  const auto bytes = std::accumulate(facts_.state_bytes.begin(), facts_.state_bytes.end(), std::uint64_t{0});
  const auto ms =
      static_cast<double>(bytes) / meter_.figures().link_bytes_per_ms + (evaluates ? longest_step_ms() : view_.step_ms);
  return *moment - milliseconds(static_cast<std::int64_t>(std::ceil(move_margin * ms)));
}

void conductor::machine::secure() {
  trigger_ = "the end of a notice to those who alone hold a stage";
  log(severity::information, "the generation stops, and the keepers take its state: " + trigger_);
  begin_stop(true);
}

void conductor::machine::save_what_leaves() {
  const auto held = newest_held(false);
  if (keepers().empty() || held <= std::max(view_.protected_version, saved_))
    return;
  saved_ = held;
  for (const auto& [id, slot] : slots_)
    if (!slot.keeper && !slot.excluded)
      send(id, protect{job_, keepers(), pass(id), true, true});
}

void conductor::machine::all_stopped() {
  const auto at = current_->stopped_at;
  chain_.end(current_->g, at.steps);
  view_.steps_done = at.steps;
  journal("generation " + std::to_string(current_->g.value) + " stopped at version " + to_string(at));
  stall_began_ = now_;
  if (record_.trigger.empty())
    open_record(trigger_);
  record_.stopped_ms = ms_between(record_.at, now_);
  if (at.steps == specification_.steps) {
    if (next_)
      for (const auto& slot : participants_of_next())
        send(slot, abort_generation{next_->what.next});
    next_.reset();
    finish();
    return;
  }
  if (stop_is_snapshot_)
    saved_ = at;
  current_.reset();
  base_ = at;
  if (next_ && next_->good)
    begin_transfer();
  else {
    if (next_) // not all of its participants need be of the next one, whose PREPARE would supersede it
      for (const auto& slot : participants_of_next())
        send(slot, abort_generation{next_->what.next});
    plan_now(trigger_of_record());
  }
}

void conductor::machine::begin_transfer() {
  const auto limit = options_.transfer_limit + milliseconds(next_->plan.bytes / 10'000);
  for (const auto& p : next_->what.target.participants)
    send(p.slot, transfer{next_->what.next, base_});
  enter_waiting_for(transferring, participants_of_next(), limit);
}

void conductor::machine::begin_activation() {
  const auto g = next_->what.next;
  chain_.begin(g, base_.steps);
  journal("generation " + std::to_string(g.value) + " begins at version " + to_string(base_));
  run began{g, next_->what.target, base_.steps, {}, {}, {}, {}, {}, false};
  std::set<slot_id> ranks;
  for (std::uint32_t r = 0; r < began.grid.ranks(); ++r) {
    began.rank_of[began.grid.participants[r].slot] = r;
    ranks.insert(began.grid.participants[r].slot);
  }
  current_ = std::move(began);
  last_grid_ = current_->grid;
  steps_.begin(current_->grid, side_by_side(current_->grid));
  view_.peak_bytes.clear();
  view_.current = g;
  view_.grid = current_->grid;
  // Those who only sent shards count no longer; those with a place keep what they hold until RELEASE.
  next_.reset();
  begun_at_ = now_;
  for (const auto& [id, slot] : slots_)
    if (slot.keeper)
      send(id, guard_message());
  for (const auto& slot : ranks)
    send(slot, activate{g, base_});
  enter_waiting_for(activating, std::move(ranks), options_.request_limit);
}

void conductor::machine::all_active() {
  active_at_ = now_;
  record_.active_ms = ms_between(record_.at, now_);
  record_.stall_ms = stall_began_ ? ms_between(*stall_began_, now_) : 0;
  learn_from_record();
  for (auto& x : view_.decisions)
    if (x.to == current_->g)
      x.realised_ms = record_.stall_ms;
  stall_began_.reset();
  if (current_->stopped_ranks.size() == current_->rank_of.size()) { // there was no step left to do
    finish();
    return;
  }
  enter(running);
  watch_progress();
  if (!plan_at_) // else a reason to plan came just before the change began
    plan_at_ = now_ + milliseconds(specification_.planning_interval_ms);
  if (current_->committed)
    first_commit();
  if (std::exchange(plan_after_change_, false))
    plan_soon(trigger_);
}

void conductor::machine::first_commit() {
  for (auto& [id, slot] : slots_) // what went wrong before this change says nothing of the next
    if (!slot.excluded && !slot.no_new_place)
      slot.back_off = milliseconds(0);
  if (record_.to == current_->g) {
    record_.first_commit_ms = ms_between(record_.at, now_);
    close_record();
  } else if (!view_.changes.empty() && view_.changes.back().to == current_->g) {
    auto& closed = view_.changes.back();
    closed.first_commit_ms = closed.active_ms + ms_between(active_at_, now_);
  }
  release_all();
}

void conductor::machine::finish() {
  close_record();
  enter(finishing);
  if (chain_.links().back().last == UINT64_MAX) {
    chain_.end(current_->g, specification_.steps);
    journal("the final version is reached");
  }
  say_what_finishing_waits_for();
  update_protection();
  check_done();
}

void conductor::machine::say_what_finishing_waits_for() {
  const std::string waits = "waiting for a keeper to hold the final version";
  if (view_.now == finishing && keepers().empty())
    view_.problem = waits;
  else if (view_.problem == waits)
    view_.problem.clear();
}

void conductor::machine::check_final_state(const std::string& why) {
  const bool ranks_hold_it = current_ && std::ranges::all_of(current_->rank_of, [&](const auto& x) {
                               const auto rank = slots_.find(x.first);
                               return rank != slots_.end() && !rank->second.excluded;
                             });
  if (!ranks_hold_it && !final_is_protected())
    plan_now(why);
}

void conductor::machine::check_done() {
  if (view_.now != finishing || !final_is_protected())
    return;
  std::map<std::uint32_t, std::string> digests;
  for (const auto& [id, slot] : slots_)
    for (const auto& d : slot.digests)
      digests[d.layer] = d.sha256;
  if (digests.size() < facts_.state_bytes.size()) {
    if (!std::exchange(digests_asked_, true)) {
      confirm_to_keepers(true);
      limit_ = now_ + options_.prepare_limit;
    }
    return;
  }
  if (!final_is_on_disk()) {
    write_checkpoint();
    if (writing_)
      limit_ = writing_->limit;
    return;
  }
  view_.layer_digests.clear();
  for (auto& [layer, digest] : digests)
    view_.layer_digests.push_back({layer, digest});
  journal("done: the keepers hold, and have on disk, the final version " + to_string(view_.protected_version));
  end_job(true, "done");
}

} // namespace parcae
