#include "gpu/training/stage_clock.hpp"

#include "gpu/layers/tensor_device.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <thread>
#include <utility>

namespace parcae {

namespace {

/// How long this thread was ready to run but had no core, ever. 0 where the kernel does not say.
double core_wait_ms() {
  std::ifstream file("/proc/thread-self/schedstat"); // ns computed, ns waited, number of times
  double computed = 0, waited = 0;
  file >> computed >> waited;
  return waited / 1e6;
}

/// How often this thread has slept, ever: waited for a peer, mostly.
long sleeps() {
  rusage used{};
  ::getrusage(RUSAGE_THREAD, &used);
  return used.ru_nvcsw;
}

} // namespace

stopwatch::stopwatch(double& to) : to_(&to), began_(thread_cpu_ms()) {}

stopwatch::stopwatch(stream& on, device_pass& to, std::uint32_t layer) :
    on_(&on), pass_(&to), span_{layer, on.record_time(), nullptr} {}

stopwatch::~stopwatch() {
  if (to_) {
    *to_ += thread_cpu_ms() - began_;
    return;
  }
  try {
    span_.to = on_->record_time();
    pass_->spans.push_back(std::move(span_));
  } catch (const std::exception&) {
    // The next use of the device hears of it.
  }
}

stage_clock::stage_clock(std::uint32_t first, std::uint32_t last, std::chrono::microseconds naps, stream* on,
                         bool alone) :
    first_(first),
    naps_(naps), on_(on), parts_(on, alone), layers_(last - first) {}

void stage_clock::start() {
  waited_ms_ = core_wait_ms();
  parts_.start();
}

// Runs of eight passes, whatever their kinds, so that each kind has passes of both sorts within a step or a few.
void stage_clock::begin(pass_kind kind) {
  constexpr std::uint64_t run = 8;
  if (naps_.count() > 0 && passes_++ / run % 2 == 1)
    std::this_thread::sleep_for(naps_);
  if (on_) {
    on_device_.push_back({kind, {}});
    return;
  }
  const auto now = sleeps();
  auto& x = record(kind);
  x.waking = std::exchange(x.sleeps, now) != now;
  ++(x.waking ? x.waking_count : x.awake_count);
}

stopwatch stage_clock::of_layer(std::uint32_t layer, pass_kind kind) {
  if (on_) {
    if (on_device_.empty()) // a decision has it applied after the times of the pass were taken
      on_device_.push_back({kind, {}});
    return stopwatch(*on_, on_device_.back(), layer);
  }
  auto& both = layers_[layer - first_];
  const auto& x = record(kind);
  auto& sums = x.waking ? both.waking : both.awake;
  return stopwatch(sums.*x.ms);
}

void stage_clock::count_done() {
  for (; !on_device_.empty(); on_device_.pop_front()) {
    const auto& pass = on_device_.front();
    if (!pass.spans.empty() && !pass.spans.back().to->done())
      return;
    auto& kind = record(pass.kind);
    ++kind.awake_count;
    for (const auto& x : pass.spans)
      layers_[x.layer - first_].awake.*kind.ms += x.to->ms_since(*x.from);
  }
}

stage_clock::times stage_clock::take() {
  count_done();
  const auto waited = core_wait_ms();
  const auto steps = static_cast<double>(std::max<std::uint64_t>(steps_, 1));
  times result{{}, step_ms_, (waited - waited_ms_) / steps};
  for (std::uint32_t i = 0; i < layers_.size(); ++i) {
    auto& layer = result.layers.emplace_back(layer_time{first_ + i, {}, {}, {}});
    for (const auto& kind : kinds_) {
      const double awake = layers_[i].awake.*kind.ms, waking = layers_[i].waking.*kind.ms;
      const auto a = static_cast<double>(kind.awake_count), w = static_cast<double>(kind.waking_count);
      result.other_ms -= awake + waking;
      layer.all.*kind.ms = (awake + waking) / std::max(1.0, a + w);
      if (a > 0)
        layer.awake.*kind.ms = awake / a;
      if (a > 0 && w > 0)
        layer.waking.*kind.ms = waking / w - awake / a;
    }
  }
  result.other_ms = std::max(0.0, result.other_ms) / steps;
  for (auto& kind : kinds_)
    kind.awake_count = kind.waking_count = 0;
  layers_.assign(layers_.size(), {});
  step_ms_ = 0;
  waited_ms_ = waited;
  steps_ = 0;
  return result;
}

} // namespace parcae
