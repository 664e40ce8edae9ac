#pragma once

// FRONT: what the manager publishes to the network. Passes the messages that nodes and commands may send to the
// REGISTRY, and its answers back; whoever can connect can also send links and exits, and what they reach is only this.
// Created by the manager's main program, which ends the process if it dies all the same.

#include "protocols/wire/actors.hpp"

#include <caf/typed_event_based_actor.hpp>

namespace parcae {

manager_actor::behavior_type front(manager_actor::pointer self, manager_actor registry);

} // namespace parcae
