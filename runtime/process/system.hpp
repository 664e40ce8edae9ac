#pragma once

// CAF as all of our processes configure it.

#include <caf/actor_system_config.hpp>

#include <chrono>
#include <string>

namespace parcae {

/// Limits of the whole system, in one place (design, section 10).
struct liveness_limits {
  std::chrono::milliseconds heartbeat{500};       ///< between two signs of life on a connection
  std::chrono::milliseconds declared_lost{2'000}; ///< silence after which a connection counts as lost
  std::chrono::milliseconds lease{10'000};        ///< how long a lost instance is listed
  std::chrono::milliseconds control_request{5'000};
  std::chrono::milliseconds prepare{60'000};
};

/// Empty if the limits are ordered as the design wants, else one line.
std::string problem_of(const liveness_limits& x);

/// Middleman loaded, message types registered, shared scheduler queue, heartbeats on.
class system_config : public caf::actor_system_config {
public:
  system_config();

  /// Empty if what CAF will really use is what we want, else one line: CAF takes unknown or mistyped keys in silence,
  /// and without heartbeats a frozen node is never noticed.
  std::string problem() const;
};

} // namespace parcae
