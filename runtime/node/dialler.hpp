#pragma once

// DIALLER: what a node dials its manager with. CAF's middleman connects even when whoever asked has long given up, and
// a manager that stood still then meets several connections of one node at once, together with the end of the one
// before: CAF 0.17 takes the new one for an alternative of the old, ends the old, and has no way back to the node any
// more, but reports no loss. So the manager is let say its first word on a connection that is thrown away: then it is
// awake, has seen the ends of old connections, and the middleman dials. Runs on a thread of its own, which it blocks
// for two seconds and what the system takes to resolve a name; a host that is gone keeps the middleman from nothing.

#include "actors/node/instance.hpp"

#include <caf/io/middleman_actor.hpp>

#include <chrono>
#include <cstdint>
#include <string>

namespace parcae {

/// Whether a server at the address says a first word, within the limit. Blocks that long, and what it takes to resolve
/// a name. host: an address or a name.
bool answers(const std::string& host, std::uint16_t port, std::chrono::milliseconds limit);

/// Spawn it detached. Errors: sec::connection_timeout if nobody answers, else what the middleman says.
dialler_actor::behavior_type dialler(dialler_actor::pointer self, caf::io::middleman_actor middleman);

} // namespace parcae
