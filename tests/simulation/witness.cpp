#include "tests/simulation/witness.hpp"

#include <algorithm>
#include <utility>
#include <variant>

namespace parcae::simulation {

namespace {

constexpr nanoseconds connecting = 11s; ///< to all participants, or the word that one is not there
constexpr nanoseconds answering = 3s;   ///< of who need not wait for others

/// Until it must have been answered, if it must and nobody else is waited for.
std::optional<nanoseconds> limit_of_answer(const command& x) {
  if (std::holds_alternative<prepare>(x))
    return connecting;
  if (std::holds_alternative<abort_generation>(x) || std::holds_alternative<decide>(x))
    return answering;
  return {};
}

using question = std::pair<std::size_t, generation>;

/// It need not be answered any more once this is given.
bool is_superseded(const question& x, const command& by) {
  const bool is_prepare = x.first == command(prepare{}).index();
  if (std::holds_alternative<prepare>(by))
    return is_prepare && x.second < generation_of(by);
  return is_prepare && std::holds_alternative<abort_generation>(by) && generation_of(by) <= x.second;
}

bool answers(const report& x, const question& which) {
  const auto is = [&](const auto& command_of, generation g) {
    return which == question{command(command_of).index(), g};
  };
  if (const auto* p = std::get_if<prepared>(&x))
    return is(prepare{}, p->next);
  if (const auto* f = std::get_if<failed>(&x))
    return is(prepare{}, f->current);
  if (const auto* a = std::get_if<aborted>(&x))
    return is(abort_generation{}, a->current);
  if (const auto* d = std::get_if<decided>(&x))
    return is(decide{}, d->current);
  return false;
}

} // namespace

void witness::object(const std::string& problem) {
  if (!problem.empty())
    problems_.push_back(problem);
}

void witness::told(const slot_id& to, const command& what, time_point now) {
  object(problem_with(seen_, to, what));
  changes_.told(what, now);
  if (const auto* p = std::get_if<prepare>(&what)) {
    auto& g = seen_.generations[p->next];
    g.checksum = checksum_of(*p);
    g.grid = p->target;
    g.prepared_under = seen_.managers;
  } else if (const auto* a = std::get_if<activate>(&what)) {
    auto& g = seen_.generations[a->next];
    if (!g.base) {
      g.base = a->at.steps;
      for (const auto& x : g.grid.participants)
        g.disturbed |= !seen_.pristine.contains(x.slot);
    }
  } else if (const auto* x = std::get_if<abort_generation>(&what); x && x->current == generation{}) {
    if (const auto known = seen_.heard.find(to); known != seen_.heard.end() && known->second) // a keeper
      for (auto& [g, each] : seen_.generations)
        if (each.base)
          each.sure_when_asked = surely_held(seen_, g, *each.base);
  } else if (const auto known = x ? seen_.generations.find(x->current) : seen_.generations.end();
             known != seen_.generations.end() && known->second.base) {
    auto& g = known->second;
    if (!g.sure_at_abort)
      g.sure_at_abort = surely_held(seen_, x->current, *g.base);
    const auto& chain = seen_.durable.chain;
    g.broken_off |= !chain.empty() && chain.back().by == x->current && chain.back().last == UINT64_MAX;
  }
}

void witness::given(const slot_id& to, const command& what, time_point now, bool answers) {
  look_for_answers(to, now);
  if (std::holds_alternative<forget>(what))
    unanswered_.erase(to);
  if (const auto* s = std::get_if<stop>(&what))
    if (auto& g = seen_.generations[s->current]; g.base && !g.last_step) // the exchange in progress may be without it
      g.last_step = 1 + (g.begun.empty() ? *g.base : *g.begun.rbegin());
  auto& open = unanswered_[to];
  std::erase_if(open, [&](const auto& x) { return is_superseded(x.first, what); });
  if (const auto limit = limit_of_answer(what); limit && answers)
    open.try_emplace({what.index(), generation_of(what)}, now + *limit);
}

void witness::look_for_answers(const slot_id& of, time_point now) {
  const auto known = unanswered_.find(of);
  if (known == unanswered_.end())
    return;
  for (const auto& [which, limit] : known->second)
    if (limit < now)
      object(to_string(of) + " does not answer command " + std::to_string(which.first) + " of generation " +
             std::to_string(which.second.value));
}

void witness::look_for_answers(time_point now) {
  for (const auto& [slot, open] : unanswered_)
    look_for_answers(slot, now);
}

void witness::said(const slot_id& from, const report& what, time_point now) {
  look_for_answers(from, now);
  object(problem_with(seen_, from, what));
  if (const auto known = unanswered_.find(from); known != unanswered_.end())
    std::erase_if(known->second, [&](const auto& x) { return answers(what, x.first); });
  if (const auto* x = std::get_if<served>(&what))
    seen_.generations[x->current].serving.insert(from);
  if (const auto* f = std::get_if<failed>(&what))
    if (const auto known = seen_.generations.find(f->current); known != seen_.generations.end())
      known->second.disturbed = true;
  const auto* s = std::get_if<stopped>(&what);
  const bool is_last_word = !std::holds_alternative<evaluated>(what); // which comes before that
  if (const auto last = stopped_.find(from); last != stopped_.end() && last->second.said_active && is_last_word)
    if (std::exchange(last->second.said_active, false) && (!s || s->current != last->second.of))
      object(to_string(from) + " is active, and does not say that it has stopped");
  if (s) {
    seen_.generations[s->current].stopped = true;
    stopped_[from] = {s->current};
  }
  if (const auto* a = std::get_if<active>(&what))
    if (const auto last = stopped_.find(from); last != stopped_.end())
      last->second.said_active = last->second.of == a->current;
}

void witness::manager_starts() {
  changes_.begins_anew();
  time_.manager_was_away();
  ++seen_.managers;
  seen_.heard.clear();
}

void witness::heard(const slot_id& from, const report& what, time_point now) {
  changes_.heard(from, what, now);
  auto& known = seen_.heard[from];
  if (const auto* x = std::get_if<kept>(&what))
    known = x->held;
}

void witness::durable(const durable_state& now, time_point when) {
  object(problem_with(seen_, now));
  changes_.durable(now, when);
  seen_.durable = now;
}

void witness::begins(generation g, std::uint64_t step) {
  object(problem_with_begin(seen_, g, step));
  seen_.newest_begun = std::max(seen_.newest_begun, g);
  seen_.generations[g].begun.insert(step);
}

void witness::exchanged(generation g, std::uint64_t step, time_point now) {
  object(problem_with_exchange(seen_, g, step));
  seen_.generations[g].exchanged.insert(step);
  time_.exchanged(g, step, now, [this](generation x) { return seen_.generations[x].disturbed; });
}

void witness::applied(generation g, const version& at, std::uint32_t layer, std::uint64_t bits) {
  object(problem_with_bits(layer, at, bits));
  seen_.generations[g].applied[at.steps].insert(layer);
}

void witness::holds(const slot_id& who, inventory what) {
  seen_.held[who] = std::move(what);
  object(problem_with_base(seen_));
}

void witness::keeps(std::uint32_t layer, const version& at, std::uint64_t bits) {
  object(problem_with_bits(layer, at, bits));
  seen_.ever_kept.insert({layer, at});
}

void witness::joined(const slot_id& who, bool pristine) {
  changes_.joined(who);
  if (pristine)
    seen_.pristine.insert(who);
}

void witness::disturbed(const slot_id& who, time_point now) {
  changes_.disturbed(who, now);
  is_disturbed(who);
}

void witness::is_disturbed(const slot_id& who) {
  unanswered_.erase(who);
  seen_.pristine.erase(who);
  for (auto& [g, x] : seen_.generations) {
    const auto needed = x.applied.empty() ? x.grid.participants.size() : x.grid.ranks(); // then all is sent
    for (std::size_t i = 0; i < needed; ++i)
      x.disturbed |= x.grid.participants[i].slot == who;
  }
}

void witness::gone(const slot_id& who) {
  changes_.gone(who);
  is_disturbed(who);
  seen_.held.erase(who);
}

} // namespace parcae::simulation
