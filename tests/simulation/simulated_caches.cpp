#include "tests/simulation/simulated_worker.hpp"

// Of a job that serves: passes, and caches on their way.

namespace parcae::simulation {

namespace {

constexpr nanoseconds caches_limit = 10s;

} // namespace

bool simulated_worker::serves_now(generation g) const {
  return current_ && current_->number == g && machine_.trains();
}

pass_outcome simulated_worker::on_pass(generation g, pass_frame& x) {
  if (!serves_now(g))
    return drained_ == g ? pass_outcome::drained : pass_outcome::gone;
  if (const auto& it = *current(); it.next.stop || it.broken())
    return it.broken() ? pass_outcome::gone : pass_outcome::drained;
  if (const auto wrong = caches_.take_pass(x); !wrong.empty())
    around_.sees.object(to_string(slot) + " " + wrong);
  return pass_outcome::computed;
}

/// They go at once, and arrive like what else is told.
void simulated_worker::move_caches(part& x) {
  caches_.lies = around_.caches_lie;
  for (std::uint32_t i = 0; i < x.what.caches.size(); ++i) {
    const auto& move = x.what.caches[i];
    if (move.source == x.self)
      around_.plane.send_caches(x.what.next, move.destination, i, caches_.take(move.first_layer, move.last_layer));
    if (move.destination == x.self)
      x.awaited.insert(i);
  }
  const auto layers = x.what.target.first_layer.back();
  if (x.is_rank()) // the embedding and the head keep nothing
    caches_.compute(std::max(x.first(), 1u), std::min(x.last(), layers - 1));
  else
    caches_.compute(0, 0);
  if (x.awaited.empty())
    return;
  for (const auto& each : std::exchange(x.came_early, {}))
    caches_.add(each);
  around_.time.after(process, caches_limit, [this, g = x.what.next, alive = alive_] {
    auto* y = *alive ? find(g) : nullptr;
    if (y && y->transfers_at && !std::exchange(y->awaited, {}).empty())
      finish_transfer(*y);
  });
}

void simulated_worker::on_caches(generation g, std::uint32_t move, const stage_caches::content& all) {
  auto* x = find(g);
  if (!x)
    return;
  x->came.insert(move);
  if (!x->transfers_at && x != current()) // ACTIVATE was not heard yet
    x->came_early.push_back(all);
  else if (x->awaited.contains(move))
    caches_.add(all);
  if (x->transfers_at)
    finish_transfer(*x);
}

bool simulated_worker::awaits_caches(const part& x) const {
  return std::ranges::any_of(
      x.awaited, [&](auto i) { return !x.came.contains(i) && !x.closed.contains(x.what.caches[i].source); });
}

} // namespace parcae::simulation
