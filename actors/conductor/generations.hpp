#pragma once

// The generation that trains, or is being ended, and the one that is to follow it. Pure.

#include "planner/situation/inventory.hpp"
#include "planner/situation/placement.hpp"
#include "protocols/choreography/choreography.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace parcae {

/// The version at which the layers of a generation in progress will be when it stops. Stands for "whatever it is".
inline version running_version(generation g) {
  return {UINT64_MAX, g};
}

/// Layers that a stage computes.
std::vector<std::uint32_t> layers_of(const placement& grid, std::uint32_t stage);

/// Of how many steps a rank of the generation that it aborted can tell what came of them.
std::uint64_t steps_told_by(const aborted& x);

/// When ranks of a generation could begin to compute, by their own word: a manager beside busy ranks hears it late.
struct rank_starts {
  using time_point = std::chrono::steady_clock::time_point;

  std::optional<time_point> last; ///< of those who have begun
  double early_ms = 0;            ///< the longest that one of them waited for state

  /// ACTIVE is heard `now`, so the rank began before: as long after its last answer as it says, which was heard later.
  void begins(const active& x, std::optional<time_point> answered_at, time_point now);
};

/// The generation that trains, or the one that is being ended.
struct trained_generation {
  generation g;
  placement grid;
  std::uint64_t base = 0;
  std::chrono::steady_clock::time_point begun_at; ///< told to begin
  std::map<slot_id, std::uint32_t> rank_of;
  std::set<slot_id> stopped_ranks;
  version stopped_at;
  std::map<std::uint32_t, aborted> aborted_ranks;
  bool committed = false;                  ///< its first step
  bool released = false;                   ///< RELEASE was sent for that
  std::uint64_t moved_bytes = 0;           ///< most that its ranks may have to wait for before their first commit
  std::uint64_t skipped = 0;               ///< steps that changed nothing, as far as was told
  std::set<std::uint32_t> answered_stages; ///< of which a rank has answered the ABORT or DECIDE in progress
  bool keepers_asked = false;              ///< what they hold, as a stage has nobody left
  std::set<slot_id> gone;                  ///< of a job that serves: ranks of pipelines that serve no more
  bool broken = false;                     ///< a rank said that communication failed, and it was not aborted for that
  rank_starts starts;

  trained_generation(generation g, placement grid, std::uint64_t base, std::chrono::steady_clock::time_point begun_at);

  std::optional<std::uint32_t> rank(const slot_id& slot) const;
  bool has(const slot_id& slot) const { return rank_of.contains(slot); }
  /// It sends shards, has no place, and is needed until the first commit.
  bool is_source(const slot_id& slot) const;
  std::set<slot_id> sources() const;                              ///< those
  std::set<slot_id> ranks_of_pipeline(const slot_id& slot) const; ///< that of this rank
  bool all_stopped() const { return stopped_ranks.size() == rank_of.size(); }
  std::set<slot_id> ranks() const;
  std::vector<std::uint32_t> layers_of(const slot_id& slot) const; ///< none if it has no place
  std::vector<rank_report> said() const;                           ///< by those who answered ABORT

  /// What RELEASE of it leaves a slot of what it held.
  inventory left_by_release(const slot_id& slot, inventory held) const;

  /// This slot's stage has answered.
  void note_answer(const slot_id& slot);

  /// Whether of some stage nobody has answered, and one of these will: without it steps would be given up, and within
  /// a layer, or the optimizer, nobody hears.
  bool only_holder_among(const std::set<slot_id>& awaited) const;

  /// Somebody who has answered the ABORT never had the gradients of the first step: so nobody has committed it.
  bool stands_at_base() const;

  /// Whether of some stage nobody who has answered the ABORT holds all layers: the keepers decide.
  bool lacks_stage() const;
};

/// A generation that was planned and has not been activated.
struct planned_generation {
  prepare what;
  std::uint64_t checksum = 0; ///< of it
  change_plan plan;
  /// What layers that go ahead take, while the generation before trains; none: they do not.
  std::optional<double> feed_ms{};
  bool good = true;  ///< false: a participant was lost after STOP was sent
  bool warm = false; ///< WARM was sent

  std::set<slot_id> participants() const;
  std::set<slot_id> destinations() const; ///< of its moves
  bool has(const slot_id& slot) const;
  std::optional<std::uint32_t> rank(const slot_id& slot) const;
};

/// Of a generation that was given up: layers that went ahead to it, for if the one before it is over, too.
struct kept_ahead {
  generation of;
  std::set<slot_id> by;
};

struct generations {
  /// A number is used once, whatever becomes of the manager: some are put into the journal at a time.
  static constexpr std::uint64_t reserved_at_once = 100;

  generation newest;   ///< highest number given
  generation reserved; ///< highest number that may be given before the journal has another
  std::optional<trained_generation> current;
  std::optional<planned_generation> next;
  std::optional<kept_ahead> ahead;
  std::optional<placement> last_grid; ///< of the last generation that was activated
  generation last;                    ///< that generation
  commit_result ended_by;             ///< how that ended, for DECIDE; without a step: nothing is to be applied
  bool on_grid = false;               ///< its slots, or some of them, are still needed: for status
  version base;                       ///< at which `next` begins; running_version while `current` trains
  /// Steps after which `current` ended before the job's, because validation did not get better.
  std::optional<std::uint64_t> early_end;

  bool is_current(generation g) const { return current && current->g == g; }
  bool is_next(generation g) const { return next && next->what.next == g; }
  bool has_place(const slot_id& slot) const { return current && current->has(slot); }
  bool sends(const slot_id& slot) const { return current && current->is_source(slot); }
  bool takes_part(const slot_id& slot) const { return next && next->has(slot); }
};

} // namespace parcae
