#pragma once

// Interfaces of the manager's own actors, as protocols/wire/actors.hpp has those that other processes reach: its rules
// hold here too.

#include "actors/manager/local_messages.hpp"
#include "protocols/wire/actors.hpp"

#include <caf/atom.hpp>
#include <caf/replies_to.hpp>
#include <caf/typed_actor.hpp>

#include <cstdint>

namespace parcae {

/// REGISTRY: all of the manager's front: instances, the queue of jobs, clients.
using registry_actor = manager_actor::extend<
    // Local only, from the front: manager_actor's, with the sender by its certificate. Errors: also not_permitted.
    caf::replies_to<requester, client_request>::with<client_reply>,
    caf::replies_to<requester, hello, instance_actor, std::vector<slot_actor>>::with<welcome>,
    // Local only, from a job_manager: the job ended. No reply.
    caf::reacts_to<job_outcome>,
    // Local only, from a job_manager: the job no longer needs this slot, which is under notice. No reply. May be
    // repeated.
    caf::reacts_to<released_atom, slot_id>,
    // Local only, from the main program: the manager is to end. The running job is stopped at a step and checkpointed
    // first; no further job starts. No reply; registry_config::ended is called then. May be repeated.
    caf::reacts_to<end_atom>,
    // Local only, from the broker: what there is to rent for. May be repeated.
    caf::replies_to<market_question>::with<market_facts>,
    // Local only, from the broker: notices to workers that nobody needs. No reply. May be repeated.
    caf::reacts_to<give_back>,
    // Local only, from the broker: the pools of the place where the job trains. No reply. Level-triggered.
    caf::reacts_to<train_with>,
    // Local only, from the broker: what `status` shows of it. No reply.
    caf::reacts_to<market_picture>,
    // Local only, from the broker: the money is spent. No reply. May be repeated.
    caf::reacts_to<stop_job>,
    // Local only, timer: forgets lost instances after their lease, and notices that the process stood still.
    caf::reacts_to<timer_atom>>;

/// BROKER: rents instances for the job, by the market policy; child of the main program. All local only.
using broker_actor = caf::typed_actor<
    // Timer: decides.
    caf::reacts_to<timer_atom>,
    // From the feed's thread. No reply. Level-triggered.
    caf::reacts_to<feed_news>,
    // From the hook's thread. No reply.
    caf::reacts_to<hook_news>,
    // From the registry: whether a job's budget can hold, by what is known now. May be repeated.
    caf::replies_to<budget_question>::with<budget_answer>>;

/// JOB_MANAGER: one per job while it runs; child of the registry. All local only.
using job_manager_actor = caf::typed_actor<
    // A slot that the job may use. No reply. A reproducible job ignores workers that do not compute the same bits.
    caf::reacts_to<slot_offer>,
    // slot_lost, slot_leaving, cancel_requested and the like, passed on to the conductor. No reply.
    caf::reacts_to<job_event>,
    // From the conductor: the job ended. No reply.
    caf::reacts_to<job_outcome>,
    // From the conductor: see the registry.
    caf::reacts_to<released_atom, slot_id>,
    // From the registry: passed on to the forecaster, if the job may use that worker. No reply. Edge-triggered, once.
    caf::reacts_to<fleet_news>,
    // From the planner: passed on to the forecaster.
    caf::replies_to<forecast_query>::with<forecast_answer>,
    // From the conductor: passed on to the planner.
    caf::replies_to<request_plan>::with<plan_chosen>,
    // What `status` shows; passed on to the conductor.
    caf::replies_to<view_atom>::with<job_picture>,
    // Has ranks told to tell spans, or answers with those told; passed on to the conductor. May be repeated.
    caf::replies_to<trace_request>::with<trace_reply>>;

/// MIGRATION_CONDUCTOR: hosts the state machine of actors/conductor/conductor.hpp; child of a job_manager.
using conductor_actor = report_sink::extend<
    // Local only: a slot for this job; it is attached and its joining handled, or, if it is known already, its return
    // over a new connection. No reply.
    caf::reacts_to<slot_offer>,
    // Local only: any other event. No reply.
    caf::reacts_to<job_event>,
    // Timer: the conductor's deadline, if this is the newest timer.
    caf::reacts_to<timer_atom, std::uint64_t>,
    // Local only: what `status` shows.
    caf::replies_to<view_atom>::with<job_picture>,
    // Local only: see job_manager_actor.
    caf::replies_to<trace_request>::with<trace_reply>>;

/// JOURNAL: has on disk what the manager must not forget; child of the main program. An error of its store ends it, and
/// the manager with it: what is not on disk did not happen. Local only.
using journal_actor = caf::typed_actor<
    // Puts all of it in the place of what is there under those names, or nothing. Answers when it is durable; error:
    // what may fail was not written. May be repeated.
    caf::reacts_to<journal_entries>>;

/// FORECASTER: learns from the history of the workers; child of a job_manager. Local only.
using forecaster_actor = caf::typed_actor<
    // Remembers it. No reply. Edge-triggered, once.
    caf::reacts_to<fleet_news>,
    // The distribution over the next intervals, from now on. May be repeated.
    caf::replies_to<forecast_query>::with<forecast_answer>>;

/// LIVEPUT_PLANNER: chooses configurations; child of a job_manager. Local only.
using planner_actor = caf::typed_actor<
    // Answers with the configuration to use. May be repeated.
    caf::replies_to<request_plan>::with<plan_chosen>>;

/// INJECTOR: makes synthetic preemptions; child of the registry. Local only.
using injector_actor = caf::typed_actor<
    // Chooses the victims, gives notice of them to the registry, tells them to die. Answers with their names. Errors:
    // unknown_instance, too_few_instances.
    caf::replies_to<preempt_order>::with<preempt_outcome>>;

} // namespace parcae
