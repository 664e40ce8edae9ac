#pragma once

// LIVEPUT_PLANNER: answers the conductor's question for a configuration (planner/choose/live_plan.hpp) by the job's
// policy. Stateless; created and restarted by the job_manager. A decision may take long for large fleets: it runs on a
// thread of its own.

#include "actors/manager/interfaces.hpp"

#include <caf/typed_event_based_actor.hpp>

namespace parcae {

struct liveput_planner_config {
  job_specification job;
  std::vector<std::uint64_t> state_bytes; ///< by layer
  job_manager_actor manager;              ///< asked for forecasts
};

planner_actor::behavior_type liveput_planner(planner_actor::pointer self, const liveput_planner_config& config);

} // namespace parcae
