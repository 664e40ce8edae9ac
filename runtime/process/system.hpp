#pragma once

// CAF as all of our processes configure it.

#include "runtime/link/link.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

#include <chrono>
#include <string>

namespace parcae {

/// Limits of the whole system, in one place (HOW_IT_WORKS.md, "Waiting").
struct liveness_limits {
  std::chrono::milliseconds heartbeat{500};       ///< between two signs of life on a connection
  std::chrono::milliseconds declared_lost{2'000}; ///< silence after which a connection counts as lost
  std::chrono::milliseconds lease{10'000};        ///< how long a lost instance is listed
  std::chrono::milliseconds control_request{5'000};
  std::chrono::milliseconds prepare{60'000};
};

/// Empty if `bytes` of addresses (`ulimit -v`) do for the threads that a process has on a machine with that many cores,
/// each with a stack of `stack_bytes`; else one line. CAF does not survive a thread that cannot be made.
std::string problem_of_addresses(std::uint64_t bytes, std::uint64_t stack_bytes, unsigned cores);

/// Empty if the limits are ordered as they must be, else one line.
std::string problem_of(const liveness_limits& x);

/// Middleman loaded, message types registered, shared scheduler queue, heartbeats on.
class system_config : public caf::actor_system_config {
public:
  system_config();

  /// Empty if what CAF will really use is what we want, else one line: CAF takes unknown or mistyped keys in silence,
  /// and without heartbeats a frozen node is never noticed.
  std::string problem() const;
};

/// The actors of a process, and how others reach them: only through the gate of runtime/link. Whatever belongs to CAF's
/// own middleman (publish, remote_actor, …) opens ports past it, and is not for use.
class control_plane {
public:
  /// Throws std::runtime_error with one line if the bundle cannot be used, or CAF would run otherwise than is wanted.
  explicit control_plane(const link_options& options = {});

  caf::actor_system& system() { return system_; }
  /// Dials and publishes: see caf_side.
  const caf::io::middleman_actor& middleman() const { return end_.middleman(); }
  /// See network_side.
  peer_lookup peers() const { return network_.peers(); }
  void read_bundle_again(); ///< and tells the log
  std::string certificate_problem() const { return network_.certificate_problem(); }
  std::string other_build() const { return network_.other_build(); }

private:
  system_config config_;
  network_side network_;
  caf::actor_system system_;
  caf_side end_;
};

} // namespace parcae
