#pragma once

// The communicator over TCP. Made by the data port once all its connections stand.

#include "gpu/dataplane/communicator.hpp"

#include <boost/asio/ip/tcp.hpp>

#include <memory>
#include <string>
#include <vector>

namespace parcae {

/// An open connection to one participant.
struct tcp_peer {
  boost::asio::ip::tcp::socket socket; ///< not open for oneself
  std::string name;                    ///< for error messages
};

/// `peers` by participant number. The sockets' I/O thread must run, and the communicator must be destroyed before it
/// ends.
std::unique_ptr<communicator> make_tcp_communicator(std::uint32_t self, std::vector<tcp_peer> peers);

} // namespace parcae
