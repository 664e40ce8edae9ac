#pragma once

// JOB_MANAGER: runs one job. Creates its conductor, its forecaster and its planner, passes slots, events and news on,
// restarts forecaster and planner, and tells the registry how the job ended. Created by the registry when the job's
// turn comes; ends with the job.

#include "actors/conductor/conductor.hpp"
#include "actors/manager/interfaces.hpp"

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <deque>
#include <string>

namespace parcae {

struct job_manager_config {
  job_id job;
  job_specification specification;
  conductor_options options;
  secret_key secret;           ///< the tokens of the job's data connections follow from it
  registry_actor registry;     ///< told of the outcome and of released slots
  std::deque<fleet_news> past; ///< what happened to the workers so far, oldest first; then of this job
  journal_actor journal;       ///< null: nothing is kept
  known_job known;             ///< what the journal has of the job; empty: it begins
  std::string processor;       ///< that the journal has of the job's workers; empty: none
  bool own_threads = true;     ///< forecaster and planner compute on threads of their own (not in virtual time)
};

struct job_manager_state {
  static constexpr const char* name = "job_manager";

  job_manager_config config;
  conductor_actor conductor;
  planner_actor planner;
  forecaster_actor forecaster;
  std::string processor; ///< of the first worker of a reproducible job; others must equal it
  bool over = false;     ///< the outcome was told
};

job_manager_actor::behavior_type job_manager(job_manager_actor::stateful_pointer<job_manager_state> self,
                                             job_manager_config config);

} // namespace parcae
