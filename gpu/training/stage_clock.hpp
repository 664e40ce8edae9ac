#pragma once

// Where the time of a stage's training thread goes.

#include "gpu/training/step_ledger.hpp"
#include "protocols/choreography/choreography.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace parcae {

class event;
class stream;

enum class pass_kind { forward, backward, apply };

/// What a pass took of a device, layer by layer, known once its work is done.
struct device_pass {
  struct span {
    std::uint32_t layer;
    std::shared_ptr<event> from, to;
  };
  pass_kind kind;
  std::vector<span> spans;
};

/// Counts a scope: the calling thread's processor time, in ms, or the device's time of what is given to it meanwhile.
class stopwatch {
public:
  explicit stopwatch(double& to);
  stopwatch(stream& on, device_pass& to, std::uint32_t layer);
  ~stopwatch();
  stopwatch(const stopwatch&) = delete;
  stopwatch& operator=(const stopwatch&) = delete;

private:
  double* to_ = nullptr;
  double began_ = 0;
  stream* on_ = nullptr;
  device_pass* pass_ = nullptr;
  device_pass::span span_{};
};

/// Used by the training thread alone.
class stage_clock {
public:
  /// Of layers [first, last). `naps`: slept before every second run of eight passes, so that a profile sees passes on
  /// waking also where nobody has to wait; 0: never. `on`: what computes passes, so that its time is counted, and a
  /// thread that woke up makes no difference; null: the thread.
  /// `alone`: no other threads take part in a pass.
  stage_clock(std::uint32_t first, std::uint32_t last, std::chrono::microseconds naps, stream* on = nullptr,
              bool alone = true);

  /// All of the time, by parts of the step.
  step_ledger& parts() { return parts_; }

  /// All that is to be counted comes now.
  void start();

  /// A pass begins: everything it waited for is there. On waking, if the thread has slept since the last one of the
  /// same kind began.
  void begin(pass_kind kind);

  /// Counts what the pass under way spends in a layer.
  stopwatch of_layer(std::uint32_t layer, pass_kind kind);

  /// Counts what the thread takes for a step, all included.
  stopwatch of_step() { return stopwatch(step_ms_); }

  void end_step() { ++steps_; }

  /// Since the last call, means. A device's passes count once they are done, which is not waited for.
  struct times {
    std::vector<layer_time> layers;
    double other_ms = 0;  ///< per step, no layer's
    double waited_ms = 0; ///< per step, ready to compute but without a core
  };
  times take();

private:
  struct kind_record {
    double pass_times::*ms;
    long sleeps = -1;   ///< of the thread, until the last pass of this kind
    bool waking = true; ///< the present one is on waking
    std::uint64_t awake_count = 0, waking_count = 0;
  };
  struct sums {
    pass_times awake, waking;
  };

  kind_record& record(pass_kind kind) { return kinds_[static_cast<std::size_t>(kind)]; }
  void count_done();

  std::uint32_t first_;
  std::chrono::microseconds naps_;
  stream* on_;
  step_ledger parts_;
  std::deque<device_pass> on_device_; ///< what is not known yet
  kind_record kinds_[3] = {{&pass_times::forward_ms}, {&pass_times::backward_ms}, {&pass_times::optimizer_ms}};
  std::vector<sums> layers_;
  std::uint64_t passes_ = 0; ///< ever
  double step_ms_ = 0;
  double waited_ms_ = 0; ///< ever, when the last times were taken
  std::uint64_t steps_ = 0;
};

} // namespace parcae
