#pragma once

// A running job's record of losses in the journal: values "job/7/losses/STEP", each a block from that step on. What is
// new is added as a value of its own; once a block of storage is whole, changed, or in many pieces, it is one value, in
// the place of all its pieces. A block is thus written anew after 64 seconds at the soonest, not each second.

#include "actors/manager/local_messages.hpp"
#include "protocols/values/loss_record.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace parcae {

class loss_journal {
public:
  static constexpr std::size_t max_pieces = 64;  ///< of a block
  static constexpr std::size_t max_blocks = 2;   ///< whole ones at once: etcd takes no more than 1.5 MB
  static constexpr std::size_t max_values = 100; ///< at once, those that go included: etcd takes 128

  /// `known`: what it has.
  explicit loss_journal(job_id job, const journaled_losses& known = {});

  /// What is to be written so that the journal has `all`, if what was written before is there: at once, and not at all
  /// if it cannot be. It counts as written. Of much it is the first; the rest follows when this is called again.
  /// `last`: pieces are put together.
  std::vector<journal_entry> news(const loss_record& all, std::uint32_t samples, bool last = false);

  /// How often there were news.
  std::uint64_t told() const { return told_; }
  /// The first `told` of them are there.
  void written(std::uint64_t told);
  /// They could not be written, or nobody knows: all is to be written anew, and what was to go is to go again.
  void forget();

private:
  void erase(std::uint64_t piece, std::vector<journal_entry>& to);
  bool only_adds(std::uint64_t first, const loss_record& all) const;
  void write_whole(std::uint64_t first, const loss_record& all, std::uint32_t samples, std::vector<journal_entry>& to);

  job_id job_;
  loss_record written_;
  std::map<std::uint64_t, std::set<std::uint64_t>> pieces_; ///< by block: the first steps of those in the journal
  std::uint64_t told_ = 0;
  std::deque<std::pair<std::uint64_t, std::uint64_t>> erased_; ///< pieces that are to go: with which news, and which
};

/// "job/7/losses/STEP".
std::string losses_name(job_id job, std::uint64_t first);

} // namespace parcae
