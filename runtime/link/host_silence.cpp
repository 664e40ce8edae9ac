#include "runtime/link/host_silence.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

namespace parcae {

using std::chrono::milliseconds;

// Repetitions only: an unanswered probe of a window that was full is one of a host that is there, for a round trip.
host_silence silence_in(const tcp_info& x) {
  // Data that acknowledge nothing new leave the time of the last acknowledgement as it was.
  const milliseconds silent(std::min(x.tcpi_last_ack_recv, x.tcpi_last_data_recv));
  const milliseconds round_trip(x.tcpi_rtt / 1'000);
  return {silent, longest_silence + 2 * round_trip, x.tcpi_retransmits > 0};
}

std::optional<host_silence> silence_of(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (socket < 0 || ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
    return {};
  return silence_in(info);
}

} // namespace parcae
