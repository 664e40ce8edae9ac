#pragma once

// Measures a job on this machine, on clusters of real processes: steps at 1×1, alone and side by side on all cores, and
// changes of generation.

#include "planner/cost/step_model.hpp"
#include "protocols/client/client.hpp"
#include "protocols/values/job_specification.hpp"
#include "runtime/lab/link_probe.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace parcae {

struct profile_options {
  std::chrono::milliseconds duration{5'000}; ///< of each measurement of steps
  std::uint32_t changes = 9;                 ///< of generation
  std::uint32_t cores = 0;                   ///< that slots may compute on side by side; 0: all of this machine
  /// What slots compute on, as parcae-node's --device: "cpu", or one GPU. GPUs do not slow each other down,
  /// so nothing is measured side by side there.
  std::string device = "cpu";
};

/// What profile_job found.
struct job_measurements {
  std::vector<layer_cost> layers; ///< at 1×1, with the machine to itself
  double step_ms = 0;             ///< at 1×1
  platform_cost platform;
  link_measurement link;
  memory_status memory;         ///< at 1×1
  std::uint64_t slot_bytes = 0; ///< of memory, that the slot there promised
  change_figures changes;
  double node_start_ms = 0;          ///< from a node's start until it is a member
  double first_step_ms = 0;          ///< from a job's submission to its first commit, on a node that waits for it
  double checkpoint_ms = 0;          ///< written by one keeper
  std::vector<change_status> record; ///< the changes
};

/// The same job, to be measured for as long as is wanted, within these bounds.
job_specification endless_job_of(job_specification job, std::uint32_t width, std::uint32_t depth);

/// A job in one configuration.
struct configuration_run {
  job_status status;        ///< at the end; its row of `configurations` is measured
  double samples_per_s = 0; ///< committed by the clock, while it was measured
};

/// Has the job in one configuration for a while, with stages cut by measured times.
configuration_run run_configuration(const job_specification& job, std::uint32_t width, std::uint32_t depth,
                                    std::chrono::milliseconds duration);

/// `show` is told what is going on, one line at a time. Throws cluster_error and client_error.
job_measurements profile_job(const job_specification& job, const profile_options& options,
                             const std::function<void(const std::string&)>& show);

} // namespace parcae
