#include "gpu/dataplane/connection_watch.hpp"

#include <linux/sockios.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace parcae {

namespace {

/// Two probes unanswered, or as many repetitions of what was sent; the second's answer may take the rest.
constexpr std::uint32_t silence_ms = 2200;
constexpr int probe_after_s = 1;

} // namespace

// Not TCP_USER_TIMEOUT: that would also end a connection whose other side lives and has no room, for a rank computes
// longer than that.
bool is_silent(const tcp_info& x) {
  return (x.tcpi_probes > 0 || x.tcpi_retransmits > 0) && x.tcpi_last_ack_recv > silence_ms;
}

void connection_watch::add(watched_connection x) {
  const int on = 1, pause_s = probe_after_s, probes = 5; // the kernel itself gives up later
  const int socket = x.descriptor();
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &pause_s, sizeof pause_s);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &pause_s, sizeof pause_s);
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  x.leaves = socket >= 0 && !stays_on_machine(socket);
  connections_.push_back(std::move(x));
}

void connection_watch::close(const watched_connection& x, const std::string& why) {
  spdlog::warn("closed the data connection to {}: {}", x.name, why);
  x.close(why);
}

std::optional<link_use> connection_watch::use_of(watched_connection& x, int socket) {
  const auto now = use_of_link(socket);
  if (!now)
    return {};
  const auto before = std::exchange(x.used, *now);
  if (!x.leaves || !is_unpaced(socket))
    return {};
  return link_use{now->bytes - before.bytes, now->busy - before.busy};
}

void connection_watch::look() {
  std::vector<link_use> uses;
  for (auto x = connections_.begin(); x != connections_.end();) {
    const auto owner = x->owner.lock();
    const int socket = owner ? x->descriptor() : -1;
    tcp_info info{};
    socklen_t size = sizeof info;
    if (socket < 0 || ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
      x = connections_.erase(x);
      continue;
    }
    if (const auto use = use_of(*x, socket))
      uses.push_back(*use);
    const bool was_silent = std::exchange(x->silent, is_silent(info));
    if (!was_silent || !x->silent) {
      ++x;
      continue;
    }
    close(*x, "its host does not answer any more");
    x = connections_.erase(x);
  }
  const auto now = std::chrono::steady_clock::now();
  const auto between = now - std::exchange(looked_, now);
  rate_.note(uses, std::chrono::duration_cast<std::chrono::microseconds>(between), now);
}

bool connection_watch::trains_over_link() const {
  return std::ranges::any_of(connections_, [](const watched_connection& x) {
    const auto owner = x.trains && x.leaves ? x.owner.lock() : nullptr;
    const int socket = owner ? x.descriptor() : -1;
    int unsent = 0;
    return socket >= 0 && ::ioctl(socket, SIOCOUTQ, &unsent) == 0 && unsent > 0;
  });
}

void connection_watch::close_those(const objection& to) {
  std::erase_if(connections_, [&](const watched_connection& x) {
    const auto owner = x.owner.lock();
    const auto why = owner && x.peer ? to(*x.peer) : std::string();
    if (!why.empty())
      close(x, why);
    return !why.empty();
  });
}

} // namespace parcae
