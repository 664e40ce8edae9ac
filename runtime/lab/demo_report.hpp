#pragma once

// What the demo counts, and the JSON object it ends with (see this folder's README). Pure.

#include "protocols/client/client.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

/// Counted by the demo itself: what it did to the cluster.
struct demo_tally {
  std::uint64_t preemptions = 0;
  std::uint64_t preemptions_without_notice = 0;
  std::uint64_t simultaneous_losses = 0; ///< moments at which two or more were killed together
  std::uint64_t losses_during_change = 0;
  std::uint64_t stage_losses = 0; ///< moments at which all replicas of a stage were killed
  std::uint64_t joins = 0;        ///< workers started after the first ones
  std::uint64_t trace_left = 0;   ///< changes of the user's trace that the job did not live to see
  std::vector<double> detect_ms;  ///< from each SIGKILL to the manager's declaring the loss
};

/// Time spent in and speed of each (D, P), for goodput. All time from the first sample to the last counts.
class rate_meter {
public:
  /// Until this moment that configuration is in use, 0×0: none (the time is lost by the last one); step_ms 0: not known
  /// now.
  void sample(std::chrono::steady_clock::time_point now, std::pair<std::uint32_t, std::uint32_t> configuration,
              double step_ms);

  /// Steps that undisturbed training in the configurations used would have made in the time; where one was never seen
  /// at its speed, or none was in use yet, at the mean of the others; 0 if nothing is known.
  double possible_steps() const;

private:
  struct usage {
    std::chrono::duration<double, std::milli> time{0};
    std::vector<double> step_ms;
  };

  std::map<std::pair<std::uint32_t, std::uint32_t>, usage> usage_;
  std::pair<std::uint32_t, std::uint32_t> in_use_{0, 0};
  std::chrono::steady_clock::time_point last_{};
};

/// The smallest value with at least this share of the values not above it; 0 for none.
double percentile(std::vector<double> values, double share);

/// Whether a change was planned once and at once, so that its prediction is of what happened.
bool went_as_planned(const change_status& x);

/// Median of predicted over measured stall of the changes of one kind that went as planned and in which something had
/// run before, and their number; 0 and 0 for none.
std::pair<double, std::size_t> prediction_ratio(const job_status& x, const std::string& kind);

/// Everything the last line of the demo says.
struct demo_result {
  std::uint64_t seed = 0;
  std::uint64_t samples_per_step = 0;
  std::string policy;
  double wall_s = 0;
  double possible_steps = 0;
  demo_tally tally;
  job_status disturbed; ///< with all changes
  job_status undisturbed;

  bool identical() const;
};

std::string json_of(const demo_result& x);
std::string to_string(const demo_result& x);

} // namespace parcae
