#pragma once

// How a job's training went, in bounded memory. Plain classes: the time is an argument.

#include "actors/conductor/rank_times.hpp"
#include "planner/choose/throughput.hpp"
#include "planner/cost/step_meter.hpp"
#include "protocols/client/client.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace parcae {

/// Losses over the steps. When it is full, neighbours are merged to their mean, so that it always spans the whole
/// training, with a resolution that halves now and then.
class loss_curve {
public:
  static constexpr std::size_t max_points = 256;

  /// The loss of the step that made version `steps`. What was known of that version and later ones is forgotten: they
  /// are computed again. A loss that is not finite is left out.
  void add(std::uint64_t steps, double loss);

  /// One that goes on from these points, from now on with its full resolution.
  static loss_curve of(std::vector<loss_point> points);

  /// Ascending.
  const std::vector<loss_point>& points() const { return points_; }

private:
  std::vector<loss_point> points_;
  std::size_t per_point_ = 1; ///< losses merged in each point
  std::size_t in_last_ = 1;   ///< in the last one so far
};

/// Steps per second over the last minute, stalls and repeated steps included.
class commit_pace {
public:
  using time_point = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::seconds window{60};

  void add(time_point now, std::uint64_t steps_done);

  /// 0: unknown, or no progress.
  double steps_per_s() const;

private:
  std::deque<std::pair<time_point, std::uint64_t>> seen_; ///< at most two a second
};

/// The newest result.
void tell_of(training_status& to, const commit_result& x);

struct training_view : training_status, pace_status {
  std::string kind; ///< of the present generation's instances, of which measures are; empty: all are alike
  std::vector<configuration> configurations;         ///< of the planner's last answer, with what was measured since
  std::map<std::uint32_t, std::uint64_t> peak_bytes; ///< of tensors, by rank of the present generation, as far as heard
  std::map<std::uint32_t, std::uint64_t> reserved_bytes; ///< likewise, as progress has them
  /// Per step, and for which file, by rank of the present generation that last said it waited for samples.
  std::map<std::uint32_t, std::pair<double, std::string>> data_waits;
  std::map<std::uint32_t, step_parts> times;           ///< by rank of the present generation, as far as heard
  std::map<std::uint32_t, transport_state> transports; ///< by rank of the present generation, as far as heard
  double steps_per_s = 0;                              ///< of the last minute, stalls included; 0: unknown
};

/// What ranks say of their steps.
class training_course {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// `past`: of a manager before.
  explicit training_course(std::uint64_t steps_done, const training_status& past = {});

  /// A generation is activated. `kind`: of its instances; what was measured on others says nothing of them.
  void begin(const placement& grid, std::uint32_t side_by_side, const std::string& kind = {});

  /// True if it tells of a newer version than was known.
  bool hear(time_point now, std::uint32_t rank, const progress& x);

  /// When the sums of all virtual replicas are in, their mean over the validation samples counts.
  void hear(const evaluated& x, const job_specification& job);

  /// These steps are committed, as decided or said in STOPPED. The result, if any, is of the last one.
  void reached(std::uint64_t steps, const commit_result& result = {});

  /// What the planner may choose from.
  void offer(std::vector<configuration> all) { view_.configurations = std::move(all); }

  /// There was no progress within the limit; how often since the last step.
  void count_stuck() { ++stuck_; }
  int stuck() const { return stuck_; }
  void forget_stuck() { stuck_ = 0; }

  std::uint64_t steps_done() const { return view_.steps_done; }
  double step_ms() const { return view_.step_ms; }
  double last_loss() const { return view_.loss; }
  std::int64_t evaluated_steps() const { return view_.evaluated_steps; } ///< -1: none is
  double validation_loss() const { return view_.validation_loss; }
  const step_meter& steps() const { return steps_.at(view_.kind); }
  /// The fastest step reported.
  std::optional<double> shortest_ms() const { return shortest_ms_; }

  /// `estimates`: of the layers, for until they are measured.
  training_view view(const job_specification& job, std::span<const layer_cost> estimates,
                     const platform_cost& platform) const;

private:
  training_view view_; ///< but for what is computed in view()
  loss_curve losses_, validation_losses_;
  std::map<std::string, step_meter> steps_{{"", {}}}; ///< by kind of instance
  shape shape_;                                       ///< of the present generation
  commit_pace pace_;
  rank_times times_;
  int stuck_ = 0;
  std::optional<double> shortest_ms_;
  version evaluated_at_;                            ///< the version that the sums are of
  generation evaluated_by_;                         ///< the newest that evaluated
  std::map<std::uint32_t, double> evaluation_sums_; ///< by virtual replica, as far as heard
};

} // namespace parcae
