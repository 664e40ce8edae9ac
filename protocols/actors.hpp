#pragma once

// Interfaces of all actors. Each message says: effect; reply; errors; whether it may be repeated; which generation is
// checked. Messages between one pair of actors keep their order. "Local only" messages never leave their process.
// Include type_ids.hpp where messages are sent or handled.

#include "protocols/choreography.hpp"
#include "protocols/messages.hpp"

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/atom.hpp>
#include <caf/fwd.hpp>
#include <caf/replies_to.hpp>
#include <caf/type_id.hpp>
#include <caf/typed_actor.hpp>

#include <cstdint>
#include <variant>
#include <vector>

// Atoms have at most ten characters.
CAF_ADD_ATOM(parcae_protocol, parcae, attach_atom, "attach")
CAF_ADD_ATOM(parcae_protocol, parcae, cancel_atom, "cancel")
CAF_ADD_ATOM(parcae_protocol, parcae, dial_atom, "dial")
CAF_ADD_ATOM(parcae_protocol, parcae, die_atom, "die")
CAF_ADD_ATOM(parcae_protocol, parcae, end_atom, "end")
CAF_ADD_ATOM(parcae_protocol, parcae, notice_atom, "notice")
CAF_ADD_ATOM(parcae_protocol, parcae, released_atom, "released")
CAF_ADD_ATOM(parcae_protocol, parcae, report_atom, "report")
CAF_ADD_ATOM(parcae_protocol, parcae, timer_atom, "timer")
CAF_ADD_ATOM(parcae_protocol, parcae, view_atom, "view")

namespace parcae {

// Local only; defined in actors/local_messages.hpp.
struct slot_offer;
struct job_event;
struct job_outcome;
struct job_picture;
struct fleet_news;
struct forecast_query;
struct forecast_answer;
struct plan_query;
struct plan_answer;
struct preempt_order;
struct preempt_outcome;
struct executor_report;

/// An actor that takes each alternative of a variant as a message of its own, after the same first elements.
template <class Variant, class... First>
struct takes_each;

template <class... Ts, class... First>
struct takes_each<std::variant<Ts...>, First...> {
  using type = caf::typed_actor<caf::reacts_to<First..., Ts>...>;
};

} // namespace parcae

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::slot_offer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::job_event)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::job_outcome)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::job_picture)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::fleet_news)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::forecast_query)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::forecast_answer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::plan_query)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::plan_answer)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::preempt_order)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::preempt_outcome)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(parcae::executor_report)

namespace parcae {

/// Where the executors of a job report to: its MIGRATION_CONDUCTOR. Each report of choreography.hpp is one message
/// (slot, report); no reply; may be repeated; reports of slots that the job does not have are ignored, and the
/// conductor checks the generation.
using report_sink = takes_each<report, slot_id>::type;

/// One device of an instance (GPU actor), or a keeper (KEEPER actor). Each command of choreography.hpp is one message
/// (job, command); no reply but the report that choreography.hpp names; may be repeated; the executor checks the
/// generation. Commands of another job than the one attached are ignored.
using slot_actor = takes_each<command, job_id>::type::extend<
    // The slot now serves this job, and reports to this conductor. State of another job is dropped, that of this one is
    // not: so a conductor attaches a slot again whose connection was another in the meantime. No reply. May be
    // repeated.
    caf::reacts_to<attach_atom, job_id, report_sink>>;

/// Owns the executor of one slot and one job; child of a GPU or KEEPER.
using stage_actor = takes_each<command>::type::extend<
    // Reports go there from now on. No reply. May be repeated.
    caf::reacts_to<attach_atom, report_sink>,
    // Local only, from the executor's threads: passed on to the conductor.
    caf::reacts_to<executor_report>>;

/// INSTANCE: a node process as the registry sees it.
using instance_actor = caf::typed_actor<
    // The injector's preemption: the process ends itself by SIGKILL after this many ms, at most a day. No reply. The
    // earliest counts.
    caf::reacts_to<die_atom, std::uint64_t>,
    // Nothing needs this instance any more: it may exit if it is leaving. No reply. May be repeated.
    caf::reacts_to<released_atom>,
    // Local only: SIGTERM arrived; tells the registry, exits when released or after this many ms. May be repeated.
    caf::reacts_to<notice_atom, std::uint64_t>,
    // Local only, timer: dials the manager, if this is the newest timer.
    caf::reacts_to<dial_atom, std::uint64_t>,
    // Local only, timer: the notice expired.
    caf::reacts_to<timer_atom>,
    // Local only: something failed here, in one line, and the log up to there; the manager is told within a moment.
    // What fails before then counts as the same failure.
    caf::reacts_to<report_atom, std::string, std::vector<std::string>>,
    // Local only, timer: tells the manager.
    caf::reacts_to<report_atom>>;

/// The manager as a client sees it.
using service_actor = caf::typed_actor<
    // One request of client.hpp in, one reply out; problems are replies too (error_reply), not CAF errors. A submission
    // must not be repeated, the others may.
    caf::replies_to<client_request>::with<client_reply>>;

/// The manager as a node sees it; what is published at its port (FRONT), and the REGISTRY behind it.
using manager_actor = service_actor::extend<
    // HELLO with the instance and one actor per slot. Joins; may be repeated by the same life, also after its loss was
    // declared. Errors: wrong_protocol, duplicate_name, lost_incarnation, malformed_request.
    caf::replies_to<hello, instance_actor, std::vector<slot_actor>>::with<welcome>,
    // That life ends after the notice. No reply. May be repeated; the earliest end counts. Unknown lives are ignored.
    caf::reacts_to<leaving_notice>>;

/// REGISTRY: all of the manager's front: instances, the queue of jobs, clients.
using registry_actor = manager_actor::extend<
    // Local only, from a job_manager: the job ended. No reply.
    caf::reacts_to<job_outcome>,
    // Local only, from a job_manager: the job no longer needs this slot, which is under notice. No reply. May be
    // repeated.
    caf::reacts_to<released_atom, slot_id>,
    // Local only, from the main program: the manager is to end. The running job is stopped at a step and checkpointed
    // first; no further job starts. No reply; registry_config says who is told. May be repeated.
    caf::reacts_to<end_atom>,
    // Local only, timer: forgets lost instances after their lease, and notices that the process stood still.
    caf::reacts_to<timer_atom>>;

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
    caf::replies_to<plan_query>::with<plan_answer>,
    // What `status` shows; passed on to the conductor.
    caf::replies_to<view_atom>::with<job_picture>>;

/// MIGRATION_CONDUCTOR: hosts the state machine of actors/conductor.hpp; child of a job_manager.
using conductor_actor = report_sink::extend<
    // Local only: a slot for this job; it is attached and its joining handled, or, if it is known already, its return
    // over a new connection. No reply.
    caf::reacts_to<slot_offer>,
    // Local only: any other event. No reply.
    caf::reacts_to<job_event>,
    // Timer: the conductor's deadline, if this is the newest timer.
    caf::reacts_to<timer_atom, std::uint64_t>,
    // Local only: what `status` shows.
    caf::replies_to<view_atom>::with<job_picture>>;

/// FORECASTER: learns from the history of the workers; child of a job_manager. Local only.
using forecaster_actor = caf::typed_actor<
    // Remembers it. No reply. Edge-triggered, once.
    caf::reacts_to<fleet_news>,
    // The distribution over the next intervals, from now on. May be repeated.
    caf::replies_to<forecast_query>::with<forecast_answer>>;

/// LIVEPUT_PLANNER: chooses configurations; child of a job_manager. Local only.
using planner_actor = caf::typed_actor<
    // Answers with the configuration to use. May be repeated.
    caf::replies_to<plan_query>::with<plan_answer>>;

/// INJECTOR: makes synthetic preemptions; child of the registry. Local only.
using injector_actor = caf::typed_actor<
    // Chooses the victims, gives notice of them to the registry, tells them to die. Answers with their names. Errors:
    // unknown_instance, too_few_instances.
    caf::replies_to<preempt_order>::with<preempt_outcome>>;

} // namespace parcae
