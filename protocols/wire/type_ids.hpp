#pragma once

// CAF's list of all message types that travel between nodes. CAF sends the type's name, so renaming one is a change of
// protocol. A type missing here arrives as an empty message (a test round-trips every one).

#include "protocols/choreography/choreography.hpp"
#include "protocols/choreography/messages.hpp"
#include "protocols/wire/actors.hpp"
#include "protocols/wire/errors.hpp"

#include <caf/error.hpp>
#include <caf/fwd.hpp>
#include <caf/type_id.hpp>

#include <string>
#include <vector>

// A std::variant cannot be a CAF 0.17 message: every command and report is a message of its own.
CAF_BEGIN_TYPE_ID_BLOCK(parcae_protocol, first_custom_type_id)

CAF_ADD_TYPE_ID(parcae_protocol, (parcae::job_id))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::slot_id))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::addressee))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::hello))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::welcome))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::leaving_notice))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::place_question))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::place_answer))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::client_request))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::client_reply))

CAF_ADD_TYPE_ID(parcae_protocol, (parcae::load))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::prepare))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::warm))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::stop))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::activate))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::abort_generation))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::decide))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::release))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::protect))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::trace_steps))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::guard))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::confirm))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::replicate))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::checkpoint))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::restore))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::forget))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::recall))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::remember))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::route))

CAF_ADD_TYPE_ID(parcae_protocol, (parcae::loaded))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::prepared))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::warmed))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::stopped))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::active))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::aborted))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::decided))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::progress))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::evaluated))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::traced))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::failed))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::kept))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::checkpointed))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::restored))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::recalled))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::served))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::routed))

CAF_ADD_TYPE_ID(parcae_protocol, (parcae::report_sink))
CAF_ADD_TYPE_ID(parcae_protocol, (std::vector<std::string>))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::slot_actor))
CAF_ADD_TYPE_ID(parcae_protocol, (std::vector<parcae::slot_actor>))
CAF_ADD_TYPE_ID(parcae_protocol, (parcae::instance_actor))

CAF_END_TYPE_ID_BLOCK(parcae_protocol)

CAF_ERROR_CODE_ENUM(parcae::parcae_error, "parcae")

namespace parcae {

/// Registers all message types and the error category. Call it before the actor system is made; the one source that
/// defines it sees all `inspect` functions.
void add_message_types(caf::actor_system_config& config);

/// Whether it is a parcae_error. Safe for the empty error.
bool is_ours(const caf::error& x);

/// One line for people on any error: ours with its details, CAF's with its name.
std::string render(const caf::error& x);

/// The details that came with an error of ours; empty for others.
std::string details_of(const caf::error& x);

} // namespace parcae
