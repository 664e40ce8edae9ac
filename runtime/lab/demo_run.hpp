#pragma once

// The disturbed part of the demo: a job on a local cluster whose workers come and go.

#include "runtime/lab/availability.hpp"
#include "runtime/lab/demo.hpp"
#include "runtime/lab/demo_report.hpp"
#include "runtime/lab/local_cluster.hpp"

#include <map>
#include <random>
#include <set>

namespace parcae {

/// A preemption aimed at what the job is doing, rather than at a time.
enum class aim : std::uint8_t {
  one,           ///< one place of the grid, without notice
  one_noticed,   ///< the same with notice
  pair,          ///< two replicas of one stage at the same moment
  whole_stage,   ///< all replicas of one stage at the same moment
  during_change, ///< a notice starts a change; another place is killed before it ends, else the same again
};

/// What the demo shows in one line.
struct demo_progress {
  std::string activity;
  const job_status& job;
  std::size_t workers = 0;
};

class demo_run {
public:
  /// Workers may take `slot_bytes` of memory; 0: no limit. `show` is called often.
  demo_run(local_cluster& cluster, const demo_options& options, std::uint64_t slot_bytes,
           std::function<void(const demo_progress&)> show);

  /// Runs the job to its end. Throws cluster_error if it fails, or makes no progress for long.
  job_status run(const job_specification& job);

  const demo_tally& tally() const { return tally_; }
  double possible_steps() const { return meter_.possible_steps(); }

private:
  using clock = std::chrono::steady_clock;

  /// Of a manager that somebody stops for a while, too: the connection is lost, and made anew. Throws client_error.
  status_reply ask(const status_request& wanted);
  /// After a pause takes the status, notes what it says, and shows it. Throws when the job failed or stands still.
  const job_status& look(std::chrono::milliseconds after);
  bool over() const { return job_.state == "done"; }

  void start_worker();
  void refill();
  void wait_until_settled();
  void idle_until(std::uint64_t step);
  void follow_trace();
  void carry_out(aim what);
  void kill_during_change();
  void kill(const std::vector<std::string>& names);
  void notice(const std::string& name);
  /// Those killed after a change had begun and lost before it was over, by the manager's own record.
  std::uint64_t losses_during_change();
  std::vector<std::string> workers(bool with_leaving) const;
  std::vector<std::string> replicas_of_some_stage();
  std::string some_place(const std::string& but = {});

  local_cluster& cluster_;
  const demo_options& options_;
  const std::uint64_t slot_bytes_;
  std::function<void(const demo_progress&)> show_;
  std::mt19937_64 random_;
  std::vector<availability_change> trace_; ///< in demo time, from the start
  std::size_t next_change_ = 0;
  clock::time_point start_;

  std::uint64_t id_ = 0;
  status_reply status_;
  job_status job_; ///< newest status of the job, details left out
  std::string activity_;
  std::uint64_t best_step_ = 0;
  clock::time_point progress_at_; ///< when steps_done last grew
  clock::time_point stir_at_;     ///< when generation, phase or members last changed
  std::string stirred_;           ///< what they were
  unsigned next_name_ = 0;
  std::size_t expected_workers_ = 0;
  /// When one of ours was killed and when it was declared lost.
  struct loss {
    std::int64_t killed_us;
    std::int64_t lost_us;
  };
  std::map<std::string, clock::time_point> killed_; ///< by us, loss not yet declared
  std::vector<loss> losses_;
  demo_tally tally_;
  rate_meter meter_;
};

} // namespace parcae
