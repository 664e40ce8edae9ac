#include "actors/conductor/conductor_machine.hpp"

#include <algorithm>

// Recovering, waiting, planning: nothing is known to train, and what may is looked for.

namespace parcae {

using enum phase;

// clang-format off
std::vector<conductor::machine::row> conductor::machine::recovering_rows() {
  using enum trigger_kind;
  using m = machine;
  return {
    // Ranks of the manager before may train, or wait for the rest of a change: each is asked as it comes.
    {recovering, came, "nobody came before", &m::nobody_came_before,
      "limits the wait for the others", &m::await_ranks, {}},
    {recovering, rank_came, "its pipeline was not cut", &m::has_part,
      "asks it", &m::repeat_question, {}},
    {recovering, source_came, "g may train", &m::may_train,
      "ACTIVATE, which is not answered", &m::repeat_question, {}},
    {recovering, says_active, "g may train", &m::may_train,
      "one answer less to wait for", &m::note_answer_of_rank, {}},
    {recovering, says_aborted, "of g, which had ended", &m::of_ended,
      "one answer less to wait for", &m::note_aborted, {}},
    // A generation that trains needs all its ranks; of one that does not each stage is enough.
    {recovering, rank_heard, "of each stage, and g does not train", &m::rest_is_not_needed,
      "waits less for the others", &m::wait_less_for_return, {}},
    {recovering, all_answered, "g had ended", &m::had_ended,
      "", &m::decide_as_before, deciding},
    {recovering, all_answered, "g serves, and a pipeline of it is whole", &m::some_serve,
      "ABORT of g to the others, for which it plans soon", &m::serve_by_some, running},
    {recovering, all_answered, "all ranks of g are here, and none is broken", &m::all_train,
      "", &m::go_on, running},
    {recovering, all_answered, "", nullptr,
      "", &m::abort_unheard, aborting},
    {recovering, late, "g had ended", &m::had_ended,
      "", &m::decide_as_before, deciding},
    // Who trains answers at once; who waits for shards, when it has them.
    {recovering, late, "all ranks of g are here, and may wait for state", &m::may_be_moving,
      "waits as long as that may take", &m::await_state, {}},
    {recovering, late, "g serves, and a pipeline of it is whole", &m::some_serve,
      "ABORT of g to the others, for which it plans soon", &m::serve_by_some, running},
    {recovering, late, "", nullptr,
      "", &m::abort_unheard, aborting},
    {recovering, place_lost, "g serves, and may still", &m::may_serve,
      "ABORT of g to its pipeline, which is not waited for", &m::lose_unawaited, {}},
    {recovering, broken, "g serves, and may still", &m::may_serve,
      "ABORT of g to its pipeline, which is not waited for", &m::lose_unawaited, {}},
    {recovering, place_lost, "a rank of each stage has answered", &m::each_stage_answered,
      "", &m::abort, aborting},
    {recovering, broken, "a rank of each stage has answered", &m::each_stage_answered,
      "counts a restart", &m::abort_broken, aborting},
    // Who sent it state went with the manager before.
    {recovering, broken, "g may train", &m::may_train,
      "waits less for the others", &m::note_broken, {}},
    // Asked by ABORT, it still says what it holds.
    {recovering, failed_alive, "g had ended", &m::had_ended,
      "", nullptr, {}},
    {recovering, lost, "", nullptr,
      "waits for one answer less", &m::note_lost, {}},
  };
}

std::vector<conductor::machine::row> conductor::machine::waiting_rows() {
  using enum trigger_kind;
  using m = machine;
  return {
    {waiting, due, "", nullptr,
      "", nullptr, planning},
    {waiting, says_restored, "", nullptr,
      "one answer less to wait for", &m::note_last_read, {}},
    {waiting, all_answered, "", nullptr, // by keepers that read a checkpoint
      "", nullptr, planning},
    // A reading may take hours: each layer begins the limit anew.
    {waiting, says_kept, "it reads a checkpoint", &m::is_reading,
      "waits for the rest of it", &m::wait_for_reading, {}},
    {waiting, kept, "the keepers hold the final version, and it was evaluated", &m::final_is_settled,
      "", nullptr, planning},
    {waiting, keeper_heard, "", nullptr,
      "plans soon, or saves what is under notice", &m::look_for_more, {}},
    {waiting, newer_kept, "", nullptr, // no worker will send it
      "the other keepers get their copies", &m::fill_others, {}},
    {waiting, loading, "no slot can be used", &m::nobody_is_usable,
      "says so", &m::say_loading, {}},
    {waiting, silent, "", nullptr, // it waits perhaps for what this slot holds
      "plans soon", &m::look_again, {}},
    {waiting, returned, "what is saved has not arrived", &m::saving_is_open,
      "saves it again", &m::save_again, {}},
    {waiting, lost, "", nullptr,
      "plans soon, or saves what is under notice", &m::look_for_more, {}},
    {waiting, closing, "", nullptr,
      "keepers write what they hold, then the job ends", &m::close_waiting, {}},
  };
}

std::vector<conductor::machine::row> conductor::machine::planning_rows() {
  using enum trigger_kind;
  using m = machine;
  return {
    {planning, kept, "the keepers hold the final version, and it was evaluated", &m::final_is_settled,
      "", nullptr, finishing},
    {planning, nobody, "", nullptr,
      "saves what is under notice", &m::wait_for_anybody, waiting},
    {planning, chosen, "nothing fits", &m::nothing_fits,
      "asks again after the interval", &m::wait_for_fit, waiting},
    {planning, chosen, "it takes more slots than are left", &m::too_few_are_left,
      "", nullptr, planning},
    // What fails once need not have lost what it holds: steps are given up only after it failed repeatedly.
    {planning, chosen, "who holds newer state may come back", &m::newer_may_return,
      "", &m::wait_for_newer, waiting},
    // Who alone held it was lost while nothing ran.
    {planning, chosen, "steps would be given up, and the keepers were not asked", &m::keepers_may_hold_newer,
      "asks them what they hold", &m::ask_for_newer, {}},
    {planning, chosen, "the checkpoint is newer, and keepers have to read it", &m::checkpoint_can_be_read,
      "RESTORE to keepers", &m::read_checkpoint, waiting},
    {planning, chosen, "the checkpoint is newer, and is lost", &m::checkpoint_is_lost,
      "names the layers", &m::fail_for_layers, ended},
    {planning, chosen, "the checkpoint is newer, and a part is missing", &m::checkpoint_is_newer,
      "names the layers", &m::wait_for_layers, waiting},
    {planning, chosen, "", nullptr,
      "cuts the chain if it must; plans places and moves", &m::begin_from_held, preparing},
    {planning, says_aborted, "of no generation", &m::of_none,
      "one answer less to wait for", &m::note_answer, {}},
    {planning, says_restored, "", nullptr,
      "takes note of it", &m::note_read, {}},
    {planning, all_answered, "", nullptr, // by keepers
      "asks the planner again", &m::ask_again, {}},
    {planning, late, "", nullptr,
      "asks the planner again", &m::ask_again, {}},
    {planning, closing, "", nullptr,
      "", nullptr, waiting},
  };
}
// clang-format on

// Recovering

bool conductor::machine::all_are_here(const trigger&) const {
  return std::ranges::all_of(generations_.current->rank_of, [&](const auto& x) {
    const auto* slot = roster_.find(x.first);
    return slot && !slot->excluded;
  });
}

bool conductor::machine::all_train(const trigger& x) const {
  return all_are_here(x) && !generations_.current->broken && generations_.current->gone.empty();
}

bool conductor::machine::each_stage_answered(const trigger&) const {
  return generations_.current->answered_stages.size() == generations_.current->grid.depth;
}

bool conductor::machine::rest_is_not_needed(const trigger&) const {
  return each_stage_answered() && (had_ended() || !generations_.current->stopped_ranks.empty());
}

time_point conductor::machine::end_of_moving() const {
  return *manager_.returning_until + job_.transfer_limit(job_.state_bytes(0, job_.layers()));
}

bool conductor::machine::may_be_moving(const trigger&) const {
  return all_train({}) && manager_.returning_until && now_ < end_of_moving();
}

void conductor::machine::await_state(const trigger&) {
  wait_until(end_of_moving());
}

void conductor::machine::wait_less_for_return(const trigger&) {
  phase_.limit = std::min(*phase_.limit, now_ + job_.options.rest_limit);
}

void conductor::machine::note_broken(const trigger& x) {
  generations_.current->broken = true;
  wait_less_for_return(x);
}

void conductor::machine::go_on(const trigger&) {
  const auto& current = *generations_.current;
  phase_.problem.clear();
  course_.begin(current.grid, roster_.side_by_side(current.grid), roster_.kind_of(current.grid));
  log(severity::information, "generation " + std::to_string(current.g.value) + " goes on after " + return_of_manager);
}

void conductor::machine::decide_as_before(const trigger&) {
  changes_.open(now_, return_of_manager);
  changes_.stall(now_);
  generations_.current->answered_stages.clear();
}

// Waiting

void conductor::machine::begin_waiting() {
  generations_.on_grid = false;
  changes_.wait();
  fill_keepers();
  for (const auto& [id, slot] : roster_.keepers())
    if (slot.reading && !slot.excluded) {
      phase_.awaited.insert(id);
      wait_until(now_ + job_.transfer_limit(job_.state_bytes(0, job_.layers())));
    }
  if (desk_.take_missed()) // something happened while the planner thought
    plan_soon(desk_.trigger());
}

void conductor::machine::look_for_more(const trigger& x) {
  protection_.save({});     // its share may not have arrived
  if (roster_.usable() > 0) // perhaps for the return of this one
    plan_soon(x.why);
  else
    save_what_leaves();
}

void conductor::machine::save_again(const trigger&) {
  protection_.save({});
  save_what_leaves();
}

void conductor::machine::save_what_leaves() {
  const auto held = newest_held(false);
  if (no_keeper() || held <= std::max(protection_.newest(), protection_.saving()))
    return;
  protection_.save(held);
  for (const auto& [id, slot] : roster_.workers())
    if (!slot.excluded) {
      auto whole = protect_message(id, true);
      whole.whole = true;
      send(id, std::move(whole));
    }
}

void conductor::machine::wait_for_reading(const trigger&) {
  wait_until(now_ + job_.transfer_limit(job_.state_bytes(0, job_.layers())));
}

void conductor::machine::note_read(const trigger& x) {
  roster_.find(x.slot)->read = std::get<restored>(*x.said);
}

void conductor::machine::note_last_read(const trigger& x) {
  note_read(x);
  answered(x.slot);
}

void conductor::machine::close_waiting(const trigger&) {
  const auto& held = protection_.newest();
  phase_.problem = "the manager ends";
  std::optional<std::string> over;
  if (no_keeper())
    over = "there is no keeper";
  else if (newest_held(true) > held) // perhaps once somebody has answered
    save_what_leaves();
  else if (!ledger_.limit() && ledger_.has(held))
    over = "";
  else if (!ledger_.limit() && ledger_.has_failed(held))
    over = ledger_.view().checkpoint_problem;
  else if (!ledger_.limit()) {
    ledger_.ask(held);
    write_checkpoint();
  }
  if (over)
    happens({trigger_kind::over, {}, closing_text(*over)});
}

// Planning

bool conductor::machine::too_few_are_left(const trigger&) const {
  return desk_.choice.width * desk_.choice.depth > roster_.usable();
}

bool conductor::machine::newer_may_return(const trigger&) const {
  // What fails once need not have lost what it holds: steps are given up only after it failed repeatedly.
  return desk_.held.steps < chain_.newest().steps &&
         (some_may_be_dialling() || newest_held(true).steps > desk_.held.steps);
}

bool conductor::machine::keepers_may_hold_newer(const trigger&) const {
  const auto left = std::max(desk_.held.steps, ledger_.newest().steps);
  return left < chain_.newest().steps && roster_.has_keepers() && !phase_.question;
}

bool conductor::machine::checkpoint_is_newer(const trigger&) const {
  return desk_.held.steps < chain_.newest().steps && desk_.held.steps < ledger_.newest().steps;
}

bool conductor::machine::checkpoint_can_be_read(const trigger& x) const {
  return checkpoint_is_newer(x) && !reading_of(roster_, ledger_.newest(), job_.layers()).readers.empty();
}

bool conductor::machine::checkpoint_is_lost(const trigger& x) const {
  // A keeper that has the rest of what this job wrote may come back. What the user named must be there.
  if (!checkpoint_is_newer(x))
    return false;
  const auto reading = reading_of(roster_, ledger_.newest(), job_.layers());
  return reading.damaged || (ledger_.newest().by == generation{} && reading.asked && !reading.passing);
}

void conductor::machine::begin_planning() {
  generations_.next.reset();
  generations_.current.reset();
  generations_.ahead.reset(); // it goes with RELEASE of what follows
  roster_.allow_new_places();
  update_protection();
  if (losses_.complete() < steps_committed()) // they may be the only ones to know of the last steps, and go next
    recall_from_keepers();
  if (happens({trigger_kind::kept}) || (roster_.usable() == 0 && happens({trigger_kind::nobody})))
    return;
  if (const auto pause = desk_.pause(job_.options.exclusion); pause > milliseconds(0)) {
    desk_.ask(); // no answer under way counts
    wait_until(now_ + pause);
  } else {
    ask_again({});
  }
}

void conductor::machine::wait_for_anybody(const trigger&) {
  phase_.problem = roster_.loading() ? loading_data : "waiting for instances";
  write_checkpoint(true); // nobody is left to evaluate it
  save_what_leaves();
}

void conductor::machine::wait_for_fit(const trigger&) {
  if (roster_.usable() > 0) // what fits is also a matter of what is known of costs and memory by then
    desk_.put_off(now_ + milliseconds(job_.specification.planning_interval_ms));
  phase_.problem = desk_.choice.reason;
}

void conductor::machine::wait_for_newer(const trigger&) {
  phase_.problem = "waiting for the return of a slot that holds newer state than the others";
  if (some_may_be_dialling())
    desk_.put_off(std::min(*manager_.returning_until, now_ + job_.options.exclusion));
}

void conductor::machine::ask_for_newer(const trigger&) {                 // who alone held it was lost while nothing ran
  desk_.ask();                                                           // no answer under way counts
  ask(keepers_in_use(), abort_generation{}, job_.options.request_limit); // no generation: asks for the inventory
}

void conductor::machine::read_checkpoint(const trigger&) {
  const auto at = ledger_.newest();
  for (const auto& id : reading_of(roster_, at, job_.layers()).readers)
    if (!std::exchange(roster_.find(id)->reading, true))
      send(id, restore{job_.id, at, ledger_.folder(), job_.specification});
  phase_.problem = "the keepers read the checkpoint of step " + std::to_string(at.steps);
}

std::string conductor::machine::missing_layers() const {
  std::string layers;
  for (const auto layer : reading_of(roster_, ledger_.newest(), job_.layers()).lost)
    layers += (layers.empty() ? "" : ", ") + std::to_string(layer);
  return "layers " + layers + " of the checkpoint of step " + std::to_string(ledger_.newest().steps);
}

void conductor::machine::wait_for_layers(const trigger&) {
  const auto reading = reading_of(roster_, ledger_.newest(), job_.layers());
  phase_.problem = "waiting for a keeper that has " + missing_layers() +
                   (reading.problems.empty() ? "" : " (" + reading.problems + ")");
  if (!reading.passing)
    return;
  for (auto&& [id, slot] : roster_.keepers()) // asked again then
    if (slot.read && slot.read->passing)
      slot.read.reset();
  desk_.put_off(now_ + milliseconds(job_.specification.planning_interval_ms));
}

void conductor::machine::fail_for_layers(const trigger& x) {
  const auto problems = reading_of(roster_, ledger_.newest(), job_.layers()).problems;
  say_farewell({x.kind,
                {},
                missing_layers() + " are lost: " +
                    (problems.empty() ? "no keeper has them; start those that do, and submit again" : problems)});
}

void conductor::machine::ask_again(const trigger&) { // the planner was restarted or is slow, or planning was put off
  ask_planner();
  phase_.awaited.clear(); // keepers that do not answer
  wait_until(now_ + job_.options.request_limit);
}

void conductor::machine::begin_from_held(const trigger&) {
  const auto from = desk_.held;
  if (from.steps < chain_.newest().steps) {
    const auto lost = chain_.newest().steps - from.steps;
    log(severity::warning,
        std::to_string(lost) + " steps are lost: the newest version all layers are held at is " + to_string(from));
    chain_.cut(from.steps);
    generations_.ended_by = {}; // void, too: a rank that could still apply it may need what it holds before
    ledger_.forget_failure();
    changes_.replay(lost);
    course_.reached(from.steps);
    losses_.go_back(from.steps);
    persist("go back to version " + to_string(from));
    protect_all(); // snapshots that are on their way, or to be sent again, are void
    protection_.go_back();
    confirm_to_keepers();
  }
  forget_readings();
  plan_next(from);
}

void conductor::machine::forget_readings() {
  for (auto&& [id, slot] : roster_.keepers())
    slot.read.reset();
}

} // namespace parcae
