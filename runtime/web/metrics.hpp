#pragma once

// What Prometheus is told: the newest status, and what is counted over statuses. Pure; on the server's thread.

#include "protocols/client/client.hpp"

#include <prometheus/client_metric.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace parcae {

/// Times, counted by how long they were.
class time_counts {
public:
  static constexpr std::array bounds_s{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0};

  void add(double seconds);

  std::uint64_t count = 0;
  double sum_s = 0;
  std::array<std::uint64_t, bounds_s.size()> up_to{}; ///< no longer than each bound
};

class web_metrics {
public:
  /// Jobs that are told of: those that have not ended, and of the others this number, the newest.
  static constexpr std::size_t max_ended = 16;

  void heard(const status_reply& x);

  /// In Prometheus' text format. `x`: the newest status, null: none came yet. `up`: the manager answers.
  /// `certificate`: what is to be done about the one that this process shows it.
  std::string text(const status_reply* x, bool up, const std::string& certificate) const;

private:
  struct of_job {
    std::uint64_t steps = 0;                   ///< the most that were committed: going back does not take them away
    std::map<std::string, time_counts> stalls; ///< by kind of change
    time_counts decisions;
    double stalled_s = 0;                     ///< all of them
    std::optional<std::int64_t> began_us;     ///< of the first change that was told, by the manager's clock
    std::uint64_t replayed_before = 0;        ///< steps that were computed again before it
    std::set<std::uint64_t> stalled, decided; ///< changes that are counted
    std::string checkpoint_problem;
    std::uint64_t checkpoint_failures = 0;
  };
  struct page;

  void count_job(const job_status& x);
  void count_losses(const status_reply& x);
  using labels = std::vector<prometheus::ClientMetric::Label>;
  static void add_gpus(page& to, const instance_status& x);
  static void add_changes(page& to, const of_job& counts, const labels& who);
  static void add_service(page& to, const request_figures& x, const labels& who);
  void add_job(page& to, const status_reply& in, const job_status& x) const;

  std::uint64_t manager_life_ = 0;
  std::map<std::uint64_t, of_job> jobs_;
  std::set<incarnation> leaving_, lost_; ///< of those that the newest status has
  std::uint64_t with_notice_ = 0, without_notice_ = 0;
};

} // namespace parcae
