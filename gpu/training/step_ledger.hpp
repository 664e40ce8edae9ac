#pragma once

// Where the time of a rank's steps goes, with nothing left over.

#include "protocols/values/step_parts.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

namespace parcae {

class event;
class stream;

/// Processor time of the calling thread, ever.
double thread_cpu_ms();

/// At each moment the rank is in one part of its step; a change costs one look at the clock. Of a device that is the
/// time of its stream: what is charged to a part is what passed there between the changes, idle or not. Of a thread,
/// time without a core in a part that computes is step_part::core. Used by the training thread alone.
class step_ledger {
public:
  /// `on`: what computes; null: the thread. `alone`: without the help of others, for which it would have to wait.
  explicit step_ledger(stream* on, bool alone = true);

  /// The part of what follows, until it is destroyed; then the one before goes on.
  class stay {
  public:
    ~stay();
    stay(const stay&) = delete;
    stay& operator=(const stay&) = delete;

  private:
    friend step_ledger;
    struct where {
      std::optional<step_part> part; ///< none: counts nowhere
      std::uint32_t micro_batch = step_span::no_micro_batch;
    };
    stay(step_ledger& of, where next);

    step_ledger& of_;
    const where before_;
  };

  /// Steps begin now.
  void start();
  [[nodiscard]] stay in(step_part part, std::uint32_t micro_batch = step_span::no_micro_batch) {
    return {*this, {part, micro_batch}};
  }
  /// What follows is no part of a step.
  [[nodiscard]] stay outside() { return {*this, {}}; }
  /// So much of the present stay, the last of it, was one of `part`.
  void was_in(step_part part, std::chrono::steady_clock::duration time);
  /// All that was since the last call, or since start(), was this step.
  void end_step(std::uint64_t step);

  /// Means of the steps since the last call, as far as the device has done them; nullopt: none.
  std::optional<step_parts> take();

  /// Between two steps: keeps the spans of that many, from the next one on.
  void trace(std::uint32_t steps) { now_.traces = steps; }
  /// The oldest step that was kept and not taken.
  std::optional<step_trace> take_trace();

private:
  using sums = std::array<double, step_part_count>;

  /// Between two looks at the clock.
  struct stretch {
    stay::where at;
    step_part last_part = step_part::other; ///< of its last `last_ms`
    double last_ms = 0;
    std::optional<std::uint64_t> ends;     ///< this step
    std::optional<std::uint32_t> traces{}; ///< how many steps are, from its begin on
    std::shared_ptr<event> until{};        ///< of a device
  };

  void note_core(double lasted_ms, bool goes_on);
  void change(stay::where next, std::optional<std::uint64_t> ends = {});
  void settle();
  void charge(const stretch& x, double ms);
  void add_span(step_part part, std::uint32_t micro_batch, double from_ms, double to_ms);
  void close(std::uint64_t step);
  void trace_next();

  stream* on_;
  const bool alone_;
  stretch now_;
  std::chrono::steady_clock::time_point began_; ///< of now_
  double began_cpu_ms_ = 0;                     ///< likewise, of a thread that computes
  std::shared_ptr<event> settled_;              ///< of a device: up to here all is charged
  std::deque<stretch> open_;                    ///< of a device: not known to be done
  double at_ms_ = 0;                            ///< charged, since start()

  sums step_{};  ///< the one at hand
  sums ended_{}; ///< those since take()
  std::uint64_t steps_ = 0;
  std::uint32_t to_trace_ = 0;
  std::optional<step_trace> tracing_; ///< the one at hand
  std::deque<step_trace> traced_;
};

} // namespace parcae
