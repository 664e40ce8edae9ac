#pragma once

// In which order a participant gives its messages to NCCL, where an operation waits in its stream for its other end: if
// two participants gave theirs in different orders, or three in a circle, none would end.

#include "gpu/dataplane/frames.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

/// Messages are posted in any order. What both ends of a pair have posted becomes a group of that pair, and all groups
/// of all pairs have one order, on which two participants agree with three notes and nobody else: Skeen's total order
/// (Birman and Joseph, Reliable Communication in the Presence of Failures, 1987) for two receivers. The smaller number
/// of a pair hears what the other posts, compares it with its own, and proposes a group with the time of its logical
/// clock; the other's clock, set past that, says the group's time. A participant takes groups by their times, but none
/// while one that it has proposed could yet be before it. A message becomes part of a group only when both ends have
/// posted it, so no group waits for what is posted after it.
///
/// Pure; not for several threads at once.
class message_order {
public:
  message_order(std::uint32_t self, std::uint32_t size) : self_(self), pairs_(size) {}

  /// Messages of a pair that are given together: by number, in the order in which they were posted.
  struct group {
    std::uint32_t peer = 0;
    std::vector<std::uint64_t> sends, receives;
  };

  struct letter {
    std::uint32_t to = 0;
    order_note what;
  };

  struct posted {
    std::uint64_t number;
    std::string problem; ///< as of hear()
  };

  /// A message is posted. Returns its number, counted from 0 over all.
  posted post(std::uint32_t peer, bool sends, const tag& what, std::uint64_t length);

  /// A note came. Returns what is wrong with it, or with what both ends have posted; empty: nothing. After something
  /// was, the pair has no further group.
  std::string hear(std::uint32_t peer, const order_note& x);

  /// No note comes from this participant any more. Its groups that were not taken are none.
  void lose(std::uint32_t peer);

  /// What is to be sent, in order.
  std::vector<letter> take_letters() { return std::exchange(letters_, {}); }

  /// The next group, once it is certain.
  std::optional<group> next();

private:
  struct message {
    std::uint64_t number; ///< here; of the other end's: none
    tag what;
    std::uint64_t length;
  };
  using queue = std::deque<message>; ///< in no group yet, oldest first

  struct proposed {
    std::uint64_t time;
    std::uint32_t sends, receives;
  };

  struct pair {
    queue sends, receives;             ///< of this participant
    queue their_sends, their_receives; ///< the smaller number's only
    std::optional<proposed> open;      ///< the smaller number's only: not settled yet
    bool lost = false;
  };

  /// Of a group or a proposal: unique, for times are of pairs.
  using place = std::pair<std::uint64_t, std::uint32_t>;
  place place_of(std::uint64_t time, std::uint32_t peer) const;

  std::string propose(std::uint32_t peer);
  std::string differ(std::uint32_t peer, bool sends);
  std::string hear_difference(std::uint32_t peer, const order_note& x) const;
  std::string hear_proposal(std::uint32_t peer, const order_note& x);
  void settle(std::uint32_t peer, std::uint64_t time, std::uint32_t sends, std::uint32_t receives);

  const std::uint32_t self_;
  std::vector<pair> pairs_; ///< by participant
  std::uint64_t clock_ = 0;
  std::uint64_t posted_ = 0;
  std::map<place, group> settled_;
  std::set<place> proposed_;
  std::vector<letter> letters_;
};

} // namespace parcae
