#pragma once

// What is inside a frame, read once before CAF reads it: CAF 0.17 reserves what a length says before it looks whether
// so many bytes are there, recurses as deep as a message nests, makes whatever type a name says, and remembers an actor
// for each handle, of whatever node it says to be.

#include "runtime/link/frame_gate.hpp"
#include "runtime/link/permissions.hpp"

#include <caf/fwd.hpp>
#include <caf/message.hpp>
#include <caf/node_id.hpp>

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace parcae {

/// What may be inside.
struct payload_terms {
  caf::node_id from;                                  ///< whose handles may be in it; none: whose does not matter
  std::function<bool(const permission&)> may_be = {}; ///< of a message
};

struct payload_verdict {
  std::string problem;               ///< empty: none
  caf::node_id node;                 ///< of a handshake: who it says it is
  caf::actor_id published = 0;       ///< of a manager's handshake
  std::string other_build;           ///< of one: see problem_of_manager
  const permission* said = nullptr;  ///< of a message
  std::vector<caf::actor_id> actors; ///< of a message: of `from`, whose handles it has
};

/// Reads the whole payload of a frame whose header was found good. Any thread; `system` must live as long.
payload_verdict check_payload(caf::actor_system& system, const frame_header& header, std::span<const char> payload,
                              const payload_terms& terms);

/// Reads a message of ours on its way out: the actors of this process whose handles it has, in order.
std::vector<caf::actor_id> actors_in(caf::actor_system& system, std::span<const char> payload);

} // namespace parcae
