#pragma once

// Holds changes of generations to the limits that the conductor has for their phases.

#include "actors/conductor/conducted_job.hpp"
#include "tests/simulation/observed.hpp"
#include "tests/simulation/timeline.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>

namespace parcae::simulation {

/// Is told what one manager says and hears. A phase of a change begins with a command, and must have ended, by the next
/// phase's command or by ABORT, once its limit is over.
class change_watch {
public:
  explicit change_watch(conducted_job job) : job_(std::move(job)) {}

  void told(const command& what, time_point now);
  void heard(const slot_id& from, const report& what, time_point now);
  void durable(const durable_state& now, time_point when);
  void joined(const slot_id& who) { there_[who]; }
  /// Something is done to it.
  void disturbed(const slot_id& who, time_point now);
  void gone(const slot_id& who) { there_.erase(who); }
  /// Another manager, or the same after a standstill: it finds another cluster.
  void begins_anew();

  /// What takes too long, if somebody is still there for whom it does. Said once.
  std::string problem(time_point now);

private:
  enum class phase { none, preparing, stopping, activating, training, ending };

  void enter(phase x, nanoseconds limit, time_point now);
  void prolong(nanoseconds limit, time_point now);
  void train(time_point now) { enter(phase::training, progress_limit(), now); }
  nanoseconds progress_limit() const;
  /// Of the new generation in change, else of the one that trains.
  const prepare& about() const { return next_ ? *next_ : *current_; }

  const conducted_job job_; ///< for its limits
  phase now_ = phase::none;
  time_point begun_, due_;
  std::optional<prepare> next_;         ///< being prepared
  std::optional<prepare> current_;      ///< activated, and not ended
  std::set<slot_id> active_;            ///< of its ranks: those that said so
  std::map<slot_id, time_point> there_; ///< those that live, and when something was done to them
  int in_vain_ = 0;                     ///< ended by ABORT since there was progress
};

} // namespace parcae::simulation
