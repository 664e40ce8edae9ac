#pragma once

// The connections of a process in use, looked at again and again: whose host has vanished without a word, and whose
// certificate is not good any more. All on the data port's I/O thread.

#include "gpu/dataplane/link_rate.hpp"
#include "protocols/trust/identity.hpp"

#include <netinet/tcp.h>

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>

namespace parcae {

/// From one look to the next.
inline constexpr std::chrono::milliseconds look_pause{200};

/// A connection that somebody uses.
struct watched_connection {
  std::weak_ptr<void> owner;                         ///< as long as it is there, the rest may be used
  std::function<int()> descriptor;                   ///< −1: it is closed
  std::function<void(const std::string& why)> close; ///< whatever is under way fails, saying why
  std::string name;                                  ///< of the other side
  std::optional<identity> peer;                      ///< by its certificate
  bool trains = false;                               ///< it is of a generation
  bool leaves = false;                               ///< this machine; found out when it is added
  bool silent = false;                               ///< when last looked at
  link_use used{};                                   ///< likewise
};

/// Nothing was heard of the other host for 2.2 s though it should have answered. Its process may stand still:
/// hosts answer for themselves.
bool is_silent(const tcp_info& x);

/// Why who has that certificate may not be connected any more; empty: it may.
using objection = std::function<std::string(const identity&)>;

class connection_watch {
public:
  /// Asks the kernel to probe a host that says nothing.
  void add(watched_connection x);

  /// Closes the connections of hosts that were silent twice: once may be this machine's own standstill. Sees what the
  /// others bring over the link.
  void look();

  /// Closes the connections of those that may not have them any more.
  void close_those(const objection& to);

  /// What the link to other machines gives, bytes/s; 0: not known.
  double link_bytes_per_s() const { return rate_.bytes_per_s(std::chrono::steady_clock::now()); }

  /// A generation has something to send to another machine.
  bool trains_over_link() const;

private:
  void close(const watched_connection& x, const std::string& why);

  /// Since the last look; nothing if that shows nothing.
  static std::optional<link_use> use_of(watched_connection& x, int socket);

  std::list<watched_connection> connections_;
  link_rate rate_;
  std::chrono::steady_clock::time_point looked_;
};

} // namespace parcae
