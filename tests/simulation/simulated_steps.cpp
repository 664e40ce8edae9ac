#include "protocols/model/early_stop.hpp"
#include "tests/simulation/simulated_worker.hpp"

#include <algorithm>
#include <ranges>
#include <utility>

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

bool simulated_worker::ends_service() const {
  const auto& x = parts_.at(*current_);
  return x.drained || x.broken();
}

void simulated_worker::end_service() {
  const auto& x = *current();
  if (!x.broken())
    drained_ = x.what.next;
  do_all(x.broken() ? machine_.step_failed(x.state, failure::communication, "a connection closed")
                    : machine_.drained(x.state));
}

void simulated_worker::say_served(generation g) {
  const auto* x = current();
  if (!x || x->what.next != g || !machine_.trains())
    return;
  served said{g};
  if (!around_.comes.is_nothing()) {
    const auto& grid = x->what.target;
    const auto stage = grid.stage_of(x->self);
    const double layers = grid.first_layer[stage + 1] - grid.first_layer[stage];
    for (const auto& [size, ms] : {std::pair(16u, 10.0), std::pair(48u, 15.0)}) // of a layer
      said.by_size.push_back({size, 10, ms * layers});
  }
  do_one(worker_effects::say{std::move(said)});
  around_.time.after(process, 1s, [this, g, alive = alive_] {
    if (*alive)
      say_served(g);
  });
}

void simulated_worker::train() {
  auto& x = *current();
  in_step_ = true;
  x.state.complete = no_step;
  const auto at = x.state.at.steps;
  if (is_evaluated(at, x.what.specification))
    begin_together(x, {at, true});
  else
    train_evaluated(x);
}

void simulated_worker::begin_together(part& x, const joint_work& what) {
  x.doing = what;
  x.has_computed = false;
  if (x.broken())
    return later(0ns, &simulated_worker::look_for_others);
  around_.plane.begin(x.what.next, x.self, what);
}

void simulated_worker::train_evaluated(part& x) {
  if (!x.state.is_final)
    return begin_together(x, {x.state.at.steps, false});
  x.ends_whole = true;
  end_if_whole(x);
}

void simulated_worker::end_if_whole(part& x) {
  if (!x.is_whole)
    return x.broken() ? later(0ns, &simulated_worker::look_for_others) : void();
  in_step_ = x.ends_whole = false;
  do_all(machine_.no_step_left(x.state));
}

void simulated_worker::on_computed(generation g, const joint_work& what) {
  auto* x = find(g);
  if (!x || x != current() || !in_step_ || x->doing != what)
    return;
  x->has_computed = true;
  if (!what.evaluates) {
    waits_since_ = around_.time.now();
    return x->is_whole ? contribute(*x) : void();
  }
  if (x->what.target.stage_of(x->self) + 1 == x->what.target.depth)
    around_.plane.tell(g, x->self, what, {});
  look_for_others();
}

void simulated_worker::contribute(part& x) {
  const auto step = x.doing.step;
  x.state.complete = step;
  std::erase_if(sent_, [](const auto& y) { return y.expired(); });
  x.next.busy = is_streaming();
  x.next.rests = around_.time.now() < rests_until_;
  x.all[step] |= x.next;
  around_.plane.tell(x.what.next, x.self, x.doing, x.next);
  look_for_others();
}

void simulated_worker::on_told(generation g, const joint_work& what, const wishes& y) {
  auto* x = find(g);
  if (!x)
    return;
  if (x->what.specification.serves()) { // by stage 0 of this pipeline, or of another one
    x->drained |= what.step == x->what.target.pipeline_of(x->self);
    return x == current() ? go_on() : void();
  }
  if (x != current())
    return;
  if (!what.evaluates)
    x->all[what.step] |= y;
  ++x->heard[what];
  if (in_step_)
    look_for_others();
}

// Of an evaluation the last stage, of a step all.
bool simulated_worker::has_heard_all(const part& x) const {
  const auto& grid = x.what.target;
  const auto known = x.heard.find(x.doing);
  const auto heard = known == x.heard.end() ? 0 : known->second;
  if (!x.doing.evaluates)
    return x.state.complete == x.doing.step && heard + 1 == grid.ranks();
  return x.has_computed && heard + (grid.stage_of(x.self) + 1 == grid.depth ? 1 : 0) == grid.width;
}

void simulated_worker::look_for_others() {
  auto* x = current();
  if (!x || !in_step_ || busy_)
    return;
  if (x->ends_whole || !has_heard_all(*x)) {
    if (!x->broken())
      return;
    in_step_ = x->ends_whole = false;
    do_all(machine_.step_failed(x->state, failure::communication, "a connection closed"));
    return go_on();
  }
  x->heard.erase(x->doing);
  busy_ = true; // whatever comes, what was agreed on is done
  if (!x->doing.evaluates)
    exchange(*x);
  later(around_.time.chance().between(0ms, 4ms),
        x->doing.evaluates ? &simulated_worker::evaluated_version : &simulated_worker::applied_step);
}

void simulated_worker::exchange(part& x) {
  const auto& job = x.what.specification;
  const auto step = x.doing.step;
  const auto all = x.all[step];
  x.state.result = {.step = step,
                    .loss = loss_of(step),
                    .gradient_norm = 1,
                    .clip_factor = 1,
                    .learning_rate = 1,
                    .stop = all.stop,
                    .snapshot = goes_to_keepers(all, step, job)};
  x.all.erase(step);
  x.put_off = all.busy && !x.state.result.snapshot;
  if (x.state.result.snapshot)
    x.next.snapshot = x.next.due = false;
  else if (is_put_off(step, job))
    x.next.due = true;
  around_.sees.exchanged(x.what.next, step, around_.time.now());
}

void simulated_worker::evaluated_version() {
  busy_ = false;
  auto& x = *current();
  const auto& job = x.what.specification;
  const auto& grid = x.what.target;
  const auto loss = validation_loss_of(x.doing.step);
  const auto owned = owned_replicas(job.virtual_replicas, grid.width, grid.pipeline_of(x.self));
  std::vector<double> sums;
  if (grid.stage_of(x.self) + 1 == grid.depth) {
    sums.resize(owned.last - owned.first);
    if (owned.first == 0)
      sums.front() = loss * static_cast<double>(job.data.validation_samples());
  }
  x.state.is_final |= x.doing.step == last_version(job);
  do_all(machine_.evaluated(x.state, owned.first, std::move(sums), loss));
  if (machine_.trains()) {
    train_evaluated(x);
  } else { // the next wait for a peer ends
    in_step_ = false;
    do_all(machine_.interrupted(x.state));
  }
  go_on();
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
  for (auto& [of, other] : parts_)
    if (other.is_warm && machine_.phase_of(of) == worker_phase::warming)
      feed(other, x.state.result.step);
  if (snapshot_by_ && x.state.at.steps >= *snapshot_by_ && !x.put_off &&
      (snapshot_by_.reset(), !x.state.result.snapshot))
    around_.sees.object(to_string(slot) + " was asked for a snapshot, and commits without one");
  do_all(machine_.committed(x.state));
  if (current() == &x && x.state.result.snapshot && is_unsent())
    around_.sees.object(to_string(slot) + " commits with a snapshot, and sends none");
  go_on();
}

void simulated_worker::do_one(const worker_effects::report_progress& x) {
  const auto now = around_.time.now();
  const auto& it = *current();
  if (!x.surely && now - told_at_ < progress_interval(it.what.target.ranks()))
    return;
  told_at_ = now;
  progress said{it.what.next, it.state.at, it.state.result, 100, {}, 0, 0, 1, 0, {}};
  said.late_wait_ms = late_wait_ms_;
  do_one(worker_effects::say{std::move(said)});
}

void simulated_worker::do_one(const worker_effects::trace& x) {
  const auto& it = *current();
  for (std::uint32_t i = 0; i < x.steps; ++i)
    do_one(worker_effects::say{traced{it.what.next, {it.state.at.steps + i, {}, false}}});
}

void simulated_worker::break_down() {
  if (!machine_.trains() || !in_step_ || busy_ || !current()->is_whole || current()->doing.evaluates)
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
