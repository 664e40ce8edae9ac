#include "tests/simulation/worker_double.hpp"

#include <algorithm>
#include <utility>

// Steps of a generation, and snapshots.

namespace parcae::simulation {

namespace {

constexpr nanoseconds progress_interval = 200ms;

} // namespace

void worker_double::train() {
  if (is_final())
    return end_training();
  in_step_ = true;
  auto& g = *current_;
  g.complete = no_step;
  if (g.broken())
    return later(0ns, &worker_double::look_for_exchange);
  around_.plane.begin_step(g.what.next, g.self, g.at.steps);
}

void worker_double::on_computed(generation g, std::uint64_t step) {
  if (!is(current_, g) || !in_step_ || current_->at.steps != step)
    return;
  auto& x = *current_;
  x.complete = step;
  x.all[step].stop |= x.next.stop;
  x.all[step].snapshot |= x.next.snapshot || x.due;
  around_.plane.tell(g, x.self, step, {x.next.stop, x.next.snapshot || x.due});
  look_for_exchange();
}

void worker_double::on_wishes(generation g, std::uint64_t step, const wishes& x) {
  if (!is(current_, g))
    return;
  auto& all = current_->all[step];
  all.stop |= x.stop;
  all.snapshot |= x.snapshot;
  ++current_->heard[step];
  if (in_step_)
    look_for_exchange();
}

// Once it has heard all others.
void worker_double::look_for_exchange() {
  if (!current_ || !in_step_ || busy_)
    return;
  auto& x = *current_;
  const auto step = x.at.steps;
  if (x.complete != step || x.heard[step] + 1 < x.what.target.ranks()) {
    if (x.broken())
      interrupted(failure::communication, "a connection closed");
    return;
  }
  const auto& job = x.what.specification;
  const auto all = x.all[step];
  const bool last = step + 1 == job.steps;
  x.result = {.step = step,
              .loss = 1,
              .gradient_norm = 1,
              .clip_factor = 1,
              .learning_rate = 1,
              .stop = all.stop,
              .snapshot = all.snapshot || last || (step + 1) % job.keeper_every == 0};
  x.heard.erase(step);
  x.all.erase(step);
  if (x.result.snapshot)
    x.next.snapshot = x.due = false;
  around_.sees.exchanged(x.what.next, step);
  busy_ = true; // whatever comes, it is applied
  later(around_.time.chance().between(0ms, 4ms), &worker_double::applied_step);
}

void worker_double::apply(const commit_result& result) {
  auto& x = *current_;
  x.result = result;
  x.at = {x.at.steps + 1, x.what.next};
  for (auto layer = x.first(); layer < x.last(); ++layer) {
    auto& state = store_[layer];
    state = {x.at, trained_bits(state.bits, layer, result.step)};
    around_.sees.applied(x.what.next, x.at, layer, state.bits);
  }
  x.complete = no_step;
  store_changed();
}

void worker_double::committed(const commit_result& result) {
  if (result.snapshot)
    current_->next.snapshot = false;
}

void worker_double::applied_step() {
  busy_ = in_step_ = false;
  auto& x = *current_;
  const auto result = x.result;
  apply(result);
  committed(result);
  send_snapshot(result, false);
  if (x.next.snapshot)
    wanted_ = true;
  if (x.ended)
    running_ = false;
  const bool last = is_final();
  const auto now = around_.time.now();
  if (last || result.stop || now - told_at_ >= progress_interval) {
    told_at_ = now;
    say(progress{x.what.next, x.at, result, 100, {}, 0, 0, 1, 0, {}});
  }
  if (running_ && result.stop && !last)
    end_training();
  go_on();
}

// Its step ends without a result; without a kind of failure: by ABORT.
void worker_double::interrupted(failure kind, const std::string& why) {
  if (in_step_ && busy_)
    return; // it applies
  running_ = in_step_ = false;
  if (kind != failure{})
    end_failed(kind, why);
  go_on();
}

void worker_double::break_down() {
  if (!current_ || !running_ || !in_step_ || busy_)
    return;
  running_ = in_step_ = false;
  current_->voided = true;
  current_->complete = no_step;
  for (auto layer = current_->first(); layer < current_->last(); ++layer)
    store_.erase(layer);
  store_changed();
  end_failed(failure::computation, "the computation failed");
  go_on();
}

void worker_double::end_failed(failure kind, const std::string& why) {
  failure_ = failed{current_->what.next, kind, 0, why, held()};
  say(*failure_);
}

void worker_double::end_training() {
  running_ = false;
  const auto& x = *current_;
  const bool is_kept = x.result.step + 1 == x.at.steps && x.result.snapshot;
  if (is_final() && (wanted_ || !is_kept))
    send_final_state(false);
  report_stopped();
}

void worker_double::report_stopped() {
  stopped_ = true;
  say(stopped{current_->what.next, current_->at, held(), is_final()});
}

void worker_double::send_final_state(bool whole) {
  auto result = current_->result;
  result.step = current_->at.steps - 1;
  result.snapshot = true;
  if (current_->at.steps > 0)
    send_snapshot(result, whole);
}

bool worker_double::send_snapshot(const commit_result& result, bool whole) {
  if (!result.snapshot || feed_.keepers.empty())
    return false;
  wanted_ = false;
  const auto& x = *current_;
  for (const auto& share : feed_.keepers) {
    parcel it{feed_.job, feed_.pass, result, {}};
    for (auto layer = x.first(); layer < x.last(); ++layer)
      if ((whole || layer % x.what.target.width == x.what.target.pipeline_of(x.self)) &&
          std::ranges::binary_search(share.layers, layer))
        it.layers.emplace_back(layer, store_.at(layer));
    if (!it.layers.empty())
      around_.plane.bring(process, share.keeper.slot, std::make_shared<const parcel>(std::move(it)), streams_);
  }
  return true;
}

} // namespace parcae::simulation
