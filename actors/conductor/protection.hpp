#pragma once

// What the keepers hold of a job, as far as it can be true and counts. Pure.

#include "actors/conductor/job_view.hpp"
#include "actors/conductor/roster.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace parcae {

class protection {
public:
  /// What the keepers of the roster hold has changed, or the steps done. True if another version is protected now: what
  /// keepers said of the last one no longer counts.
  bool update(roster& all, const commit_chain& chain, std::uint32_t layers, std::uint64_t steps_done,
              std::uint64_t keeper_every);

  const version& newest() const { return view_.protected_version; }
  bool is_current() const { return view_.protected_now; }

  /// Newest that the keepers were told to be complete: they dropped what is older.
  const version& confirmed() const { return confirmed_; }
  /// After going back: what was confirmed before may be void.
  void forget_confirmed() { confirmed_ = newest(); }

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

  const protection_view& view() const { return view_; }

private:
  protection_view view_;
  version confirmed_;
  version saving_;
  bool digests_asked_ = false;
  std::optional<time_point> doubtful_;
  bool doubt_told_ = false;
};

/// For status.
keeper_record keeper_record_of(const slot_id& where, const inventory& held);

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
