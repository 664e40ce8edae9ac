#include "actors/conductor/conductor_machine.hpp"
#include "protocols/base/text.hpp"

#include <cmath>

// What executors say: what is learnt of it in any phase. What else follows the table says.

namespace parcae {

void conductor::machine::on(const slot_reported& x) {
  auto* slot = roster_.find(x.from);
  if (!slot) {
    if (const auto* said = std::get_if<routed>(&x.what); said && said->job == job_.id)
      service_.hear(x.from, *said);
    return;
  }
  std::visit(
      [&]<class T>(const T& what) {
        if (slot->keeper ? boost::mp11::mp_contains<keeper_report, T>() : boost::mp11::mp_contains<worker_report, T>())
          hear(x.from, *slot, what, x.what);
        else
          log(severity::error, to_string(x.from) + " reports what is not its role's to report");
      },
      x.what);
  if (!facts().is_over)
    recall_losses(x.from, x.what);
}

// Data

void conductor::machine::hear(const slot_id& from, slot_state& slot, const loaded& x, const report&) {
  if (x.job != job_.id)
    return;
  if (!x.whole_digest.empty())
    if (const auto other = roster_.differs_wholly(from, x.whole_digest)) {
      happens({trigger_kind::over,
               {},
               "the data at " + job_.specification.data.where() + " differs between " + to_string(*other) + " and " +
                   to_string(from) +
                   ", as was found now that all of it is read: nobody can say what was trained on; make it the "
                   "same, and start anew"});
      return;
    }
  if (slot.loaded)
    return;
  if (const auto problem = problem_with_bits(x); !problem.empty())
    return cannot_load(from, slot, problem);
  slot.passes = x.passes;
  slot.loaded = true;
  slot.data_problems = 0;
  slot.data_problem.clear();
  if (!slot.no_new_place)
    slot.unused_because.clear();
  if (facts().is_calm) // nothing depended on it
    slot.back_off = milliseconds(0);
  if (facts().trains && generations_.current->released && !generations_.has_place(from)) // it may stay without
    send_release(from, slot);
  plan_soon(slot.arrival);
}

// Answers

void conductor::machine::hear(const slot_id& from, slot_state& slot, const prepared& x, const report& said) {
  slot.answered_at = now_;
  if (generations_.is_next(x.next))
    happens({trigger_kind::says_prepared, from, {}, &said});
}

void conductor::machine::hear(const slot_id& from, slot_state&, const warmed& x, const report& said) {
  if (generations_.is_next(x.next))
    happens({trigger_kind::says_warmed, from, {}, &said});
}

void conductor::machine::hear(const slot_id& from, slot_state& slot, const stopped& x, const report& said) {
  if (!generations_.is_current(x.current) || !generations_.has_place(from))
    return;
  auto& current = *generations_.current;
  slot.answered_at = now_;
  const bool released = slot.commanded.released == current.g; // what it says may be from before that came
  slot.held = released ? current.left_by_release(from, x.held) : x.held;
  if (!current.stopped_ranks.empty() && current.stopped_at != x.at)
    return log(severity::error, // the limit of the phase ends in an abort
               to_string(from) + " stopped at " + to_string(x.at) + ", others at " + to_string(current.stopped_at));
  current.stopped_ranks.insert(from);
  current.stopped_at = x.at;
  hear_losses(from, x.losses, x.at.steps);
  happens({trigger_kind::rank_heard, from, {}, &said});
  if (x.is_final && x.at.steps < job_.specification.steps)
    generations_.early_end = x.at.steps;
  if (!happens({trigger_kind::says_stopped, from, {}, &said}) && current.all_stopped())
    happens({trigger_kind::all_stopped});
}

void conductor::machine::hear(const slot_id& from, slot_state&, const active& x, const report& said) {
  if (generations_.is_current(x.current))
    happens({trigger_kind::says_active, from, {}, &said});
}

void conductor::machine::hear(const slot_id& from, slot_state& slot, const aborted& x, const report& said) {
  slot.answered_at = now_;
  slot.held = slot.reported = x.held;
  // What the decision does not save of it is gone back behind. A rank whose layers are void may know what came of steps
  // by which others hold them.
  auto counts = course_.steps_done();
  if (chain_.is_open()) {
    for (const auto& held : x.held)
      if (generations_.is_current(held.at.by))
        counts = std::max(counts, held.at.steps);
    if (generations_.is_current(x.current) && generations_.current->has(from))
      counts = std::max(counts, steps_told_by(x));
  }
  hear_losses(from, x.losses, counts);
  if (slot.keeper)
    protection_.believe(slot, max_steps(), now_);
  else if (const auto& current = generations_.current;
           current && !current->has(from) && slot.commanded.released == current->g && x.current < current->g)
    slot.held.clear(); // said before RELEASE came
  if (slot.excluded && slot.asked_back && !slot.excluded_for_good())
    come_back(from, slot);
  happens({trigger_kind::says_aborted, from, {}, &said});
}

void conductor::machine::hear(const slot_id& from, slot_state& slot, const decided& x, const report& said) {
  slot.answered_at = now_;
  if (generations_.is_current(x.current))
    happens({trigger_kind::says_decided, from, {}, &said});
}

// Training

/// Why no worker of this build says that; empty: it may.
std::string conductor::machine::problem_of(const progress& x) const {
  constexpr double longest_ms = 1e9; // twelve days
  const auto steps = job_.specification.steps;
  if (x.at.steps > steps)
    return "it reports step " + std::to_string(x.at.steps) + " of a job of " + std::to_string(steps);
  return std::abs(x.step_ms) <= longest_ms ? "" : "it reports steps of " + std::to_string(x.step_ms) + " ms";
}

void conductor::machine::hear(const slot_id& from, slot_state&, const progress& x, const report& said) {
  if (!generations_.is_current(x.current))
    return;
  if (const auto problem = problem_of(x); !problem.empty()) {
    exclude(from, problem, true);
    missing(from, problem);
  } else
    happens({trigger_kind::says_progress, from, {}, &said});
}

void conductor::machine::hear(const slot_id& from, slot_state&, const evaluated& x, const report& said) {
  const bool of_current = generations_.is_current(x.current);
  if (!of_current && !chain_.valid(x.at))
    return;
  if (of_current)
    happens({trigger_kind::says_evaluated, from, {}, &said});
  course_.hear(x, job_.specification);
  if (course_.evaluated_steps() == static_cast<std::int64_t>(x.at.steps))
    learn([&] { losses_.evaluate(static_cast<std::uint64_t>(course_.evaluated_steps()), course_.validation_loss()); });
}

// Failures

void conductor::machine::hear(const slot_id& from, slot_state& slot, const failed& x, const report& said) {
  const trigger of{trigger_kind::failed_alive, from, to_string(from) + ": " + x.what, &said};
  const auto as = [&](trigger_kind kind) {
    auto result = of;
    result.kind = kind;
    return result;
  };
  const bool of_current = generations_.is_current(x.current), of_next = generations_.is_next(x.current);
  if (x.kind == failure::sample) {
    happens(as(trigger_kind::over));
  } else if (x.kind == failure::not_finite) {
    if (of_current)
      end_not_finite(x.what);
  } else if (of_next && x.kind != failure::unreachable && happens(as(trigger_kind::refused))) {
    return;
  } else if (x.kind == failure::data || (x.current == generation{} && !slot.keeper && !slot.loaded)) {
    x.kind == failure::data ? cannot_load(from, slot, x.what) : exclude(from, x.what);
    missing(from, of.why);
  } else if (x.kind == failure::unreachable && of_next) {
    hear_unreachable(from, slot, x, of.why);
  } else if (x.kind == failure::communication) {
    log(severity::information, of.why);
    if (of_current || of_next)
      happens(as(of_current ? trigger_kind::broken : trigger_kind::next_broken));
  } else if (of_current || of_next) {
    const bool ends_it = generations_.has_place(from) && happens(as(trigger_kind::place_lost));
    exclude(from, x.what);
    if (!ends_it && !happens(of))
      missing(from, of.why);
  } else {
    log(severity::warning, of.why);
  }
}

// Two live instances that cannot reach each other: the younger does without a place for a while. A keeper has none.
void conductor::machine::hear_unreachable(const slot_id& from, const slot_state& slot, const failed& x,
                                          const std::string& why) {
  const auto& all = generations_.next->what.target.participants;
  const auto* peer = x.peer < all.size() ? roster_.find(all[x.peer].slot) : nullptr;
  const auto order = [](const slot_state& s) { return std::pair(!s.keeper, s.past.age); };
  if (!peer || !happens({trigger_kind::unreachable, order(*peer) > order(slot) ? all[x.peer].slot : from, why}))
    log(severity::information, why);
}

// Keepers

void conductor::machine::hear(const slot_id& from, slot_state& slot, const kept& x, const report& said) {
  if (x.job != job_.id)
    return;
  slot.reported = x.held;
  protection_.believe(slot, max_steps(), now_);
  slot.results = x.results;
  if (facts().is_calm)
    slot.back_off = milliseconds(0);
  happens({trigger_kind::says_kept, from, {}, &said});
  if (!x.digests.empty())
    slot.digests = x.digests;
  const bool joins = !std::exchange(slot.heard, true);
  const auto before = protection_.newest();
  keeper_has_news(from);
  if (facts().is_over)
    return;
  if (joins) {
    protect_all();
    happens({trigger_kind::keeper_heard, from, "join of " + to_string(from)});
  } else if (protection_.newest() != before) {
    happens({trigger_kind::newer_kept, from});
  }
}

void conductor::machine::hear(const slot_id& from, slot_state&, const checkpointed& x, const report&) {
  note_share(ledger_.hear(from, x, chain_));
}

void conductor::machine::hear(const slot_id& from, slot_state& slot, const restored& x, const report& said) {
  losses_.hurry(); // those of the checkpoint
  if (x.job == job_.id && x.at == ledger_.newest() && std::exchange(slot.reading, false))
    happens({trigger_kind::says_restored, from, {}, &said});
}

// Losses

void conductor::machine::hear(const slot_id& from, slot_state&, const recalled& x, const report& said) {
  if (x.job != job_.id)
    return;
  hear_losses(from, x.losses, steps_committed());
  happens({trigger_kind::says_recalled, from, {}, &said});
}

template <class F>
void conductor::machine::learn(F of_losses) {
  const auto held = protection_.newest().steps;
  const bool knew = losses_.has_evaluation(held);
  const auto complete = losses_.complete();
  of_losses();
  const bool is_news = !knew && losses_.has_evaluation(held);
  if (is_news || losses_.complete() > complete)
    write_checkpoint(); // if what is held waits for that
  if (is_news)
    happens({trigger_kind::kept}); // likewise
}

void conductor::machine::hear_losses(const slot_id& from, const std::vector<char>& block, std::uint64_t limit) {
  std::string problem;
  learn([&] { problem = losses_.hear(block, limit); });
  if (!problem.empty())
    log(job_.specification.reproducible ? severity::error : severity::warning, to_string(from) + " says: " + problem);
}

void conductor::machine::recall_losses(const slot_id& from, const report& said) {
  if (std::holds_alternative<loaded>(said) || std::holds_alternative<prepared>(said) || !roster_.find(from))
    return; // it may know of none
  std::optional<std::uint64_t> step;
  learn([&] { step = losses_.ask(now_, steps_committed()); }); // or gives up
  if (step) {
    send(from, recall{job_.id, *step});
    if (losses_.is_stuck()) // they seldom say something
      recall_from_keepers();
  }
  if (const auto lost = losses_.given_up(); !lost.empty())
    log(severity::warning, lost);
}

void conductor::machine::recall_from_keepers() {
  for (const auto& [id, slot] : roster_.keepers())
    send(id, recall{job_.id, losses_.complete()});
}

void conductor::machine::remind(const slot_id& keeper) {
  for (auto& block : losses_.untold(keeper))
    send(keeper, remember{job_.id, std::move(block)});
}

} // namespace parcae
