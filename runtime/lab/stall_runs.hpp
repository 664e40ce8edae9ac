#pragma once

// Runs of a job on clusters of real processes, of which stalls are differences.

#include "protocols/values/job_specification.hpp"
#include "runtime/child/process.hpp"
#include "runtime/lab/local_cluster.hpp"
#include "runtime/lab/stall_report.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace parcae {

/// Where slots run.
struct stall_place {
  bool over_hosts = false;                 ///< what stall_run::over_hosts says of the runs
  cluster_ground ground = {};              ///< by default loopback of this machine
  std::vector<std::string> arguments = {}; ///< of each node
};

/// As much work for each slot as one alone has with this job: its samples of a step times the slots, endless, in this
/// configuration only. Throws std::invalid_argument with the key if that is no job.
job_specification stall_job(job_specification job, std::uint32_t width, std::uint32_t depth, sample_origin samples);

/// A keeper and workers of one slot, for one job after another. Not thread-safe; all throw cluster_error and
/// client_error.
class stall_cluster {
public:
  /// Returns when all are there.
  stall_cluster(stall_place place, std::uint32_t workers);

  stall_run measure(const job_specification& job, std::uint32_t width, std::uint32_t depth, sample_origin samples,
                    std::chrono::milliseconds duration);

private:
  job_status wait_for(const std::string& what, const std::function<bool(const job_status&)>& condition);
  /// When the next steps are heard of, so that no part of one is counted.
  std::uint64_t next_news();
  /// Of as many steps as last that long, about; `step_ms`: how long one took so far.
  void add_traces(stall_run& to, std::chrono::milliseconds duration, double step_ms);

  const stall_place place_;
  const scratch_folder logs_;
  local_cluster cluster_;
  std::uint64_t id_ = 0;
};

struct stall_options {
  std::chrono::milliseconds duration{5'000}; ///< of each run
  std::uint64_t link_bytes_per_s = 0;        ///< 0: on one host only
  std::string device = "cpu";                ///< as parcae-node's --device
};

/// 1×1, 2×1, 1×2 and 2×2 on this machine with samples of each source, and those of several slots as if on as many hosts
/// with samples made up. `show` is told what is going on, one line at a time. Throws as stall_cluster does.
stall_measurements measure_stalls(const job_specification& job, const stall_options& options,
                                  const std::function<void(const std::string&)>& show);

} // namespace parcae
