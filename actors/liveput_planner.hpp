#pragma once

// LIVEPUT_PLANNER: answers the conductor's question for a configuration. Stateless; created and restarted by the
// job_manager.

#include "actors/local_messages.hpp"

#include <caf/typed_event_based_actor.hpp>

namespace parcae {

/// Plans by the `throughput` policy (planner/throughput.hpp) for this job and these links between instances.
planner_actor::behavior_type liveput_planner(planner_actor::pointer self, job_specification job, link_cost link);

} // namespace parcae
