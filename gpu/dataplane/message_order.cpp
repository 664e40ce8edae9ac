#include "gpu/dataplane/message_order.hpp"

#include "gpu/dataplane/operation.hpp"

#include <algorithm>

namespace parcae {

namespace {

/// Of a group, each way: more are a later one, so that others get their turn.
constexpr std::size_t max_grouped = 32;

/// No clock comes so far.
constexpr auto latest = std::uint64_t{1} << 62;

/// Of a participant that says what it has posted, at once: a step posts far less.
constexpr std::size_t max_posted = std::size_t{1} << 20;

std::string difference(bool sends, const std::string& mine, const std::string& theirs) {
  return sends ? "sent " + mine + ", but it expects " + theirs : "expected " + mine + ", came " + theirs;
}

} // namespace

message_order::posted message_order::post(std::uint32_t peer, bool sends, const tag& what, std::uint64_t length) {
  auto& with = pairs_[peer];
  const auto number = posted_++;
  if (with.lost)
    return {number, {}};
  (sends ? with.sends : with.receives).push_back({number, what, length});
  if (self_ < peer)
    return {number, propose(peer)};
  letters_.push_back(
      {peer, {.what = sends ? order_note::kind::send : order_note::kind::receive, .message = what, .length = length}});
  return {number, {}};
}

std::string message_order::hear(std::uint32_t peer, const order_note& x) {
  auto& with = pairs_[peer];
  if (with.lost)
    return {};
  const bool leads = self_ < peer;
  std::string problem = "a note that nobody sends";
  switch (x.what) {
  case order_note::kind::send:
  case order_note::kind::receive: {
    auto& posted = x.what == order_note::kind::send ? with.their_sends : with.their_receives;
    if (!leads || posted.size() >= max_posted)
      break;
    posted.push_back({0, x.message, x.length});
    problem = propose(peer);
    break;
  }
  case order_note::kind::proposal:
    if (!leads)
      problem = hear_proposal(peer, x);
    break;
  case order_note::kind::settled: {
    if (!leads || !with.open || x.time <= with.open->time || x.time > latest)
      break;
    const auto open = *std::exchange(with.open, std::nullopt);
    proposed_.erase(place_of(open.time, peer));
    clock_ = std::max(clock_, x.time);
    settle(peer, x.time, open.sends, open.receives);
    problem = propose(peer);
    break;
  }
  case order_note::kind::differs:
    if (!leads)
      problem = hear_difference(peer, x);
    break;
  case order_note::kind::complete: // counted where the groups are given away
    return {};
  }
  if (!problem.empty())
    lose(peer);
  return problem;
}

/// As much as both ends have posted, if no other proposal is open.
std::string message_order::propose(std::uint32_t peer) {
  auto& with = pairs_[peer];
  if (with.open)
    return {};
  std::size_t count[2] = {};
  for (const bool sends : {true, false}) {
    const auto& mine = sends ? with.sends : with.receives;
    const auto& theirs = sends ? with.their_receives : with.their_sends;
    auto& n = count[sends];
    for (; n < std::min({mine.size(), theirs.size(), max_grouped}); ++n)
      if (mine[n].what != theirs[n].what || mine[n].length != theirs[n].length) {
        if (n == 0)
          return differ(peer, sends);
        break; // said once those before are settled
      }
  }
  const auto sends = static_cast<std::uint32_t>(count[true]), receives = static_cast<std::uint32_t>(count[false]);
  if (sends + receives == 0)
    return {};
  with.open = {++clock_, sends, receives};
  with.their_receives.erase(with.their_receives.begin(), with.their_receives.begin() + sends);
  with.their_sends.erase(with.their_sends.begin(), with.their_sends.begin() + receives);
  proposed_.insert(place_of(clock_, peer));
  letters_.push_back(
      {peer, {.what = order_note::kind::proposal, .time = clock_, .outgoing = sends, .incoming = receives}});
  return {};
}

std::string message_order::differ(std::uint32_t peer, bool sends) {
  auto& with = pairs_[peer];
  const auto &mine = sends ? with.sends.front() : with.receives.front(),
             &theirs = sends ? with.their_receives.front() : with.their_sends.front();
  letters_.push_back(
      {peer,
       {.what = order_note::kind::differs, .message = mine.what, .length = mine.length, .incoming = sends ? 0u : 1u}});
  auto problem = difference(sends, describe(mine.what, mine.length), describe(theirs.what, theirs.length));
  lose(peer);
  return problem;
}

/// Of what does not agree there is one at each end: theirs is a receive if it differs from the oldest send here.
std::string message_order::hear_difference(std::uint32_t peer, const order_note& x) const {
  const auto& with = pairs_[peer];
  const bool sends = x.incoming != 0;
  const auto& mine = sends ? with.sends : with.receives;
  if (mine.empty())
    return "a difference in messages that were not posted";
  return difference(sends, describe(mine.front().what, mine.front().length), describe(x.message, x.length));
}

std::string message_order::hear_proposal(std::uint32_t peer, const order_note& x) {
  const auto& with = pairs_[peer];
  if (x.time > latest || x.outgoing > with.receives.size() || x.incoming > with.sends.size() ||
      x.outgoing + x.incoming == 0)
    return "a group of messages that were not posted";
  clock_ = std::max(clock_, x.time) + 1;
  letters_.push_back({peer, {.what = order_note::kind::settled, .time = clock_}});
  settle(peer, clock_, x.incoming, x.outgoing);
  return {};
}

void message_order::settle(std::uint32_t peer, std::uint64_t time, std::uint32_t sends, std::uint32_t receives) {
  auto& with = pairs_[peer];
  group x{.peer = peer, .sends = {}, .receives = {}};
  const auto take = [](queue& from, std::uint32_t n, std::vector<std::uint64_t>& to) {
    for (; n > 0; --n) {
      to.push_back(from.front().number);
      from.pop_front();
    }
  };
  take(with.sends, sends, x.sends);
  take(with.receives, receives, x.receives);
  settled_.emplace(place_of(time, peer), std::move(x));
}

void message_order::lose(std::uint32_t peer) {
  auto& with = pairs_[peer];
  with = {};
  with.lost = true;
  const auto of_it = [&](const place& x) { return x.second == place_of(0, peer).second; };
  std::erase_if(settled_, [&](const auto& x) { return of_it(x.first); });
  std::erase_if(proposed_, of_it);
}

std::optional<message_order::group> message_order::next() {
  const auto first = settled_.begin();
  if (first == settled_.end() || (!proposed_.empty() && *proposed_.begin() < first->first))
    return std::nullopt;
  auto x = std::move(first->second);
  settled_.erase(first);
  return x;
}

/// The same at both ends.
message_order::place message_order::place_of(std::uint64_t time, std::uint32_t peer) const {
  const auto n = static_cast<std::uint32_t>(pairs_.size());
  return {time, std::min(self_, peer) * n + std::max(self_, peer)};
}

} // namespace parcae
