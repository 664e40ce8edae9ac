#pragma once

// FRONT: what the manager publishes to the network. Passes the messages that nodes and commands may send to the
// REGISTRY, and its answers back. The gate (runtime/link) lets nothing else through; what a certificate does not allow
// is refused here. Created by the manager's main program, which ends the process if it dies all the same.

#include "actors/manager/interfaces.hpp"
#include "protocols/trust/identity.hpp"
#include "protocols/wire/actors.hpp"

#include <caf/fwd.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <functional>
#include <optional>

namespace parcae {

/// `peers`: who a node of CAF is, by its certificate; null: there are no certificates, and all that are connected may
/// do everything. With them a node joins, leaves and reports failures under the names that its certificate allows;
/// clients and operators ask and command, and report no failures; neither does what is the other's (error
/// not_permitted).
manager_actor::behavior_type front(manager_actor::pointer self, registry_actor registry,
                                   std::function<std::optional<identity>(const caf::node_id&)> peers);

} // namespace parcae
