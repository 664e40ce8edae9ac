#pragma once

// What is on the keepers' disks: the newest complete checkpoint, the one being written, and when the next is due. Pure.

#include "actors/conductor/conducted_job.hpp"
#include "actors/conductor/job_view.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace parcae {

class checkpoint_ledger {
public:
  /// Begins with what the job was submitted with, or what the journal has. The job must outlive this.
  explicit checkpoint_ledger(const conducted_job& job);

  /// Its part of what the journal is to have.
  durable_state durable() const;

  /// Somebody wants on disk what the keepers hold, if it is newer.
  void ask(const version& held) { asked_ = has(held) ? std::nullopt : std::optional(held); }

  bool is_asked() const { return asked_.has_value(); }

  /// The command to all `keepers` to write what they hold; null if none is due (which counts if `may_be_due`) or asked
  /// for, and it is not the final version, or one is being written.
  const checkpoint* begin(time_point now, const version& held, const std::string& data_digest,
                          std::set<slot_id> keepers, bool may_be_due = true);

  /// If the one being written took too long: a keeper forgot it, as one whose executor was replaced does. Once.
  std::optional<version> give_up_late(time_point now);

  /// What a keeper says of its share of the one being written.
  struct outcome {
    bool good = false;
    std::string text; ///< what is on disk where, or the problem
  };

  /// The outcome with the last share.
  std::optional<outcome> hear(const slot_id& from, const checkpointed& x, const commit_chain& chain);
  /// This keeper's share will never be written.
  std::optional<outcome> lose(const slot_id& keeper, const commit_chain& chain);

  /// What could not be written is tried again: after going back the same steps come again.
  void forget_failure() { failed_ = 0; }
  bool has_failed(const version& x) const { return failed_ == x.steps; }

  /// Forgets the one being written, if any.
  void drop() { writing_.reset(); }
  /// Until when the one being written is waited for; none: nothing is being written.
  std::optional<time_point> limit() const;

  /// The command again, if this keeper's share is awaited; else null.
  const checkpoint* repeat(const slot_id& keeper) const;

  /// Whether this keeper's share is awaited, or will be: what was asked for comes after the one that is being written.
  bool needs(const slot_id& keeper) const;

  bool has(const version& x) const { return x <= newest_; }
  const version& newest() const { return newest_; }
  const std::string& folder() const { return folder_; } ///< of the newest

  /// For people: "; go on with …", or empty.
  std::string how_to_go_on() const;

  checkpoint_view view() const;

private:
  struct writing {
    checkpoint command;
    time_point limit;
    std::set<slot_id> awaited;
    std::set<std::uint32_t> layers; ///< on disk
    std::vector<share_place> folders;
    std::string problem;
  };

  bool is_due(time_point now, const version& held) const;

  const conducted_job& job_;
  version newest_; ///< complete one that this job wrote, or was started from
  std::string folder_;
  std::vector<share_place> folders_; ///< where each keeper put its share of it
  std::string problem_;              ///< why the last attempt to write one failed
  std::optional<writing> writing_;
  std::optional<version> asked_;      ///< that, or a newer one, is to be written
  std::uint64_t failed_ = 0;          ///< steps of the last that could not be written
  std::optional<time_point> since_;   ///< when the last was begun, else when there was first something to write
  std::deque<std::uint64_t> on_disk_; ///< steps of the complete checkpoints, ascending, as many as are kept
};

} // namespace parcae
