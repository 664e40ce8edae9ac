#include "actors/conductor/conductor_machine.hpp"
#include "protocols/base/text.hpp"

#include <algorithm>
#include <cmath>

// What executors say.

namespace parcae {

using enum phase;

void conductor::machine::on(const slot_reported& x) {
  if (auto* slot = roster_.find(x.from))
    std::visit([&](const auto& what) { hear(x.from, *slot, what); }, x.what);
}

// Data

void conductor::machine::hear(const slot_id& from, slot_state& slot, const loaded& x) {
  if (x.job != job_.id)
    return;
  if (!x.whole_digest.empty())
    if (const auto other = roster_.differs_wholly(from, x.whole_digest)) {
      happens(happening::over,
              {"the data at " + job_.specification.data.where() + " differs between " + to_string(*other) + " and " +
               to_string(from) +
               ", as was found now that all of it is read: nobody can say what was trained on; make it the "
               "same, and start anew"});
      return;
    }
  if (slot.loaded)
    return;
  const bool known = roster_.data_found();
  if (!roster_.agrees(x.data_digest))
    return cannot_load(from, slot,
                       "the data at " + job_.specification.data.where() + " differs from " +
                           (known ? "that of the others" : "what the job started with"));
  slot.loaded = true;
  slot.data_problems = 0;
  slot.data_problem.clear();
  slot.unused_because.clear();
  if (stand_.now == running) // nothing depended on it
    slot.back_off = milliseconds(0);
  plan_soon(slot.arrival);
}

void conductor::machine::cannot_load(const slot_id& from, slot_state& slot, const std::string& why) {
  slot.loaded = false;
  slot.data_problem = why;
  ++slot.data_problems;
  exclude(from, why);
  if (const auto problem = roster_.data_problem_of_all(); !problem.empty())
    happens(happening::over, {problem});
}

// Answers

void conductor::machine::hear(const slot_id& from, slot_state&, const prepared& x) {
  if (!generations_.is_next(x.next) || !asks<prepare>())
    return;
  if (x.checksum == generations_.next->checksum)
    return answered(from);
  const auto why = to_string(from) + " understood another plan; is it another build?";
  exclude(from, why, true);
  missing(from, why);
}

void conductor::machine::hear(const slot_id& from, slot_state& slot, const stopped& x) {
  if (!generations_.is_current(x.current) || !generations_.has_place(from))
    return;
  auto& current = *generations_.current;
  slot.held = x.held;
  if (!current.stopped_ranks.empty() && current.stopped_at != x.at)
    return log(severity::error, // the limit of the phase ends in an abort
               to_string(from) + " stopped at " + to_string(x.at) + ", others at " + to_string(current.stopped_at));
  current.stopped_ranks.insert(from);
  current.stopped_at = x.at;
  await_rest();
  if (x.is_final && x.at.steps < job_.specification.steps)
    early_end_ = x.at.steps;
  if (asks<stop>())
    answered(from);
  else if (current.all_stopped())
    happens(happening::all_stopped);
}

void conductor::machine::hear(const slot_id& from, slot_state& slot, const delivered& x) {
  if (!generations_.is_next(x.next) || !asks<transfer>())
    return;
  slot.back_off = milliseconds(0);
  answered(from);
}

void conductor::machine::hear(const slot_id& from, slot_state& slot, const ready& x) {
  if (!generations_.is_next(x.next) || !asks<transfer>())
    return;
  const auto& target = generations_.next->what.target;
  if (const auto rank = generations_.next->rank(from))
    for (auto layer : layers_of(target, target.stage_of(*rank))) {
      std::erase_if(slot.held, [&](const auto& h) { return h.layer == layer; });
      slot.held.push_back({layer, x.at});
    }
  std::ranges::sort(slot.held);
  answered(from);
}

void conductor::machine::await_rest() {
  if (stand_.now == recovering && each_stage_answered({}) &&
      (had_ended({}) || !generations_.current->stopped_ranks.empty()))
    stand_.limit = std::min(*stand_.limit, now_ + job_.options.rest_limit);
  if (stand_.now == aborting && !generations_.current->lacks_stage())
    stand_.limit = std::min(*stand_.limit, now_ + job_.options.stop_limit);
}

void conductor::machine::hear(const slot_id& from, slot_state&, const active& x) {
  if (!generations_.is_current(x.current) || !asks<activate>())
    return;
  generations_.current->note_answer(from);
  answered(from);
}

void conductor::machine::hear(const slot_id& from, slot_state& slot, const aborted& x) {
  slot.held = slot.told = x.held;
  if (slot.keeper)
    protection_.believe(slot, most_steps(), now_);
  else if (const auto& current = generations_.current;
           current && !current->has(from) && slot.given.released == current->g)
    slot.held.clear(); // said before RELEASE came
  if (slot.excluded && slot.asked_back && !slot.excluded_for_good())
    come_back(from, slot);
  if (stand_.now == clearing && generations_.is_next(x.current))
    return answered(from);
  if (stand_.now == planning && x.current == generation{})
    return answered(from);
  if (!asks<abort_generation>() || !generations_.is_current(x.current))
    return;
  auto& current = *generations_.current;
  if (const auto rank = current.rank(from))
    current.aborted_ranks[*rank] = x;
  current.note_answer(from);
  answered(from);
  await_rest();
  if (stand_.now == aborting && !current.keepers_asked && !only_holder_is_awaited())
    stand_.limit = std::min(*stand_.limit, std::max(now_, *changes_.stall_began() + job_.options.request_limit));
}

void conductor::machine::come_back(const slot_id& id, slot_state& slot) {
  slot.excluded.reset();
  slot.asked_back = false;
  if (slot.keeper) { // its executor may be another, which was told nothing yet
    slot.reading = false;
    slot.unused_because.clear();
    if (stand_.now == running) // nothing depended on it
      slot.back_off = milliseconds(0);
    send(id, guard_message());
    fill_keepers();
  } else {
    send(id, protect_message(id, false));
    ask_to_load(id, slot, "return of ");
  }
  plan_soon("return of " + to_string(id));
}

void conductor::machine::hear(const slot_id& from, slot_state& slot, const decided& x) {
  if (!generations_.is_current(x.current) || !asks<decide>())
    return;
  slot.held = x.held;
  generations_.current->note_answer(from);
  answered(from);
}

// Training

void conductor::machine::hear(const slot_id& from, slot_state&, const progress& x) {
  if (!generations_.is_current(x.current) || stand_.now == deciding) // what it says was decided without it
    return;
  auto& current = *generations_.current;
  desk_.forget_restarts();
  const bool trains = stand_.now == running || stand_.now == readying;
  const bool was_finite = std::isfinite(course_.last_loss());
  if (const auto rank = current.rank(from); rank && course_.hear(now_, *rank, x)) {
    if (was_finite && !std::isfinite(x.result.loss) && job_.specification.on_not_finite == "go_on")
      log(severity::warning, "the loss is not finite at step " + std::to_string(x.at.steps) +
                                 "; a smaller optimizer.learning_rate or optimizer.clip_norm may help");
    if (const auto more = x.skipped - std::min(x.skipped, current.skipped); more > 0) {
      current.skipped = x.skipped;
      log(severity::warning, counted(more, "step") + " up to step " + std::to_string(x.at.steps) +
                                 " changed nothing: loss or gradients were not finite");
    }
    if (stand_.now == running)
      watch_progress();
  }
  // While activating, the last ACTIVE is waited for; while aborting, the step may still be dropped.
  if (!std::exchange(current.committed, true) && (trains || stand_.now == stopping))
    first_commit();
}

void conductor::machine::first_commit() {
  const auto& current = *generations_.current;
  roster_.forgive();
  changes_.first_commit(now_, current.g);
  for (auto&& [id, slot] : roster_.workers()) {
    send(id, release_for(id));
    if (!current.has(id)) // nothing older is needed
      slot.held.clear();
  }
}

void conductor::machine::hear(const slot_id&, slot_state&, const evaluated& x) {
  if (!generations_.is_current(x.current) && !chain_.valid(x.at))
    return;
  if (stand_.now == running && generations_.is_current(x.current))
    watch_progress();
  course_.hear(x, job_.specification);
}

// Failures

void conductor::machine::hear(const slot_id& from, slot_state& slot, const failed& x) {
  const auto why = to_string(from) + ": " + x.what;
  const bool of_current = generations_.is_current(x.current), of_next = generations_.is_next(x.current);
  if (x.kind == failure::sample) {
    happens(happening::over, {why});
  } else if (x.kind == failure::not_finite) {
    if (of_current)
      end_not_finite(x.what);
  } else if (stand_.now == readying && of_next && x.kind != failure::unreachable) {
    refuse_new_place(from, x.what);
    happens(happening::refused, {why, from});
  } else if (x.kind == failure::data || (x.current == generation{} && !slot.keeper && !slot.loaded)) {
    x.kind == failure::data ? cannot_load(from, slot, x.what) : exclude(from, x.what);
    missing(from, why);
  } else if (x.kind == failure::unreachable && of_next) {
    hear_unreachable(from, slot, x, why);
  } else if (x.kind == failure::communication) {
    log(severity::information, why);
    if (of_current || of_next)
      happens(of_current ? happening::broken : happening::next_broken, {why, from});
  } else if (of_current || of_next) {
    // It lives: in answer to ABORT or DECIDE it still says what it holds, which may be the only copy.
    const bool ends_it =
        stand_.now != finishing && generations_.has_place(from) && happens(happening::place_lost, {why, from});
    exclude(from, x.what);
    if (!ends_it && !asks<abort_generation>() && !asks<decide>())
      missing(from, why);
  } else {
    log(severity::warning, why);
  }
}

// Two live instances that cannot reach each other: the younger does without a place for a while. A keeper has none.
void conductor::machine::hear_unreachable(const slot_id& from, const slot_state& slot, const failed& x,
                                          const std::string& why) {
  const auto& all = generations_.next->what.target.participants;
  const auto* peer = asks<prepare>() && x.peer < all.size() ? roster_.find(all[x.peer].slot) : nullptr;
  if (!peer)
    return log(severity::information, why);
  const auto order = [](const slot_state& s) { return std::pair(!s.keeper, s.age); };
  const auto younger = order(*peer) > order(slot) ? all[x.peer].slot : from; // a copy: the change may go
  if (stand_.now == readying) {
    refuse_new_place(younger, why);
    happens(happening::refused, {why, from});
  } else {
    exclude(younger, why);
    missing(younger, why);
  }
}

// Keepers

void conductor::machine::hear(const slot_id& from, slot_state& slot, const kept& x) {
  if (x.job != job_.id)
    return;
  slot.told = x.held;
  protection_.believe(slot, most_steps(), now_);
  slot.results = x.results;
  if (stand_.now == running)
    slot.back_off = milliseconds(0);
  if (stand_.now == waiting && slot.reading && stand_.limit) // and goes on doing so
    stand_.limit = now_ + job_.transfer_limit(job_.state_bytes(0, job_.layers()));
  if (!x.digests.empty())
    slot.digests = x.digests;
  const bool joins = !std::exchange(slot.heard, true);
  const auto before = protection_.newest();
  keeper_has_news(from);
  if (stand_.now == ended)
    return;
  if (joins)
    protect_all();
  else if (stand_.now == waiting && protection_.newest() != before) // no worker will send it
    fill_keepers();
  if (joins && stand_.now == waiting) // it may have the checkpoint; and those under notice what no keeper has
    look_for_more({"join of " + to_string(from), from});
}

void conductor::machine::hear(const slot_id& from, slot_state&, const checkpointed& x) {
  note_share(ledger_.hear(from, x, chain_));
}

void conductor::machine::hear(const slot_id& from, slot_state& slot, const restored& x) {
  if (x.job != job_.id || x.at != ledger_.newest() || !std::exchange(slot.reading, false))
    return;
  if (stand_.now == waiting || stand_.now == planning) // else it is not needed any more
    slot.read = x;
  if (stand_.now == waiting)
    answered(from);
}

} // namespace parcae
