#pragma once

// What `status` shows of a job: one part per aggregate of the conductor, each a plain value. Computed when asked for.

#include "actors/conductor/phase.hpp"
#include "actors/conductor/training_course.hpp"
#include "planner/choose/live_plan.hpp"
#include "planner/situation/inventory.hpp"
#include "planner/situation/placement.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

using time_point = std::chrono::steady_clock::time_point;
using milliseconds = std::chrono::milliseconds;

/// As status has it.
inline std::int64_t microseconds_of(time_point x) {
  return std::chrono::duration_cast<std::chrono::microseconds>(x.time_since_epoch()).count();
}

/// One change of generation, for status and benchmarks. Times in ms from the start of the change; -1: did not happen.
struct change_record {
  time_point at; ///< its start
  generation to;
  std::string trigger;       ///< what started it; empty: no change
  std::string configuration; ///< "D×P"
  migration kind = migration::none;
  std::uint64_t bytes = 0;
  /// Committed steps lost (only if the chain was cut) or, 1, a step dropped by an abort.
  std::uint64_t replayed_steps = 0;
  double decided_ms = -1, planned_ms = -1, prepared_ms = -1, stopped_ms = -1, ready_ms = -1, active_ms = -1,
         first_commit_ms = -1;
  double stall_ms = -1; ///< from STOPPED of the last rank (or the loss being declared) to the last ACTIVE
  /// The stall as predicted when the change was first planned, from what earlier ones took; not mended later, however
  /// the change goes. 0 if nothing ran before.
  double predicted_ms = -1;
  std::uint32_t plans = 0; ///< times that it was planned; from the second on it is another than was predicted
  bool waited = false;     ///< for instances, which no prediction knows of
};

/// Of `change_log`.
struct change_view {
  std::deque<change_record> changes; ///< newest last, at most 1000
  std::deque<decision> decisions;    ///< newest last, at most 100
  std::uint64_t decision_count = 0;  ///< all that ever were
  std::uint64_t replayed_steps = 0;
  std::uint64_t counts[4] = {}; ///< changes by migration kind
};

/// Of `protection`.
struct protection_view {
  version protected_version;  ///< newest complete in the keepers and in the chain
  bool protected_now = false; ///< a keeper is present and has, or will have, current snapshots
  std::uint32_t copies = 0;   ///< keepers that hold each layer, at least
  version copied_version;     ///< there are so many of: the newest that has as many as asked for, unless that is old
  std::string copies_problem; ///< why there are less than asked for; empty: there are not
};

/// Of `checkpoint_ledger`.
struct checkpoint_view {
  version checkpoint; ///< newest complete one that this job wrote, or was started from
  std::vector<std::pair<slot_id, std::string>> checkpoint_folders; ///< where each keeper put its share of it
  std::string checkpoint_problem;                                  ///< why the last attempt to write one failed
};

/// What a keeper holds.
struct keeper_record {
  slot_id where;
  version newest;           ///< of which it holds something
  std::uint32_t layers = 0; ///< of that version
};

/// A worker that can have no place now.
struct unused_slot {
  slot_id where;
  std::string why; ///< for people
};

struct job_view : training_view, change_view, protection_view, checkpoint_view {
  phase now = phase::waiting;
  generation current;            ///< running, or last that ran
  std::optional<placement> grid; ///< of `current`; empty while waiting, and in the end
  change_figures figures;
  std::vector<chain_link> chain;
  std::vector<layer_digest> layer_digests; ///< of the final parameters, once the job is done
  std::string problem;                     ///< why it waits or failed
  std::vector<keeper_record> keepers;      ///< those present
  std::vector<unused_slot> unused;         ///< but for those under notice
  std::uint32_t layers = 0;                ///< of the model
  bool on_devices = false;                 ///< its slots' memory is not the machines'
};

} // namespace parcae
