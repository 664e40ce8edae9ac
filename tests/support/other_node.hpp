#pragma once

// What seems to be an actor of another node.

#include <caf/actor.hpp>
#include <caf/actor_config.hpp>
#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/forwarding_actor_proxy.hpp>
#include <caf/make_actor.hpp>
#include <caf/node_id.hpp>

namespace parcae {

/// `broker`: gets what is sent there.
inline caf::actor on_another_node(caf::actor_system& system, const caf::actor& broker, caf::actor_id id = 99) {
  caf::actor_config config;
  return caf::make_actor<caf::forwarding_actor_proxy, caf::actor>(id, caf::make_node_id(7, {1}), &system, config,
                                                                  broker);
}

/// Takes anything, and does nothing.
inline caf::behavior ignore_all(caf::event_based_actor* self) {
  self->set_default_handler(caf::drop);
  return {[](int) {}};
}

} // namespace parcae
