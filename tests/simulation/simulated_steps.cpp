#include "tests/simulation/simulated_worker.hpp"

#include <algorithm>
#include <ranges>

// The steps of a simulated worker.

namespace parcae::simulation {

bool simulated_worker::is_streaming() const {
  return std::ranges::any_of(sent_, [](const auto& x) {
    const auto still = x.lock();
    return still && still->under_way;
  });
}

/// The keepers are to have its slice of the present version, and were not sent it.
bool simulated_worker::is_unsent() const {
  const auto& it = parts_.at(*current_);
  const auto is_sent_something = [&](const keeper_share& x) {
    const auto stage = std::views::iota(it.first(), it.last());
    return std::ranges::any_of(stage, [&](auto layer) { return sends_to(x, it.what.target, it.self, layer, false); });
  };
  return sent_at_ != it.state.at && std::ranges::any_of(feed_.keepers, is_sent_something);
}

void simulated_worker::train() {
  auto& x = *current();
  if (x.state.is_final)
    return do_all(machine_.no_step_left(x.state));
  in_step_ = true;
  x.state.complete = no_step;
  if (x.broken())
    return later(0ns, &simulated_worker::look_for_exchange);
  around_.plane.begin_step(x.what.next, x.self, x.state.at.steps);
}

void simulated_worker::on_computed(generation g, std::uint64_t step) {
  auto* x = find(g);
  if (!x || x != current() || !in_step_ || x->state.at.steps != step)
    return;
  if (x->is_whole)
    contribute(*x, step);
  else
    x->computed = step;
}

void simulated_worker::contribute(part& x, std::uint64_t step) {
  x.computed.reset();
  x.state.complete = step;
  std::erase_if(sent_, [](const auto& y) { return y.expired(); });
  x.next.busy = is_streaming();
  x.next.rests = around_.time.now() < rests_until_;
  x.all[step] |= x.next;
  around_.plane.tell(x.what.next, x.self, step, x.next);
  look_for_exchange();
}

void simulated_worker::on_wishes(generation g, std::uint64_t step, const wishes& y) {
  auto* x = find(g);
  if (!x || x != current())
    return;
  x->all[step] |= y;
  ++x->heard[step];
  if (in_step_)
    look_for_exchange();
}

// Once it has heard all others.
void simulated_worker::look_for_exchange() {
  auto* x = current();
  if (!x || !in_step_ || busy_)
    return;
  auto& state = x->state;
  const auto step = state.at.steps;
  if (state.complete != step || x->heard[step] + 1 < x->what.target.ranks()) {
    if (!x->broken())
      return;
    in_step_ = false;
    do_all(machine_.step_failed(state, failure::communication, "a connection closed"));
    return go_on();
  }
  const auto& job = x->what.specification;
  const auto all = x->all[step];
  state.result = {.step = step,
                  .loss = loss_of(step),
                  .gradient_norm = 1,
                  .clip_factor = 1,
                  .learning_rate = 1,
                  .stop = all.stop,
                  .snapshot = goes_to_keepers(all, step, job)};
  x->heard.erase(step);
  x->all.erase(step);
  x->put_off = all.busy && !state.result.snapshot;
  if (state.result.snapshot)
    x->next.snapshot = x->next.due = false;
  else if (is_put_off(step, job))
    x->next.due = true;
  around_.sees.exchanged(x->what.next, step);
  busy_ = true; // whatever comes, it is applied
  later(around_.time.chance().between(0ms, 4ms), &simulated_worker::applied_step);
}

void simulated_worker::apply(const commit_result& result) {
  auto& x = *current();
  auto& state = x.state;
  state.result = result;
  state.at_ms = 1 + around_.time.now().time_since_epoch() / 1ms;
  state.at = {state.at.steps + 1, x.what.next};
  state.complete = no_step;
  state.is_final = state.at.steps == x.what.specification.steps;
  for (auto layer = x.first(); layer < x.last(); ++layer) {
    auto& shard = store_[layer];
    shard = {state.at, trained_bits(shard.bits, layer, result.step)};
    around_.sees.applied(x.what.next, state.at, layer, shard.bits);
  }
  store_changed();
}

void simulated_worker::applied_step() {
  busy_ = in_step_ = false;
  auto& x = *current();
  apply(x.state.result);
  x.state.wants_snapshot = x.next.due;
  if (snapshot_by_ && x.state.at.steps >= *snapshot_by_ && !x.put_off &&
      (snapshot_by_.reset(), !x.state.result.snapshot))
    around_.sees.object(to_string(slot) + " was asked for a snapshot, and commits without one");
  do_all(machine_.committed(x.state));
  if (current() == &x && x.state.result.snapshot && is_unsent())
    around_.sees.object(to_string(slot) + " commits with a snapshot, and sends none");
  go_on();
}

void simulated_worker::break_down() {
  if (!machine_.trains() || !in_step_ || busy_ || !current()->is_whole)
    return;
  in_step_ = false;
  const auto& it = *current();
  for (auto layer = it.first(); layer < it.last(); ++layer)
    store_.at(layer).bits = 0;
  auto& state = current()->state;
  state.voided = true;
  do_all(machine_.step_failed(state, failure::computation, "the computation failed"));
  go_on();
}

} // namespace parcae::simulation
