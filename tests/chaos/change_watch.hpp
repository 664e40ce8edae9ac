#pragma once

// Which moments of a job's changes faults hit.

#include "tests/chaos/tally.hpp"

#include <chrono>
#include <string>

namespace parcae {

class change_watch {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// The job's phase, as it was looked at. Whether layers begin to go ahead of a change.
  bool begins_to_warm(const std::string& phase) const { return phase == "warming" && phase_ != phase; }
  /// Likewise whether a generation has just begun, late parts of which may be under way.
  bool has_begun(const std::string& phase) const { return phase == "running" && phase_ == "activating"; }

  void look(const std::string& phase, time_point now) {
    if (has_begun(phase))
      begun_ = now;
    phase_ = phase;
  }

  /// A fault comes now.
  void count_harm(tally& to, time_point now) const {
    if (!phase_.empty() && phase_ != "running")
      ++to["harm during a change"];
    if (phase_ == "warming")
      ++to["harm while layers go ahead"];
    if (now - begun_ < late)
      ++to["harm right behind a change"];
  }

private:
  static constexpr std::chrono::milliseconds late{150};

  std::string phase_;
  time_point begun_;
};

} // namespace parcae
