#pragma once

// What is inside a frame, read once before CAF reads it: CAF 0.17 reserves what a length says before it looks whether
// so many bytes are there, and recurses as deep as a message nests.

#include "runtime/link/frame_gate.hpp"

#include <caf/fwd.hpp>
#include <caf/node_id.hpp>

#include <span>
#include <string>

namespace parcae {

struct payload_verdict {
  std::string problem; ///< empty: none
  caf::node_id node;   ///< of a handshake: who it says it is
};

/// Reads the whole payload of a frame whose header was found good. Any thread; `system` must live as long.
payload_verdict check_payload(caf::actor_system& system, const frame_header& header, std::span<const char> payload);

} // namespace parcae
