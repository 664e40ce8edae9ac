#pragma once

// The manager's journal in etcd, and which manager may write it: of a cluster's one leads, by a key that goes with
// its lease. Every write compares that key's revision, so one that no longer leads cannot write, hence cannot do what
// waits for its journal: decide, activate, cut.

#include "actors/manager/journal_store.hpp"
#include "runtime/journal/etcd_client.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace parcae {

/// etcd answers nobody while its members elect a leader of theirs, 1 to 2 s with its own limits once the one before is
/// dead: `step_down` less `renewal` outlasts that.
struct lead_limits {
  std::chrono::seconds lease{5};           ///< nobody else leads before, after the last renewal
  std::chrono::seconds step_down{4};       ///< after it a leader ends, before its lease does; limits a request
  std::chrono::milliseconds renewal{500};  ///< from one renewal to the next
  std::chrono::milliseconds campaign{500}; ///< from one look at whether somebody leads to the next
};

/// How long one that leads may go on. Who asks for a renewal does not know when etcd gets that: its own time counts
/// from before.
class lead_term {
public:
  using time_point = std::chrono::steady_clock::time_point;

  explicit lead_term(const lead_limits& limits) : limits_(limits) {}

  /// The lease was granted, or renewed, as was asked for then.
  void begins(time_point asked) { asked_ = asked; }
  /// Until a renewal must have come, and it must end; not above zero: it must.
  std::chrono::milliseconds left(time_point now) const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(asked_ + limits_.step_down - now);
  }

private:
  lead_limits limits_;
  time_point asked_;
};

/// Called on a thread of its own; must be quick.
struct lead_listener {
  std::function<void()> leads;                 ///< from now on; at most once
  std::function<void(std::string why)> failed; ///< it does not, or no longer; one line; at most once
  /// One that stands by could not lead although nobody else does, or could not ask: one line, once until it could.
  std::function<void(std::string why)> waits;
};

class etcd_leadership {
public:
  /// Begins at once. `who`, one line, is told to others who would lead. With `standby` it waits until nobody leads, and
  /// until etcd answers; without, that somebody leads is a failure. Throws as etcd_client.
  etcd_leadership(etcd_place place, std::string who, bool standby, lead_listener told, lead_limits limits = {});

  /// Gives the lease back, if etcd answers within some seconds: another one may lead at once.
  ~etcd_leadership();

  /// After `leads`: what leaders before have written, and what this one does. Throws as etcd_client. Its write fails
  /// once another one leads.
  std::unique_ptr<journal_store> journal() const;

private:
  class implementation;
  std::unique_ptr<implementation> implementation_;
};

} // namespace parcae
