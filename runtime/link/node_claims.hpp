#pragma once

// Which connection is of which of CAF's nodes. CAF makes up its nodes' names of machine and process, so others can say
// the same: a name is its certificate's for a while after its connection.

#include "protocols/base/locks.hpp"
#include "protocols/trust/identity.hpp"

#include <chrono>
#include <map>
#include <optional>
#include <string>

namespace parcae {

/// On one thread, but for identity_of. `now`: of any clock that does not go back.
class node_claims {
public:
  using milliseconds = std::chrono::milliseconds;

  /// From the end of a connection until another certificate may be of that node: what it said may still be under way
  /// inside CAF, and of a member until it may be back.
  static constexpr milliseconds aftermath{10'000}, absence{3'600'000};
  /// Of one certificate, that have ended: more are forgotten, oldest first.
  static constexpr std::size_t max_ended = 256;

  /// Why this connection cannot be of that node; nothing: now it is. `who`: its certificate's; none: there are none.
  std::string claim(const std::string& node, const void* connection, const std::optional<identity>& who);
  /// The connection has ended.
  void release(const std::string& node, const void* connection, milliseconds now);
  /// Forgets what is over.
  void expire(milliseconds now);

  /// Of a node that is connected. Any thread.
  std::optional<identity> identity_of(const std::string& node) const;

private:
  struct entry {
    const void* connection = nullptr; ///< null: it has ended
    std::optional<identity> who;
    milliseconds free_from{0}; ///< once it has ended
  };

  std::map<std::string, entry> nodes_;
  mutable mutex mutex_;
  std::map<std::string, identity> directory_ GUARDED_BY(mutex_); ///< of nodes_ with a connection and a certificate
};

} // namespace parcae
