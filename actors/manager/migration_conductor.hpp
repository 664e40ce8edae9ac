#pragma once

// MIGRATION_CONDUCTOR: hosts the state machine of conductor.hpp for one job. Translates messages into its events and
// its effects into messages; decides nothing itself. Created and monitored by the job_manager, which ends it; it is the
// one actor of the manager, besides the FRONT, that others can name: nodes that it has attached. It hears what a slot's
// own node says of it, and ignores exits of anybody but its job_manager.

#include "actors/conductor/conductor.hpp"
#include "actors/manager/interfaces.hpp"
#include "actors/manager/loss_journal.hpp"
#include "actors/manager/trace_collection.hpp"
#include "protocols/base/line_limit.hpp"

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>

namespace parcae {

struct migration_conductor_config {
  job_id job;
  job_specification specification;
  model_facts facts;
  conductor_options options;
  secret_key secret;         ///< tokens of data connections follow from it
  job_manager_actor manager; ///< told of the outcome and of released slots, asked for plans
  bool own_threads = true;   ///< as in job_manager_config
  journal_actor journal;     ///< null: nothing is kept
  known_job known;           ///< what the journal has of the job
};

/// When it is written down how the job goes, and what was last.
struct kept_history {
  std::optional<time_point> due; ///< something happened since
  time_point at;
  time_point curve_at; ///< all of it
  version reached;
  /// Changes, decisions, events and evaluations that there were.
  std::array<std::uint64_t, 4> counts{};
};

struct migration_conductor_state {
  static constexpr const char* name = "migration_conductor";

  migration_conductor_config config;
  std::unique_ptr<conductor> machine;
  std::map<slot_id, slot_actor> slots;                            ///< that may be told something; erased when lost
  std::deque<effect> pending;                                     ///< not carried out yet, in order
  bool steps_down = false;                                        ///< the process ends, and the next one goes on
  bool writing = false;                                           ///< they wait for the journal
  std::set<slot_id> leaving;                                      ///< under notice and not yet released
  std::set<slot_id> emptied;                                      ///< leaving, and told to release all they hold
  std::shared_ptr<const job_view> picture;                        ///< of the view, made when asked for; null: outdated
  std::deque<logged_event> events;                                ///< journal and log, the newest 1000
  std::shared_ptr<const std::deque<logged_event>> events_picture; ///< like picture
  std::uint64_t dropped_events = 0;
  std::map<slot_id, line_limit> limits; ///< of lines that a slot's reports cause
  kept_history kept;
  loss_journal losses{job_id{}};
  trace_collection traces;            ///< of the newest that was asked for
  std::optional<time_point> timer_at; ///< when the newest timer fires
  std::uint64_t timer = 0;            ///< its number
  request_plan asked;                 ///< the newest question to the planner
  int unanswered = 0;                 ///< attempts in a row that the planner did not answer
  planner_actor stand_in;             ///< plans by throughput meanwhile; null before it was needed
  bool ended = false;                 ///< job_ended was carried out; nothing more is handled

  /// Whatever ended the actor: what the keepers hold goes to disk.
  ~migration_conductor_state();
};

conductor_actor::behavior_type migration_conductor(conductor_actor::stateful_pointer<migration_conductor_state> self,
                                                   migration_conductor_config config);

} // namespace parcae
