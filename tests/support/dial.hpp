#pragma once

// What is published at an address, as nodes and commands reach it.

#include "runtime/process/address.hpp"

#include <caf/actor_cast.hpp>
#include <caf/actor_system.hpp>
#include <caf/atom.hpp>
#include <caf/expected.hpp>
#include <caf/io/middleman_actor.hpp>
#include <caf/scoped_actor.hpp>

#include <chrono>
#include <set>
#include <string>

namespace parcae {

template <class Handle>
caf::expected<Handle> dial(caf::actor_system& system, const caf::io::middleman_actor& middleman, const address& where) {
  caf::expected<Handle> result{caf::sec::connection_timeout};
  caf::scoped_actor self(system);
  self->request(middleman, std::chrono::seconds(20), caf::connect_atom_v, where.host, where.port)
      .receive(
          [&](const caf::node_id&, caf::strong_actor_ptr& to, const std::set<std::string>& interface) {
            if (to && system.assignable<Handle>(interface))
              result = caf::actor_cast<Handle>(to);
            else
              result = caf::sec::unexpected_actor_messaging_interface;
          },
          [&](caf::error& e) { result = std::move(e); });
  return result;
}

} // namespace parcae
