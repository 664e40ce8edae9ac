#pragma once

// What `status` shows of a job: one part per aggregate of the conductor, each a plain value. Computed when asked for.
// What can be told as it is, is a group of status; beside them what the manager makes others of, or decides by.

#include "actors/conductor/phase.hpp"
#include "actors/conductor/training_course.hpp"
#include "planner/choose/live_plan.hpp"
#include "planner/situation/placement.hpp"
#include "protocols/client/client.hpp"
#include "protocols/client/journal.hpp"
#include "protocols/values/loss_record.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace parcae {

using time_point = std::chrono::steady_clock::time_point;
using milliseconds = std::chrono::milliseconds;

/// As status has it.
inline std::int64_t microseconds_of(time_point x) {
  return std::chrono::duration_cast<std::chrono::microseconds>(x.time_since_epoch()).count();
}

/// Of `protection`.
struct protection_view : protection_status {
  version protected_version; ///< of protected_steps
  version copied_version;    ///< of copied_steps
};

/// Of `checkpoint_ledger`.
struct checkpoint_view : checkpoint_status {
  version checkpoint; ///< of checkpoint_steps
};

/// What the journal has of it.
checkpoint_view checkpoint_of(const durable_state& x);

/// A worker that can have no place now.
struct unused_slot {
  slot_id where;
  std::string why; ///< for people
};

struct job_view : training_view, history_status, protection_view, checkpoint_view, service_status {
  phase now = phase::waiting;
  generation current;                      ///< running, or last that ran
  std::optional<placement> grid;           ///< of `current`; empty while waiting, and in the end
  std::vector<layer_digest> layer_digests; ///< of the final parameters, once the job is done
  std::string problem;                     ///< why it waits or failed
  std::vector<unused_slot> unused;         ///< but for those under notice
  loss_record record;                      ///< of each step
  situation known;                         ///< as the planner is told of it
  bool on_devices = false;                 ///< its slots' memory is not the machines'
};

} // namespace parcae
