#include "gpu/dataplane/link_rate.hpp"

#include <arpa/inet.h>
#include <linux/tcp.h> // has more of tcp_info than netinet/tcp.h; together they do not compile
#include <sys/socket.h>

#include <cstddef>
#include <cstring>

namespace parcae {

namespace {

/// Its host, whatever the port.
std::optional<in6_addr> host_of(const sockaddr_storage& x) {
  if (x.ss_family == AF_INET6)
    return reinterpret_cast<const sockaddr_in6&>(x).sin6_addr;
  if (x.ss_family != AF_INET)
    return {};
  in6_addr result{};
  result.s6_addr[10] = result.s6_addr[11] = 0xff;
  std::memcpy(&result.s6_addr[12], &reinterpret_cast<const sockaddr_in&>(x).sin_addr, 4);
  return result;
}

} // namespace

bool stays_on_machine(int socket) {
  sockaddr_storage here{}, there{};
  socklen_t size = sizeof here, peer_size = sizeof there;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&here), &size) != 0 ||
      ::getpeername(socket, reinterpret_cast<sockaddr*>(&there), &peer_size) != 0)
    return false;
  const auto x = host_of(here), y = host_of(there);
  return x && y && std::memcmp(&*x, &*y, sizeof *x) == 0;
}

bool is_unpaced(int socket) {
  unsigned long rate = 0;
  socklen_t size = sizeof rate;
  return ::getsockopt(socket, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &size) == 0 && rate == ~0UL;
}

std::optional<link_use> use_of_link(int socket) {
  tcp_info x{};
  socklen_t size = sizeof x;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &x, &size) != 0 || size < offsetof(tcp_info, tcpi_rwnd_limited))
    return {};
  return link_use{x.tcpi_bytes_acked, std::chrono::microseconds(x.tcpi_busy_time)};
}

} // namespace parcae
