#pragma once

// Who may end an actor whose handle is known on the network: its parent alone.

#include <caf/actor_addr.hpp>
#include <caf/actor_cast.hpp>
#include <caf/actor_control_block.hpp>

namespace parcae {

/// True if that actor sent the message in hand. It is of this process, and no message from elsewhere can be from it:
/// the sender of such a one is a proxy, whatever the addresses in an exit_msg or a down_msg say.
template <class Self>
bool is_from(Self self, const caf::actor_addr& who) {
  const auto* sender = self->current_sender().get();
  return sender && sender == caf::actor_cast<caf::actor_control_block*>(who);
}

} // namespace parcae
