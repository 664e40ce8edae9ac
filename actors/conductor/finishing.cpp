#include "actors/conductor/conductor_machine.hpp"
#include "protocols/base/text.hpp"
#include "protocols/model/early_stop.hpp"

#include <algorithm>

// Finishing, and the end of the job: reached, failed, cancelled, or put off because the manager ends.

namespace parcae {

using enum phase;

// clang-format off
std::vector<conductor::machine::row> conductor::machine::finishing_rows() {
  using enum trigger_kind;
  using m = machine;
  return {
    {finishing, place_lost, "the keepers hold the final version", &m::final_is_kept,
      "no slot of g is needed", &m::leave_grid, {}},
    {finishing, lost, "nobody holds the final version whole", &m::final_is_gone,
      "", &m::plan_because, planning},
    {finishing, kept, "nobody holds the final version whole", &m::final_is_gone,
      "", &m::plan_because, planning},
    {finishing, kept, "", nullptr,
      "asks for digests, has the final version written, ends", &m::check_done, {}},
    {finishing, written, "", nullptr,
      "asks for digests, has the final version written, ends", &m::check_done, {}},
    {finishing, not_written, "", nullptr, // a result is not given up for a full disk
      "says so; it is tried again", &m::tell_of_disk, {}},
    // A record that lacks what somebody still knows is not left behind.
    {finishing, says_recalled, "", nullptr,
      "one answer less to wait for", &m::note_recalled, {}},
    {finishing, all_answered, "", nullptr,
      "goes on without what nobody knows of steps", &m::note_all_recalled, {}},
    {finishing, late, "what came of steps was asked for", &m::awaits_losses,
      "goes on without what nobody knows of steps", &m::note_all_recalled, {}},
    {finishing, notice, "to a rank, with no keeper, and others can take over", &m::others_take_over,
      "", &m::plan_because, planning},
    {finishing, late, "", nullptr,
      "asks again", &m::check_done_again, {}},
  };
}
// clang-format on

// Finishing

void conductor::machine::begin_finishing() {
  changes_.close();
  forget_readings();
  if (chain_.is_open()) {
    chain_.end(generations_.current->g, final_steps());
    persist("the final version is reached");
  }
  say_what_finishing_waits_for();
  update_protection();
  check_done();
}

bool conductor::machine::final_is_settled(const trigger&) const {
  const bool needs_evaluation = is_evaluated(final_steps(), job_.specification) && !manager_.ends_at;
  return final_is_kept() && (!needs_evaluation || losses_.has_evaluation(final_steps()));
}

bool conductor::machine::final_is_gone(const trigger&) const {
  const auto& current = generations_.current;
  const bool ranks_hold_it = current && std::ranges::all_of(current->rank_of, [&](const auto& x) {
                               const auto* slot = roster_.find(x.first);
                               return slot && !slot->excluded;
                             });
  return !ranks_hold_it && !final_is_kept();
}

bool conductor::machine::others_take_over(const trigger& x) const {
  return generations_.has_place(x.slot) && !roster_.has_keepers() && roster_.usable() > 0;
}

void conductor::machine::check_done(const trigger&) {
  if (!final_is_kept() || awaits_losses())
    return;
  if (losses_.complete() < course_.steps_done())
    return recall_from_all();
  if (digests_of(roster_).size() < job_.layers()) {
    if (protection_.ask_digests()) {
      confirm_to_keepers();
      wait_until(now_ + job_.options.prepare_limit);
    }
    return;
  }
  if (ledger_.newest().steps != final_steps()) {
    if (generations_.early_end) // not one that the ledger knows to be the last
      ledger_.ask(protection_.newest());
    write_checkpoint();
    if (const auto limit = ledger_.limit())
      phase_.limit = limit;
    return;
  }
  persist("done: the keepers hold, and have on disk, the final version " + to_string(protection_.newest()));
  happens({.kind = trigger_kind::over, .why = "done", .good = true});
}

void conductor::machine::check_done_again(const trigger&) { // a keeper did not say its digests, or did not write
  phase_.limit.reset();
  protection_.forget_digests();
  ledger_.drop();
  check_done();
}

void conductor::machine::tell_of_disk(const trigger& x) {
  phase_.problem = x.why + "; it is tried again, or `parcae cancel` the job";
  wait_until(now_ + job_.options.request_limit);
}

void conductor::machine::recall_from_all() {
  std::set<slot_id> whom;
  for (const auto& [id, slot] : roster_.slots())
    whom.insert(id);
  ask(whom, recall{job_.id, losses_.complete()}, job_.options.request_limit);
}

bool conductor::machine::awaits_losses(const trigger&) const {
  return !phase_.awaited.empty();
}

void conductor::machine::note_recalled(const trigger& x) {
  if (phase_.question && std::get<recall>(*phase_.question).from == std::get<recalled>(*x.said).from)
    answered(x.slot);
}

void conductor::machine::note_all_recalled(const trigger&) {
  phase_.awaited.clear();
  phase_.limit.reset();
  if (losses_.complete() == std::get<recall>(*phase_.question).from) {
    losses_.give_up(course_.steps_done());
    log(severity::warning, losses_.given_up());
  }
  check_done();
}

void conductor::machine::say_what_finishing_waits_for() {
  const std::string waits = "waiting for a keeper to hold the final version";
  if (facts().is_final && no_keeper())
    phase_.problem = waits;
  else if (phase_.problem == waits)
    phase_.problem.clear();
}

// The end

void conductor::machine::say_farewell(const trigger& x) {
  auto last = durable();
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
  for (const auto& id : service_.gateways())
    send(id, forget{job_.id});
  phase_.problem = x.good ? "" : x.why;
  effects_.push_back(job_ended{x.good, x.why});
}

void conductor::machine::close() {
  if (now_ >= *manager_.ends_at) {
    happens({trigger_kind::over, {}, closing_text("it took too long")});
    return;
  }
  while (const auto* taken = happens({trigger_kind::closing})) // one phase after the other
    if (!taken->to)
      return;
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
  happens({trigger_kind::over, {}, why + (next.empty() ? "; nothing is kept" : next)});
}

std::vector<effect> conductor::machine::last_will() {
  effects_.clear();
  if (facts().is_over)
    return {};
  for (const auto& [id, slot] : roster_.workers()) {
    if (generations_.current)
      send(id, abort_generation{generations_.current->g});
    send(id, forget{job_.id});
  }
  for (const auto& id : service_.gateways())
    send(id, forget{job_.id});
  ledger_.drop(); // if it is written, it is written again
  ledger_.ask(protection_.newest());
  write_checkpoint(true);
  return std::move(effects_);
}

} // namespace parcae
