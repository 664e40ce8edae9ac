#pragma once

// What all connections of a data port have in common. All on its I/O thread.

#include "gpu/dataplane/connection_watch.hpp"
#include "protocols/trust/secure_socket.hpp"

#include <boost/asio/io_context.hpp>

#include <sys/socket.h>

#include <cstdint>

namespace parcae {

using socket_ptr = std::shared_ptr<secure_socket>;

struct port_side {
  boost::asio::io_context io{1};
  std::shared_ptr<const credentials> own; ///< null: plain TCP, on loopback
  connection_watch connections;
  std::uint64_t link_bytes_per_s = 0; ///< that each connection sends at most; 0: as fast as it goes

  socket_ptr new_socket(link_side here) {
    return std::make_shared<secure_socket>(boost::asio::ip::tcp::socket(io), here, own);
  }

  /// Once it is open: as if the other end were behind such a link. The kernel's own pacing, which needs no permission.
  void pace(secure_socket& x) {
    if (link_bytes_per_s > 0)
      ::setsockopt(x.socket.native_handle(), SOL_SOCKET, SO_MAX_PACING_RATE, &link_bytes_per_s,
                   sizeof link_bytes_per_s);
  }

  /// From now on its host is watched.
  void watch(const socket_ptr& x) {
    connections.add({.owner = x,
                     .descriptor = [x = x.get()] { return x->closed() ? -1 : x->socket.native_handle(); },
                     .close = [x = x.get()](const std::string&) { x->close(); },
                     .name = x->name(),
                     .peer = x->peer});
  }
};

} // namespace parcae
