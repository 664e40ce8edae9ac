#include "actors/conductor/conductor_machine.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>

// The end of the job: reached, failed, cancelled, or put off because the manager ends.

namespace parcae {

using enum phase;

void conductor::machine::say_farewell(const cause& x) {
  auto last = memory();
  last.over = true;
  last.good = x.good;
  last.why = x.why;
  if (x.good)
    for (const auto& [layer, digest] : digests_of(roster_))
      last.layer_digests.push_back({layer, digest});
  effects_.push_back(record{std::move(last), {}});
  for (const auto& [id, slot] : roster_.slots()) {
    if (!slot.keeper && generations_.current)
      send(id, abort_generation{generations_.current->g});
    send(id, forget{job_.id});
  }
  problem_ = x.good ? "" : x.why;
  effects_.push_back(job_ended{x.good, x.why});
}

void conductor::machine::on(const manager_ends& x) {
  closing_until_ = x.until;
  log(severity::information, "the manager ends: the job stops, and the keepers write what they hold to disk");
}

void conductor::machine::close() {
  if (now_ >= *closing_until_) {
    happens(happening::over, {closing_text("it took too long")});
    return;
  }
  for (auto before = ended; before != stand_.now && stand_.now != ended;) { // one phase after the other
    before = stand_.now;
    happens(happening::closing);
  }
}

void conductor::machine::close_waiting(const cause&) {
  const auto& held = protection_.newest();
  problem_ = "the manager ends";
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
    happens(happening::over, {closing_text(*over)});
}

std::string conductor::machine::closing_text(const std::string& problem) const {
  const auto reached = std::max(course_.steps_done(), chain_.newest().steps);
  const auto kept = ledger_.newest().steps;
  auto text = "stopped at step " + std::to_string(reached);
  if (kept < reached) {
    const auto lost = kept > 0 ? "the last " + counted(reached - kept, "step") + " are not kept" : "nothing is kept";
    text += "; " + lost + (problem.empty() ? "" : ": " + problem);
  }
  return text + how_to_go_on();
}

// What the keepers hold whole was finite when it was sent to them.
void conductor::machine::end_not_finite(const std::string& why) {
  ledger_.drop();
  ledger_.ask(protection_.newest());
  write_checkpoint(true);
  const auto next = how_to_go_on();
  happens(happening::over, {why + (next.empty() ? "; nothing is kept" : next)});
}

std::vector<effect> conductor::machine::last_will() {
  effects_.clear();
  if (stand_.now == ended)
    return {};
  for (const auto& [id, slot] : roster_.workers()) {
    if (generations_.current)
      send(id, abort_generation{generations_.current->g});
    send(id, forget{job_.id});
  }
  ledger_.drop(); // if it is written, it is written again
  ledger_.ask(protection_.newest());
  write_checkpoint(true);
  return std::move(effects_);
}

} // namespace parcae
