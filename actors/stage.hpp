#pragma once

// STAGE: passes commands of one job to the executor it owns, and the executor's reports to the conductor. The executor
// works on threads of its own and reports by message, so that no handler ever waits. Created and monitored by a GPU.

#include "actors/gpu.hpp"

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

namespace parcae {

struct stage_state {
  static constexpr const char* name = "stage";

  slot_id slot;
  executor_source source;
  report_sink sink;                 ///< the job's conductor
  std::unique_ptr<executor> worker; ///< retired when the actor ends, whatever ended it

  ~stage_state();
};

/// Ends when its parent tells it to, or has ended itself; exits of all others are ignored.
stage_actor::behavior_type stage(stage_actor::stateful_pointer<stage_state> self, slot_id slot, executor_source source,
                                 report_sink sink, caf::strong_actor_ptr parent);

} // namespace parcae
