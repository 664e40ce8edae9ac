#pragma once

// The communicator over TCP, in TLS if its sockets are. Made by the data port once all its connections stand.

#include "gpu/dataplane/communicator.hpp"
#include "gpu/dataplane/port_side.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace parcae {

/// A longer message goes in frames of this size, of which one is sent while others are copied or checked.
inline constexpr std::size_t max_frame_bytes = std::size_t{4} << 20;

/// An open connection to one participant.
struct tcp_peer {
  socket_ptr socket; ///< null: oneself, or there is no connection
  std::string name;  ///< for error messages
};

/// `peers` by participant number. The sockets' I/O thread must run, and the communicator must be destroyed before it
/// ends. Appends its connections to `watched`.
std::unique_ptr<communicator> make_tcp_communicator(std::uint32_t self, std::vector<tcp_peer> peers,
                                                    std::vector<watched_connection>& watched);

} // namespace parcae
