#pragma once

// What the keepers hold of a job, as far as it can be true and counts. Pure.

#include "actors/conductor/conducted_job.hpp"
#include "actors/conductor/job_view.hpp"
#include "actors/conductor/roster.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

class protection {
public:
  /// The job must outlive this.
  explicit protection(const conducted_job& job) : job_(job), key_(key_of(job.secret, "snapshots", {job.id.value})) {}

  /// Of the passes with which workers may send snapshots.
  const secret_key& key() const { return key_; }

  /// Chooses which layers each keeper that snapshots go to is to hold: with the newest version held where it is, and
  /// not only on machines of `grid` (null: there is none) that compute them. True if that has changed.
  bool assign(const roster& all, const placement* grid);
  const std::vector<keeper_share>& shares() const { return shares_; }

  /// What the keepers of the roster hold has changed, or the shares, or the steps done. True if another version is
  /// newest or safe now; what keepers said of the one that was newest no longer counts.
  bool update(roster& all, const commit_chain& chain, std::uint64_t steps_done);

  /// Newest that is complete.
  const version& newest() const { return view_.protected_version; }
  bool is_current() const { return view_.protected_now; }

  /// Newest of which each layer is held by as many keepers as are to hold it: what is older is not needed, whichever
  /// of them is lost. (0, 0) if there is none, as when a keeper has gone or come, and nothing came to it yet.
  const version& safe() const { return safe_; }
  /// There was one that is current: the next will come.
  bool had_copies() const { return is_recent(last_safe_); }

  /// Newest that was ever complete.
  const version& reached() const { return reached_; }
  /// The job did: what was reached before may be void.
  void go_back() { reached_ = last_safe_ = newest(); }

  /// What brings the copies that the newest version lacks to keepers that are to hold them, and who is to send it. The
  /// same layers elsewhere will do until the next snapshot.
  std::vector<std::pair<slot_id, replicate>> missing(const roster& all) const;

  /// The version that keepers are being sent by those under notice.
  const version& saving() const { return saving_; }
  void save(const version& x) { saving_ = x; }

  /// Digests of the final version are to be asked for. False: they are already.
  bool ask_digests() { return !std::exchange(digests_asked_, true); }
  void forget_digests() { digests_asked_ = false; }
  bool digests_asked() const { return digests_asked_; }

  /// Takes what the keeper told into what it holds, but for versions of more than `most` steps: a forged one would end
  /// the job, or void the true ones.
  void believe(slot_state& keeper, std::uint64_t most, time_point now);

  /// Since when a keeper has told of more than can be true; asked, it is forgotten.
  std::optional<time_point> take_doubt() { return std::exchange(doubtful_, std::nullopt); }
  bool is_doubtful() const { return doubtful_.has_value(); }
  void keep_doubt(time_point since) { doubtful_ = since; }
  /// To people. False: they were told.
  bool tell_doubt() { return !std::exchange(doubt_told_, true); }

  protection_view view(const roster& all) const;

private:
  /// It is no further behind than the newest is that can be expected.
  bool is_recent(const version& x) const { return x.steps > 0 && x.steps + max_behind() > steps_done_; }
  std::uint64_t max_behind() const;
  /// Why not all that are to hold this hold it.
  std::string problem_of(const version& x, const roster& all) const;
  /// Layers that workers of its machine compute.
  std::set<std::uint32_t> computed_beside(const slot_state& keeper) const;
  /// Layers of this version that no keeper holds on another machine than those that compute them.
  std::set<std::uint32_t> held_with_ranks(const version& x, const roster& all) const;

  const conducted_job& job_;
  const secret_key key_;
  std::vector<keeper_share> shares_;
  std::uint32_t fewest_ = 0;                                ///< keepers to which a layer goes
  std::map<std::string, std::set<std::uint32_t>> computed_; ///< layers, by machine, when shares were given
  protection_view view_;
  version safe_;
  version last_safe_; ///< newest that ever was
  /// Steps by which the newest came late, or from the one before to it. A larger figure before is forgotten by halves:
  /// a version that was asked for says little of the next. At first nobody knows.
  std::uint64_t came_late_ = 250;
  version reached_;
  version saving_;
  std::uint64_t steps_done_ = 0;
  bool digests_asked_ = false;
  std::optional<time_point> doubtful_;
  bool doubt_told_ = false;
};

/// Digests of the final version by layer, of all keepers.
std::map<std::uint32_t, std::string> digests_of(const roster& all);

/// What is known of the keepers' reading of a checkpoint.
struct checkpoint_reading {
  std::set<slot_id> readers;       ///< have to answer yet, or to be asked
  std::vector<std::uint32_t> lost; ///< layers that nobody holds at its version
  std::string problems;            ///< of those who answered
  bool damaged = false;
  bool passing = false; ///< somebody could not reach the place, and is to be asked again
  bool asked = false;   ///< there is a keeper to ask
};

checkpoint_reading reading_of(const roster& all, const version& at, std::uint32_t layers);

} // namespace parcae
