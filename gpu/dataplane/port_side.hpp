#pragma once

// What all connections of a data port have in common. All on its I/O thread.

#include "gpu/dataplane/connection_watch.hpp"
#include "protocols/trust/secure_socket.hpp"

#include <boost/asio/io_context.hpp>

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>

namespace parcae {

using socket_ptr = std::shared_ptr<secure_socket>;

struct port_side {
  int sharing = 0; ///< connections that send what may take a share of the link only; outlives what runs in `io`
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
      set_pace(x, link_bytes_per_s);
  }

  /// What it may take if all that sends something of that kind takes no more than this share of the link, bytes/s; 0:
  /// what it gets, as that is not known, or nothing leaves the machine.
  double part_of(double share, secure_socket& x) const {
    if (link_bytes_per_s > 0) // what is made up is of each connection
      return share * static_cast<double>(link_bytes_per_s);
    const bool stays = stays_on_machine(x.socket.native_handle());
    return stays ? 0 : share * connections.link_bytes_per_s() / std::max(sharing, 1);
  }

  /// From now on, and no more waits in the kernel than a little. 0: what it gets.
  void give(secure_socket& x, double bytes_per_s) {
    constexpr int little = 128 << 10, as_ever = 0;
    const bool paced = bytes_per_s > 0;
    ::setsockopt(x.socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, paced ? &little : &as_ever, sizeof little);
    if (paced)
      set_pace(x, static_cast<std::uint64_t>(std::max(1.0, bytes_per_s)));
    else
      set_pace(x, link_bytes_per_s > 0 ? link_bytes_per_s : ~std::uint64_t{0});
  }

  /// From now on its host is watched.
  void watch(const socket_ptr& x) {
    connections.add({.owner = x,
                     .descriptor = [x = x.get()] { return x->closed() ? -1 : x->socket.native_handle(); },
                     .close = [x = x.get()](const std::string&) { x->close(); },
                     .name = x->name(),
                     .peer = x->peer});
  }

private:
  static void set_pace(secure_socket& x, std::uint64_t bytes_per_s) {
    ::setsockopt(x.socket.native_handle(), SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_s, sizeof bytes_per_s);
  }
};

} // namespace parcae
