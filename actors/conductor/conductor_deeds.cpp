#include "actors/conductor/conductor_machine.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>
#include <cmath>

// What the rows of the table do before the next phase begins.

namespace parcae {

using enum phase;

// Waiting and planning

void conductor::machine::wait_for_anybody(const cause&) {
  problem_ = roster_.loading() ? loading_data : "waiting for instances";
  save_what_leaves();
}

void conductor::machine::wait_for_fit(const cause&) {
  if (roster_.usable() > 0) // what fits is also a matter of what is known of costs and memory by then
    desk_.put_off(now_ + milliseconds(job_.specification.planning_interval_ms));
  problem_ = desk_.choice.reason;
}

void conductor::machine::wait_for_newer(const cause&) {
  problem_ = "waiting for the return of a slot that holds newer state than the others";
  if (some_may_be_dialling())
    desk_.put_off(std::min(*returning_until_, now_ + job_.options.exclusion));
}

void conductor::machine::ask_for_newer(const cause&) { // who alone held it was lost while nothing ran
  desk_.ask();                                         // no answer under way counts
  ask_all_keepers({});                                 // no generation: only asks for the inventory
}

void conductor::machine::read_checkpoint(const cause&) {
  const auto at = ledger_.newest();
  for (const auto& id : reading_of(roster_, at, job_.layers()).readers)
    if (!std::exchange(roster_.find(id)->reading, true))
      send(id, restore{job_.id, at, ledger_.folder(), job_.specification});
  problem_ = "the keepers read the checkpoint of step " + std::to_string(at.steps);
}

std::string conductor::machine::missing_layers() const {
  std::string layers;
  for (const auto layer : reading_of(roster_, ledger_.newest(), job_.layers()).lost)
    layers += (layers.empty() ? "" : ", ") + std::to_string(layer);
  return "layers " + layers + " of the checkpoint of step " + std::to_string(ledger_.newest().steps);
}

void conductor::machine::wait_for_layers(const cause&) {
  const auto reading = reading_of(roster_, ledger_.newest(), job_.layers());
  problem_ = "waiting for a keeper that has " + missing_layers() +
             (reading.problems.empty() ? "" : " (" + reading.problems + ")");
  if (!reading.passing)
    return;
  for (auto&& [id, slot] : roster_.keepers()) // asked again then
    if (slot.read && slot.read->passing)
      slot.read.reset();
  desk_.put_off(now_ + milliseconds(job_.specification.planning_interval_ms));
}

void conductor::machine::fail_for_layers(const cause&) {
  const auto problems = reading_of(roster_, ledger_.newest(), job_.layers()).problems;
  say_farewell({missing_layers() + " are lost: " +
                (problems.empty() ? "no keeper has them; start those that do, and submit again" : problems)});
}

void conductor::machine::look_for_more(const cause& x) {
  protection_.save({});     // its share may not have arrived
  if (roster_.usable() > 0) // perhaps for the return of this one
    plan_soon(x.why);
  else
    save_what_leaves();
}

void conductor::machine::ask_in_time(const cause& x) {
  ask_planner();
  if (x.why.empty())
    desk_.because("the planning interval's end");
  desk_.at_the_latest(now_ + milliseconds(job_.specification.planning_interval_ms));
}

void conductor::machine::ask_again(const cause&) { // the planner was restarted or is slow, or planning was put off
  ask_planner();
  stand_.awaited.clear(); // keepers that do not answer
  stand_.limit = now_ + job_.options.request_limit;
}

void conductor::machine::begin_from_held(const cause&) {
  const auto from = desk_.held;
  if (from.steps < chain_.newest().steps) {
    const auto lost = chain_.newest().steps - from.steps;
    log(severity::warning,
        std::to_string(lost) + " steps are lost: the newest version all layers are held at is " + to_string(from));
    chain_.cut(from.steps);
    generations_.ended_by = {}; // void, too: whoever could still apply it may need what it holds before
    ledger_.forget_failure();
    changes_.replay(lost);
    course_.reached(from.steps);
    journal("go back to version " + to_string(from));
    protect_all(); // snapshots that are on their way, or to be sent again, are void
    protection_.go_back();
    confirm_to_keepers();
  }
  forget_readings();
  plan_next(from);
}

void conductor::machine::begin_beside(const cause&) {
  changes_.close_if_active();
  plan_next(running_version(generations_.current->g));
}

void conductor::machine::plan_next(const version& from) {
  auto& all = generations_;
  const auto& choice = desk_.choice;
  changes_.open(now_, desk_.trigger());
  std::vector<candidate> candidates;
  for (const auto& [id, slot] : roster_.slots()) {
    if (slot.excluded)
      continue;
    const bool gets_no_place = slot.leaving || (!slot.keeper && !slot.usable());
    candidates.push_back({slot.where, {}, slot.keeper, gets_no_place, slot.age});
    if (!all.current)
      candidates.back().held = slot.held;
    else
      for (auto layer : all.current->layers_of(id))
        candidates.back().held.push_back({layer, from});
  }
  auto& next = all.next.emplace();
  next.plan = plan_change(choice.width, choice.first_layer, candidates, from, job_.model.state_bytes,
                          all.last_grid ? &*all.last_grid : nullptr);
  all.newest = {all.newest.value + 1};
  if (all.newest > all.reserved) {
    all.reserved = {all.newest.value + generations::reserved_at_once - 1};
    journal({});
  }
  all.base = from;
  next.what = {.next = all.newest,
               .token = token_of(job_.secret, "generation", {job_.id.value, all.newest.value}),
               .job = job_.id,
               .specification = job_.specification,
               .data_digest = roster_.data_digest(),
               .target = next.plan.target,
               .moves = next.plan.moves};
  next.checksum = checksum_of(next.what);
  changes_.plan(now_, all.newest, next.plan, all.current.has_value(),
                static_cast<double>(busiest_link_bytes(next.plan.moves, job_.model.state_bytes)));
  problem_.clear();
  log(severity::information, "generation " + std::to_string(all.newest.value) + ": " + changes_.record().configuration +
                                 " after " + changes_.trigger() + "; " + choice.reason + "; " + next.plan.reason);
}

// After a manager that is no more

void conductor::machine::go_on(const cause&) {
  const auto& current = *generations_.current;
  problem_.clear();
  course_.begin(current.grid, roster_.side_by_side(current.grid));
  log(severity::information, "generation " + std::to_string(current.g.value) + " goes on after " + return_of_manager);
}

void conductor::machine::decide_as_before(const cause&) {
  changes_.open(now_, return_of_manager);
  changes_.stall(now_);
  generations_.current->answered_stages.clear();
}

// Giving up a generation that never ran

void conductor::machine::abort_next() {
  if (!generations_.next)
    return;
  for (const auto& slot : generations_.next->participants())
    send(slot, abort_generation{generations_.next->what.next});
  generations_.next.reset();
}

// g is healthy and goes on. The answers are not waited for: a newer PREPARE supersedes.
void conductor::machine::give_up(const cause& x) {
  abort_next();
  log(severity::information, "change given up: " + x.why);
  changes_.give_up();
  plan_soon(x.why);
}

void conductor::machine::give_up_late(const cause&) { // g is healthy, whoever of its ranks does not answer
  for (const auto& slot : stand_.awaited)
    refuse_new_place(slot, "no answer from " + to_string(slot) + " while " + to_string(stand_.now));
  give_up({"no answer from " + to_string(*stand_.awaited.begin()) + " while " + to_string(stand_.now)});
}

void conductor::machine::give_up_for_notice(const cause& x) {
  // Others can take its state over only if no one keeps them waiting again.
  if (*stand_.limit - job_.options.prepare_limit + job_.options.request_limit <= now_)
    for (const auto& slot : stand_.awaited)
      refuse_new_place(slot, "no answer while " + to_string(stand_.now));
  give_up(x);
}

// Nothing runs: the inventories are needed to plan anew.
void conductor::machine::clear(const cause& x) {
  desk_.because(x.why);
  log(severity::information, "change begun anew: " + x.why);
}

void conductor::machine::clear_broken(const cause& x) {
  desk_.count_restart();
  clear({"communication failed at " + x.why});
}

// The generation stops, or begins

void conductor::machine::secure(const cause&) {
  desk_.because("the end of a notice to those who alone hold a stage");
  log(severity::information, "the generation stops, and the keepers take its state: " + desk_.trigger());
}

void conductor::machine::end_with_final(const cause&) {
  const auto at = generations_.current->stopped_at;
  chain_.end(generations_.current->g, at.steps);
  course_.reached(at.steps);
  // Whoever finds it open finds that all of its ranks have stopped.
  journal("generation " + std::to_string(generations_.current->g.value) + " stopped at version " + to_string(at), true);
  changes_.stall(now_);
  changes_.open(now_, desk_.trigger());
  changes_.mark(&change_record::stopped_ms, now_);
  if (!is_final({}))
    return;
  abort_next();
  if (early_end_)
    log(severity::information, "the job ends at step " + std::to_string(*early_end_) + " of " +
                                   std::to_string(job_.specification.steps) + ": validation does not get better");
}

void conductor::machine::end_generation(const cause& x) {
  end_with_final(x);
  generations_.base = generations_.current->stopped_at;
  generations_.current.reset();
}

void conductor::machine::end_for_planning(const cause& x) {
  if (!generations_.next) // STOP asked for a snapshot
    protection_.save(generations_.current->stopped_at);
  end_generation(x);
  abort_next(); // not all of its participants need be of the next one, whose PREPARE would supersede it
  desk_.because(trigger());
}

// Ending a generation that ran

void conductor::machine::abort(const cause& x) {
  auto& current = *generations_.current;
  log(severity::information, "abort of generation " + std::to_string(current.g.value) + ": " + x.why);
  abort_next();
  changes_.close_if_active();
  changes_.open(now_, x.why);
  changes_.stall(now_);
  current.aborted_ranks.clear();
  current.answered_stages.clear();
  current.keepers_asked = false;
}

void conductor::machine::abort_broken(const cause& x) {
  desk_.count_restart();
  abort({"communication failed at " + x.why});
}

void conductor::machine::abort_stuck(const cause&) {
  const auto limit = progress_limit();
  course_.count_stuck();
  abort({"no progress within " + text_of_duration(limit)});
}

void conductor::machine::abort_unstopped(const cause&) {
  course_.count_stuck();
  abort({"the generation did not stop in time"});
}

void conductor::machine::ask_keepers(const cause&) {
  generations_.current->keepers_asked = true;
  ask_all_keepers(generations_.current->g);
}

void conductor::machine::decide_step(const cause&) {
  auto& current = *generations_.current;
  if (!chain_.is_open()) // decided by the manager before
    return;
  std::vector<rank_report> reports;
  for (const auto& [rank, said] : current.aborted_ranks)
    reports.push_back({rank, said});
  std::vector<kept> kept_by; // also by workers that were to go on from there, had the manager before not died
  for (const auto& [id, slot] : roster_.slots())
    if (!current.has(id))
      kept_by.push_back({job_.id, slot.held, slot.results, {}});
  auto decision = decide_open_step(current.grid, current.g, current.base, reports, kept_by);
  // What the keepers once had complete was committed by all, and older versions are gone, whoever is left to say so.
  for (const auto& known : {protection_.reached(), ledger_.newest()})
    if (known.by == current.g && known.steps > decision.last)
      decision = {{}, known.steps, "version " + to_string(known) + " was complete in the keepers"};
  const auto& reached = job_.past.reached;
  const auto done = std::max(course_.steps_done(), reached.by == current.g ? reached.steps : 0);
  const auto lost = done - std::min(done, decision.last);
  // The step in progress, if there is one after the newest version, is computed again, unless the decision saves it.
  const bool was_final = std::max(done, decision.last) == final_steps();
  const auto saved = std::ranges::any_of(reports, [&](const auto& x) {
    return decision.result.step != no_step && x.said.at.steps == decision.result.step;
  });
  changes_.replay(lost + (saved || was_final ? 0 : 1));
  chain_.end(current.g, decision.last);
  generations_.ended_by = decision.result;
  course_.reached(decision.last, decision.result);
  journal("generation " + std::to_string(current.g.value) + " ends at " + std::to_string(decision.last) + ": " +
          decision.reason);
  log(severity::information, decision.reason);
  if (lost > 0)
    log(severity::warning, counted(lost, "committed step") + " after version " + std::to_string(decision.last) +
                               (lost == 1 ? " is" : " are") + " lost with those who alone held a stage");
  if (std::ranges::any_of(reports, [&](const auto& x) { return x.said.at > version{decision.last, current.g}; }))
    protect_all(); // it may have snapshots of that on their way, which are void
  current.answered_stages.clear();
}

void conductor::machine::settle(const cause&) {
  changes_.settle(now_, static_cast<std::uint32_t>(std::ranges::count_if(
                            generations_.current->rank_of, [&](const auto& x) { return !roster_.find(x.first); })));
  desk_.because(trigger());
}

// Slots that do not answer

void conductor::machine::note_lost(const cause& x) {
  changes_.add_trigger(x.why);
  answered(x.slot);
}

void conductor::machine::wait_longer(const cause&) {
  log(severity::information, "waiting for the answer of one who alone holds a stage");
  stand_.limit = *changes_.stall_began() + progress_limit();
}

void conductor::machine::take_for_lost(const cause&) {
  stand_.limit.reset(); // whatever comes of it sets its own
  const auto during = to_string(stand_.now);
  for (const auto& slot : std::set(stand_.awaited)) {
    const auto why = "no answer from " + to_string(slot) + " while " + during;
    exclude(slot, why);
    missing(slot, why); // also if the first has ended the phase: this one may have a place in what goes on
  }
}

} // namespace parcae
