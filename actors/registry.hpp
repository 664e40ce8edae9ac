#pragma once

// REGISTRY: the manager's front. Knows the instances (instance_table) and the jobs (job_queue), serves clients, gives
// all slots to the running job. Created and published by the manager's main program; creates injector and job_managers.

#include "actors/cluster_news.hpp"
#include "actors/conductor.hpp"
#include "actors/instance_table.hpp"
#include "actors/job_queue.hpp"
#include "actors/local_messages.hpp"
#include "protocols/line_limit.hpp"

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace parcae {

struct registry_config {
  milliseconds lease{10'000};     ///< how long lost instances are listed
  conductor_options conductor;    ///< limits for all jobs
  bool own_threads = true;        ///< as in job_manager_config
  std::uint64_t manager_life = 0; ///< random per process; told to everybody who says HELLO
  secret_key secret;              ///< random per process, never sent: all tokens follow from it
};

struct registry_state {
  static constexpr const char* name = "registry";

  struct member {
    instance_actor handle;
    std::vector<slot_actor> slots;
    std::uint64_t order = 0;        ///< of joining
    std::set<std::uint32_t> needed; ///< slots under notice that the job has not released
  };

  registry_config config;
  instance_table table{milliseconds(0), 0};
  std::map<instance_table::key, member> members; ///< of the living
  std::uint64_t joined = 0;                      ///< instances ever
  std::deque<fleet_news> fleet;                  ///< what happened to workers, oldest first, bounded
  cluster_news news;
  job_queue queue;
  std::optional<time_point> idle_since;   ///< the running job waits with nothing begun, and another could run; polled
  std::optional<time_point> look_at;      ///< when that is looked at again
  std::map<job_id, job_picture> pictures; ///< last one of each job that ran
  job_manager_actor manager;              ///< of the running job, or null
  injector_actor injector;
  line_limit refusals;
};

registry_actor::behavior_type registry(registry_actor::stateful_pointer<registry_state> self, registry_config config);

} // namespace parcae
