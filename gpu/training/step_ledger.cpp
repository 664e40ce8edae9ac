#include "gpu/training/step_ledger.hpp"

#include "gpu/layers/tensor_device.hpp"

#include <algorithm>
#include <ctime>
#include <exception>
#include <utility>

namespace parcae {

namespace {

using steady = std::chrono::steady_clock;

double ms_of(steady::duration x) {
  return std::chrono::duration<double, std::milli>(x).count();
}

/// In these a thread has nothing to wait for but a core.
bool computes(std::optional<step_part> x) {
  return x == step_part::forward || x == step_part::backward || x == step_part::recompute || x == step_part::optimizer;
}

constexpr double clocks_apart_ms = 0.02; ///< two clocks that are read one after the other differ by less

} // namespace

double thread_cpu_ms() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

step_ledger::stay::stay(step_ledger& of, where next) : of_(of), before_(of.now_.at) {
  of_.change(next);
}

step_ledger::stay::~stay() {
  try {
    of_.change(before_);
  } catch (const std::exception&) {
    // The next use of the device hears of it.
  }
}

step_ledger::step_ledger(stream* on, bool alone) : on_(on), alone_(alone) {}

void step_ledger::start() {
  now_ = {};
  now_.at.part = step_part::other;
  began_ = steady::now();
  if (on_)
    settled_ = on_->record_time();
}

void step_ledger::change(stay::where next, std::optional<std::uint64_t> ends) {
  now_.ends = ends;
  if (on_) {
    now_.until = on_->record_time();
    open_.push_back(std::exchange(now_, {}));
  } else {
    const auto now = steady::now();
    const auto lasted_ms = ms_of(now - std::exchange(began_, now));
    note_core(lasted_ms, computes(next.part));
    charge(now_, lasted_ms);
    now_ = {};
  }
  now_.at = next;
}

// A look at the thread's processor time is a system call, so that is only done where something computes.
void step_ledger::note_core(double lasted_ms, bool goes_on) {
  const bool computed = computes(now_.at.part);
  if (!alone_ || (!computed && !goes_on))
    return;
  const auto cpu_ms = thread_cpu_ms();
  const auto without_ms = lasted_ms - (cpu_ms - std::exchange(began_cpu_ms_, cpu_ms));
  if (!computed || without_ms < clocks_apart_ms)
    return;
  now_.last_part = step_part::core;
  now_.last_ms = without_ms;
}

void step_ledger::was_in(step_part part, steady::duration time) {
  now_.last_part = part;
  now_.last_ms = ms_of(time);
}

void step_ledger::end_step(std::uint64_t step) {
  change(now_.at, step);
  settle();
}

void step_ledger::settle() {
  for (; !open_.empty() && open_.front().until->done(); open_.pop_front()) {
    auto& x = open_.front();
    charge(x, x.until->ms_since(*settled_));
    settled_ = std::move(x.until);
  }
}

void step_ledger::charge(const stretch& x, double ms) {
  if (x.traces) {
    to_trace_ = *x.traces;
    trace_next();
  }
  if (x.at.part) {
    const auto last = std::clamp(x.last_ms, 0.0, ms);
    step_[static_cast<std::size_t>(*x.at.part)] += ms - last;
    step_[static_cast<std::size_t>(x.last_part)] += last;
    if (tracing_) {
      const auto turn = at_ms_ + (ms - last);
      add_span(*x.at.part, x.at.micro_batch, at_ms_, turn);
      add_span(x.last_part, x.at.micro_batch, turn, at_ms_ + ms);
    }
  }
  at_ms_ += ms;
  if (x.ends)
    close(*x.ends);
}

void step_ledger::add_span(step_part part, std::uint32_t micro_batch, double from_ms, double to_ms) {
  const auto from = static_cast<std::uint64_t>(from_ms * 1e6), to = static_cast<std::uint64_t>(to_ms * 1e6);
  if (to <= from)
    return;
  tracing_->is_cut |= tracing_->spans.size() >= step_trace::max_spans;
  if (!tracing_->is_cut)
    tracing_->spans.push_back({part, micro_batch, from, to - from});
}

void step_ledger::close(std::uint64_t step) {
  for (std::size_t i = 0; i < step_part_count; ++i)
    ended_[i] += std::exchange(step_[i], 0);
  ++steps_;
  if (tracing_) {
    tracing_->step = step;
    traced_.push_back(*std::exchange(tracing_, std::nullopt));
    trace_next();
  }
}

void step_ledger::trace_next() {
  tracing_.reset();
  if (to_trace_ == 0)
    return;
  --to_trace_;
  tracing_.emplace();
}

std::optional<step_parts> step_ledger::take() {
  if (steps_ == 0)
    return {};
  step_parts result;
  const auto steps = static_cast<double>(std::exchange(steps_, 0));
  for (std::size_t i = 0; i < step_part_count; ++i)
    result.*members_of_step_parts[i] = std::exchange(ended_[i], 0) / steps;
  return result;
}

std::optional<step_trace> step_ledger::take_trace() {
  if (traced_.empty())
    return {};
  auto result = std::move(traced_.front());
  traced_.pop_front();
  return result;
}

} // namespace parcae
