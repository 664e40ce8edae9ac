#include "tests/simulation/witness.hpp"

#include <algorithm>
#include <utility>
#include <variant>

namespace parcae::simulation {

void witness::object(const std::string& problem) {
  if (!problem.empty())
    problems_.push_back(problem);
}

void witness::told(const slot_id& to, const command& what) {
  object(problem_with(seen_, to, what));
  if (const auto* p = std::get_if<prepare>(&what)) {
    auto& g = seen_.generations[p->next];
    g.checksum = checksum_of(*p);
    g.grid = p->target;
  } else if (const auto* a = std::get_if<activate>(&what)) {
    auto& g = seen_.generations[a->next];
    if (!g.base) {
      g.base = a->at.steps;
      g.begun_under = seen_.managers;
      for (std::uint32_t r = 0; r < g.grid.ranks(); ++r)
        g.disturbed |= !seen_.pristine.contains(g.grid.participants[r].slot);
    }
  } else if (const auto* x = std::get_if<abort_generation>(&what)) {
    if (const auto known = seen_.generations.find(x->current);
        known != seen_.generations.end() && known->second.base && known->second.sure_at_abort == 0)
      known->second.sure_at_abort = surely_held(seen_, x->current, *known->second.base);
  }
}

void witness::said(const slot_id&, const report& what) {
  if (const auto* f = std::get_if<failed>(&what))
    if (const auto known = seen_.generations.find(f->current); known != seen_.generations.end())
      known->second.disturbed = true;
  if (const auto* s = std::get_if<stopped>(&what))
    seen_.generations[s->current].stopped = true;
}

void witness::manager_starts() {
  ++seen_.managers;
  seen_.heard.clear();
}

void witness::heard(const slot_id& from, const report& what) {
  auto& known = seen_.heard[from];
  if (const auto* x = std::get_if<kept>(&what))
    known = x->held;
}

void witness::durable(const job_memory& now) {
  object(problem_with(seen_, now));
  seen_.durable = now;
}

void witness::begins(generation g, std::uint64_t step) {
  object(problem_with_begin(seen_, g, step));
  seen_.newest_begun = std::max(seen_.newest_begun, g);
  seen_.generations[g].begun.insert(step);
}

void witness::applied(generation g, const version& at, std::uint32_t layer, std::uint64_t bits) {
  object(problem_with_bits(layer, at, bits));
  seen_.generations[g].applied[at.steps].insert(layer);
}

void witness::keeps(std::uint32_t layer, const version& at, std::uint64_t bits) {
  object(problem_with_bits(layer, at, bits));
  seen_.ever_kept.insert({layer, at});
}

void witness::disturbed(const slot_id& who) {
  seen_.pristine.erase(who);
  for (auto& [g, x] : seen_.generations)
    for (std::uint32_t r = 0; r < x.grid.ranks(); ++r)
      x.disturbed |= x.grid.participants[r].slot == who;
}

void witness::gone(const slot_id& who) {
  disturbed(who);
  seen_.held.erase(who);
}

} // namespace parcae::simulation
