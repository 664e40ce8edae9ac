#include "actors/conductor/conductor_machine.hpp"

#include <algorithm>

// Who comes, goes, and is not used for a while.

namespace parcae {

void conductor::machine::on(const slot_joined& x) {
  const auto& id = x.where.slot;
  const bool serves = job_.specification.serves();
  if (x.gateway && serves)
    service_.join(id, *x.gateway);
  if (x.gateway || (x.keeper && serves))
    return; // others' jobs need them
  auto& slot = roster_.join(id, now_, x.kind);
  slot.where = x.where;
  slot.keeper = x.keeper;
  slot.memory = x.memory;
  slot.machine = x.machine;
  // Whatever ends it, each time that it comes and goes costs the others two changes.
  if (!x.keeper && !facts().waits && !generations_.has_place(id) && !generations_.sends(id) &&
      roster_.hold_back(slot, now_)) {
    slot.unused_because = "lost " + std::to_string(slot.past.short_lives) + " times in a row, each time within " +
                          std::to_string(roster::short_life.count()) + " s";
    log(severity::warning, to_string(id) + " gets no new place for now: " + slot.unused_because);
  }
  const bool returned = take_back(id, slot);
  if (x.keeper) { // it counts once it has said what it holds
    losses_.forget(id);
    send(id, guard_message());
    confirm_to(id);
    say_what_finishing_waits_for();
    happens({trigger_kind::keeper_came, id});
  } else if (!returned) { // else planned with once it has said what it holds
    if (!protection_.shares().empty())
      send(id, protect_message(id, false));
    ask_to_load(id, slot, "join of ");
  }
}

bool conductor::machine::take_back(const slot_id& id, slot_state& slot) {
  const auto before = roster_.come_back(id);
  if (!before && !is_recovered())
    return false;
  if (is_recovered() && !manager_.returning_until)
    manager_.returning_until = now_ + job_.options.return_limit;
  happens({trigger_kind::came, id});
  const bool is_asked = (generations_.has_place(id) &&
                         happens({.kind = trigger_kind::rank_came, .slot = id, .known = before.has_value()})) ||
                        (generations_.sends(id) && happens({trigger_kind::source_came, id}));
  if (is_asked && !slot.keeper) {
    if (roster_.has_keepers()) // they may be others than it knows
      send(id, protect_message(id, !protection_.is_current()));
    ask_to_load(id, slot, "return of ");
    return true;
  }
  if (!slot.keeper) { // not used before it has answered
    roster_.exclude(slot, now_ + job_.options.request_limit);
    slot.asked_back = true;
  }
  // A rank of the manager before may still compute, and wait for a peer that is gone. Of one that this manager had,
  // nothing older than what it was to compute last is left there, nor newer than what it prepared last.
  if (!before && !slot.keeper) {
    const auto& grid = job_.durable.grid;
    const auto place = std::ranges::find(grid.participants, id, &participant::slot) - grid.participants.begin();
    const bool was_rank = place < static_cast<std::ptrdiff_t>(grid.ranks());
    // Of no generation: only asks for the inventory.
    send(id, abort_generation{was_rank ? job_.durable.last : generation{}});
  }
  const auto commanded = before.value_or(generations_commanded{});
  for (const auto g : {commanded.activated, commanded.prepared})
    if (g != generation{})
      send(id, abort_generation{g});
  return true;
}

void conductor::machine::ask_to_load(const slot_id& id, slot_state& slot, const char* arrival) {
  slot.loaded = false;
  slot.arrival = arrival + to_string(id);
  send(id, load{job_.id, job_.specification});
  happens({trigger_kind::loading, id});
}

void conductor::machine::on(const slot_lost& x) {
  service_.lose(x.slot);
  const auto* slot = roster_.find(x.slot);
  if (!slot)
    return;
  desk_.forget_restarts();
  const bool was_keeper = slot->keeper;
  roster_.lose(x.slot, now_);
  if (was_keeper) {
    protect_all();
    note_share(ledger_.lose(x.slot, chain_));
    say_what_finishing_waits_for();
  }
  missing(x.slot, "loss of " + to_string(x.slot) + " (" + x.why + ")");
}

void conductor::machine::missing(const slot_id& slot, const std::string& why) {
  const bool has_place = generations_.has_place(slot);
  if (generations_.sends(slot))
    happens({trigger_kind::source_lost, slot, why});
  if (!(has_place && happens({trigger_kind::place_lost, slot, why})) &&
      !(generations_.takes_part(slot) && happens({trigger_kind::part_lost, slot, why})))
    happens({trigger_kind::lost, slot, why});
}

void conductor::machine::exclude(const slot_id& id, const std::string& why, bool for_good) {
  if (auto* slot = roster_.find(id)) {
    if (std::exchange(slot->unused_because, why) != why) // else it tried again, in vain
      log(severity::warning, to_string(id) + " is not used for now: " + why);
    for_good ? roster_.exclude(*slot, time_point::max()) : roster_.exclude_for_a_while(*slot, now_);
  }
}

void conductor::machine::refuse_new_place(const slot_id& id, const std::string& why) {
  if (auto* slot = roster_.find(id)) {
    if (std::exchange(slot->unused_because, why) != why)
      log(severity::warning, to_string(id) + " gets no new place for now: " + why);
    roster_.refuse_new_place(*slot, now_);
  }
}

void conductor::machine::ask_back() {
  for (auto& [id, slot] : roster_.slots()) {
    if (slot.no_new_place && *slot.no_new_place <= now_) {
      slot.no_new_place.reset();
      slot.unused_because.clear();
      plan_soon("return of " + to_string(id));
    }
    if (!slot.excluded || *slot.excluded > now_)
      continue;
    if (slot.asked_back) {
      exclude(id, "it does not say what it holds");
      happens({trigger_kind::silent, id});
    } else {
      roster_.exclude(slot, now_ + job_.options.request_limit);
      slot.asked_back = true;
      ask_what_is_held(id);
    }
  }
  roster_.find_next_return();
}

void conductor::machine::ask_what_is_held(const slot_id& id) {
  if (!happens({trigger_kind::asked_back, id}))
    send(id, abort_generation{}); // no generation: only asks for the inventory
}

// Every command may be repeated, and its answer is given again.
void conductor::machine::on(const slot_returned& x) {
  service_.forget_told(x.slot);
  auto* slot = roster_.find(x.slot);
  if (!slot)
    return;
  const auto& id = x.slot;
  const auto& current = generations_.current;
  prolong_for(id);
  if (slot->keeper) {
    send(id, guard_message());
    confirm_to(id);
    fill_keepers();
    if (slot->reading)
      send(id, restore{job_.id, ledger_.newest(), ledger_.folder(), job_.specification});
    losses_.forget(id);
    if (const auto* again = ledger_.repeat(id)) {
      remind(id);
      send(id, *again);
    }
  } else {
    send(id, protect_message(id, roster_.has_keepers() && !protection_.is_current()));
    if (!slot->loaded && !slot->excluded)
      send(id, load{job_.id, job_.specification});
  }
  if (slot->excluded && slot->asked_back)
    ask_what_is_held(id);
  const bool trains = facts().trains;
  if (current && current->gone.contains(id))
    send(id, abort_generation{current->g});
  else if (trains && current->has(id)) // it says that it is active, or how it ended
    send(id, activation());
  if (generations_.sends(id) && chain_.is_open()) // nobody waits for its answer
    send(id, activation());
  if (phase_.question && phase_.awaited.contains(id))
    send(id, phase_.question);
  if (trains && !slot->keeper && current->committed)
    send_release(id, *slot);
  happens({trigger_kind::returned, id});
}

void conductor::machine::come_back(const slot_id& id, slot_state& slot) {
  slot.excluded.reset();
  slot.asked_back = false;
  if (slot.keeper) { // its executor may be another, which was told nothing yet
    slot.reading = false;
    slot.unused_because.clear();
    if (facts().is_calm) // nothing depended on it
      slot.back_off = milliseconds(0);
    send(id, guard_message());
    fill_keepers();
  } else {
    send(id, protect_message(id, false));
    ask_to_load(id, slot, "return of ");
  }
  plan_soon("return of " + to_string(id));
}

void conductor::machine::cannot_load(const slot_id& from, slot_state& slot, const std::string& why) {
  slot.loaded = false;
  slot.data_problem = why;
  ++slot.data_problems;
  exclude(from, why);
  // Those that were there under a manager before may be there again, as they may under this one.
  if (const auto problem = roster_.data_problem_of_all(); !problem.empty() && job_.durable.data_digest.empty())
    happens({trigger_kind::over, {}, problem});
}

} // namespace parcae
