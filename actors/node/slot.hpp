#pragma once

// SLOT: one slot of an instance, a worker's or a keeper's; these differ in their executors alone. Owns nothing but its
// STAGE, which owns the executor that holds the state of the job served. A stage that dies is replaced by an empty one
// and reported as failed. Created by the instance, for one life of it.

#include "actors/node/stage.hpp"

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

namespace parcae {

/// As its instance sees it.
using local_slot_actor = slot_actor::extend<
    // The instance ends before long, and no manager is there to move what it holds: what is trained here goes to the
    // job's keepers. No reply. May be repeated.
    caf::reacts_to<snapshot_atom>>;

struct slot_actor_state {
  static constexpr const char* name = "slot";

  slot_id slot;
  executor_source source;
  job_id job;        ///< served; 0: none yet
  report_sink sink;  ///< its conductor
  stage_actor stage; ///< null before the first job
  generation active; ///< of the newest ACTIVATE; a dead stage is reported for it, and
  generation newest; ///< for the newest generation seen in a command
};

/// Ends when its parent tells it to, or has ended itself; exits of all others are ignored.
local_slot_actor::behavior_type slot(local_slot_actor::stateful_pointer<slot_actor_state> self, slot_id slot,
                                     executor_source source, caf::strong_actor_ptr parent);

} // namespace parcae
