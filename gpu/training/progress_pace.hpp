#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace parcae {

/// When a rank of a generation reports its progress, and how long its steps took since the last time.
class progress_pace {
public:
  using duration = std::chrono::steady_clock::duration;

  /// A generation is activated.
  void begin();

  /// Of `ranks`, has done a step. The mean duration of those since the last report, ms, if another is due now: after
  /// the first, if `at_once`, or after the interval.
  std::optional<double> step_done(std::uint32_t ranks, bool at_once);

  /// So much of the present step's time is none of it.
  void leave_out(duration x) { step_began_ += x; }

private:
  std::chrono::steady_clock::time_point reported_;
  std::chrono::steady_clock::time_point step_began_; ///< the first since the report
  std::uint64_t steps_ = 0;                          ///< since the report
};

} // namespace parcae
