#pragma once

// Interfaces of the actors that other processes reach. Each message says: effect; reply; errors; whether it may be
// repeated; which generation is checked. Messages between one pair of actors keep their order. "Local only" messages
// never leave their process. Include type_ids.hpp where messages are sent or handled.

#include "protocols/choreography/choreography.hpp"
#include "protocols/choreography/messages.hpp"

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
CAF_ADD_ATOM(parcae_protocol, parcae, dial_atom, "dial")
CAF_ADD_ATOM(parcae_protocol, parcae, die_atom, "die")
CAF_ADD_ATOM(parcae_protocol, parcae, end_atom, "end")
CAF_ADD_ATOM(parcae_protocol, parcae, notice_atom, "notice")
CAF_ADD_ATOM(parcae_protocol, parcae, released_atom, "released")
CAF_ADD_ATOM(parcae_protocol, parcae, report_atom, "report")
CAF_ADD_ATOM(parcae_protocol, parcae, risk_atom, "risk")
CAF_ADD_ATOM(parcae_protocol, parcae, timer_atom, "timer")
CAF_ADD_ATOM(parcae_protocol, parcae, view_atom, "view")

namespace parcae {

/// An actor that takes each alternative of a variant as a message of its own, after the same first elements.
template <class Variant, class... First>
struct takes_each;

template <class... Ts, class... First>
struct takes_each<std::variant<Ts...>, First...> {
  using type = caf::typed_actor<caf::reacts_to<First..., Ts>...>;
};

/// Where the executors of a job report to: its MIGRATION_CONDUCTOR. Each report of choreography.hpp is one message
/// (slot, report); no reply; may be repeated; reports of slots that the job does not have are ignored, and the
/// conductor checks the generation.
using report_sink = takes_each<report, slot_id>::type;

/// One slot of an instance, a worker's or a keeper's (GPU actor). Each command of choreography.hpp is one message
/// (addressee, command); no reply but the report that choreography.hpp names; may be repeated; the executor checks the
/// generation. Commands for another slot, another life of it, or another job than the one attached are ignored.
using slot_actor = takes_each<command, addressee>::type::extend<
    // The slot now serves this job, and reports to this conductor. State of another job is dropped, that of this one is
    // not: so a conductor attaches a slot again whose connection was another in the meantime. No reply. May be
    // repeated.
    caf::reacts_to<attach_atom, addressee, report_sink>>;

/// INSTANCE: a node process as the registry sees it.
using instance_actor = caf::typed_actor<
    // The injector's preemption: the process ends itself by SIGKILL after this many ms, at most a day. No reply. The
    // earliest counts.
    caf::reacts_to<die_atom, std::uint64_t>,
    // Whether what a job reads or writes is there. place_answer; an error if it still looks for another one, or ends.
    // May be repeated.
    caf::replies_to<place_question>::with<place_answer>,
    // Nothing needs this instance any more: it may exit if it is leaving. No reply. May be repeated.
    caf::reacts_to<released_atom>,
    // Local only: SIGTERM arrived, or a notice of the cloud, with the reason in one line; tells the registry, exits
    // when released or after this many ms. May be repeated; the earliest end counts.
    caf::reacts_to<notice_atom, std::uint64_t, std::string>,
    // Local only: the cloud says that it may take this machine, in one line; empty: it says so no more. The manager
    // learns of it with the next HELLO. May be repeated; ignored while leaving.
    caf::reacts_to<risk_atom, std::string>,
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
    // declared. Errors: wrong_protocol, duplicate_name, lost_incarnation, outdated_manager,
    // malformed_request.
    caf::replies_to<hello, instance_actor, std::vector<slot_actor>>::with<welcome>,
    // That life ends after the notice. No reply. May be repeated; the earliest end counts. Unknown lives are ignored.
    caf::reacts_to<leaving_notice>>;

} // namespace parcae
