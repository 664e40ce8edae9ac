#include "actors/conductor/conductor_machine.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>

// Aborting, deciding: a generation ends that did not stop, and it is decided which step was its last.

namespace parcae {

using enum phase;

// clang-format off
std::vector<conductor::machine::row> conductor::machine::ending_rows() {
  using enum trigger_kind;
  using m = machine;
  return {
    {aborting, says_aborted, "of g", &m::of_current,
      "one answer less to wait for", &m::note_aborted, {}},
    // Who is not needed for a decision is waited for less.
    {aborting, rank_heard, "", nullptr,
      "shortens the limit if it can", &m::wait_less_for_rest, {}},
    // What they hold may be what a stage lacks.
    {aborting, keeper_came, "the keepers were asked", &m::keepers_were_asked,
      "asks it as well", &m::ask_too, {}},
    {aborting, rank_came, "of the manager before", &m::is_of_manager_before,
      "asks it as well", &m::ask_too, {}},
    {aborting, asked_back, "it is a rank of g", &m::has_place, // what it says counts for the open step
      "asks for its last word", &m::ask_last_word, {}},
    // In answer to ABORT or DECIDE it still says what it holds, which may be the only copy.
    {{aborting, deciding}, failed_alive, "", nullptr,
      "", nullptr, {}},
    {aborting, all_answered, "a stage has nobody left, and the keepers were not asked", &m::keepers_are_to_be_asked,
      "asks them what they hold", &m::ask_keepers, {}},
    {aborting, all_answered, "a stage has nobody left, and who has it may be dialling", &m::holder_may_be_dialling,
      "waits for who dials", &m::await_return, {}},
    // Nothing of g follows from it, and what follows from it waits for the journal: ACTIVATE.
    {aborting, all_answered, "nobody has anything left to apply", &m::nobody_applies,
      "decides the open step; nobody need be told", &m::decide_untold, planning},
    {aborting, all_answered, "", nullptr,
      "decides the open step", &m::decide_step, deciding},
    {aborting, late, "nobody is awaited but who might have been dialling", &m::nobody_is_awaited,
      "decides the open step", &m::decide_step, deciding},
    {deciding, says_decided, "", nullptr,
      "one answer less to wait for", &m::note_decided, {}},
    {deciding, all_answered, "", nullptr,
      "", &m::settle, planning},
    // Without it steps would be given up.
    {{aborting, deciding}, late, "the only holder of a stage may still answer", &m::only_holder_is_awaited,
      "waits as long as a step may take", &m::wait_longer, {}},
  };
}
// clang-format on

// ABORT

void conductor::machine::abort(const trigger& x) {
  auto& current = *generations_.current;
  log(severity::information, "abort of generation " + std::to_string(current.g.value) + ": " + x.why);
  abort_next(true);
  changes_.close_if_active();
  changes_.open(now_, x.why);
  changes_.stall(now_);
  current.aborted_ranks.clear();
  current.answered_stages.clear();
  current.keepers_asked = false;
}

void conductor::machine::abort_broken(const trigger& x) {
  desk_.count_restart();
  abort({x.kind, {}, "communication failed at " + x.why});
}

void conductor::machine::begin_aborting() {
  const auto& current = *generations_.current;
  auto whom = current.ranks();
  whom.merge(current.sources()); // of state that may be nowhere else
  ask(whom, abort_generation{current.g}, job_.options.request_limit);
}

void conductor::machine::note_answer_of_rank(const trigger& x) {
  generations_.current->note_answer(x.slot);
  answered(x.slot);
}

void conductor::machine::note_aborted(const trigger& x) {
  auto& current = *generations_.current;
  if (const auto rank = current.rank(x.slot))
    current.aborted_ranks[*rank] = std::get<aborted>(*x.said);
  note_answer_of_rank(x);
  happens({trigger_kind::rank_heard, x.slot, {}, x.said});
}

void conductor::machine::wait_less_for_rest(const trigger& x) {
  const auto& current = *generations_.current;
  const auto& options = job_.options;
  if (!current.lacks_stage())
    phase_.limit = std::min(*phase_.limit, now_ + options.stop_limit);
  if (std::holds_alternative<aborted>(*x.said) && !current.keepers_asked && !only_holder_is_awaited())
    phase_.limit = std::min(*phase_.limit, std::max(now_, *changes_.stall_began() + options.request_limit));
}

bool conductor::machine::only_holder_is_awaited(const trigger&) const {
  return now_ < *changes_.stall_began() + progress_limit() && generations_.current->only_holder_among(phase_.awaited);
}

bool conductor::machine::keepers_are_to_be_asked(const trigger&) const {
  const auto& current = *generations_.current;
  return chain_.is_open() && !current.keepers_asked && !current.stands_at_base() && current.lacks_stage();
}

bool conductor::machine::holder_may_be_dialling(const trigger&) const {
  return chain_.is_open() && some_may_be_dialling() && generations_.current->lacks_stage();
}

void conductor::machine::wait_longer(const trigger&) {
  log(severity::information, "waiting for the answer of one who alone holds a stage");
  wait_until(*changes_.stall_began() + progress_limit());
}

void conductor::machine::ask_keepers(const trigger&) {
  auto& current = *generations_.current;
  current.keepers_asked = true;
  auto whom = keepers_in_use();
  if (generations_.ahead) // behind its answer on what went ahead
    whom.insert(generations_.ahead->by.begin(), generations_.ahead->by.end());
  ask(whom, abort_generation{current.g}, job_.options.request_limit);
}

// DECIDE

step_decision conductor::machine::decision() const {
  const auto& current = *generations_.current;
  if (!chain_.is_open())
    return {generations_.ended_by, chain_.newest().steps, "it had ended"};
  std::vector<kept> kept_by; // also by workers that were to go on from there, had the manager before not died
  // Who follows does not know what came of steps, and a step counts only if somebody says that.
  auto told = losses_.complete();
  for (const auto& [rank, x] : current.aborted_ranks)
    told = std::max(told, steps_told_by(x));
  for (const auto& [id, slot] : roster_.slots()) {
    if (current.has(id))
      continue;
    kept_by.push_back({job_.id, slot.held, slot.results, {}});
    if (!slot.keeper) // a manager before may have told it to keep what it followed
      std::erase_if(kept_by.back().held, [&](const auto& x) {
        return x.at.by == current.g && x.at.steps > told && !losses_.known().find(x.at.steps - 1);
      });
  }
  auto result = decide_open_step(current.grid, current.g, current.base, current.said(), kept_by);
  // What the keepers once had complete was committed by all, and older versions are gone, even if nobody is left to say
  // so.
  for (const auto& known : {protection_.reached(), ledger_.newest()})
    if (known.by == current.g && known.steps > result.last)
      result = {{}, known.steps, "version " + to_string(known) + " was complete in the keepers"};
  return result;
}

bool conductor::machine::nobody_applies(const trigger&) const {
  const auto step = decision().result.step;
  return step == no_step || std::ranges::none_of(generations_.current->aborted_ranks, [&](const auto& x) {
           return x.second.complete == step && x.second.at.steps == step;
         });
}

void conductor::machine::end_by(const step_decision& decision, bool waits) {
  auto& current = *generations_.current;
  if (!chain_.is_open()) // decided by the manager before
    return;
  const auto reports = current.said();
  const auto& reached = job_.past.reached;
  const auto done = std::max(course_.steps_done(), reached.by == current.g ? reached.steps : 0);
  const auto lost = done - std::min(done, decision.last);
  // The step in progress, if there is one after the newest version, is computed again, unless the decision saves it.
  const bool was_final = std::max(done, decision.last) == final_steps() || job_.specification.serves();
  const auto saved = std::ranges::any_of(reports, [&](const auto& x) {
    return decision.result.step != no_step && x.said.at.steps == decision.result.step;
  });
  changes_.replay(lost + (saved || was_final ? 0 : 1));
  chain_.end(current.g, decision.last);
  generations_.ended_by = decision.result;
  course_.reached(decision.last, decision.result);
  losses_.decide(decision.result);
  losses_.go_back(decision.last);
  persist("generation " + std::to_string(current.g.value) + " ends at " + std::to_string(decision.last) + ": " +
              decision.reason,
          !waits);
  log(severity::information, decision.reason);
  if (lost > 0)
    log(severity::warning, counted(lost, "committed step") + " after version " + std::to_string(decision.last) +
                               (lost == 1 ? " is" : " are") + " lost with those who alone held a stage");
  if (std::ranges::any_of(reports, [&](const auto& x) { return x.said.at > version{decision.last, current.g}; }))
    protect_all(); // it may have snapshots of that on their way, which are void
  current.answered_stages.clear();
}

void conductor::machine::decide_untold(const trigger& x) {
  end_by(decision(), false);
  settle(x);
}

void conductor::machine::begin_deciding() {
  const auto& current = *generations_.current;
  auto whom = current.ranks();
  std::erase_if(whom, [&](const auto& x) { return !current.aborted_ranks.contains(*current.rank(x)); });
  ask(whom, decide{current.g, generations_.ended_by}, job_.options.request_limit, true);
}

void conductor::machine::note_decided(const trigger& x) {
  roster_.find(x.slot)->held = std::get<decided>(*x.said).held;
  note_answer_of_rank(x);
}

void conductor::machine::settle(const trigger&) {
  changes_.settle(now_, static_cast<std::uint32_t>(std::ranges::count_if(
                            generations_.current->rank_of, [&](const auto& x) { return !roster_.find(x.first); })));
  desk_.because(reason());
}

} // namespace parcae
