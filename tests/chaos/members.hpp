#pragma once

// The processes that harm is done to, and what was done to each.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace parcae {

/// Something done to a process that may well cost what it holds.
struct deed {
  std::chrono::steady_clock::time_point from;
  std::chrono::steady_clock::time_point to; ///< from here on it, or the one in its place, is as good as any
  std::string what;
};

struct member {
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr std::size_t max_deeds = 50; ///< that are remembered
  /// A process that stood still for longer may be taken for lost, and is, until it was heard again.
  static constexpr std::chrono::milliseconds deadly_freeze{1000}, until_heard{2000};
  static constexpr std::chrono::seconds longest_deed{90};

  bool keeper = false;
  std::uint32_t slots = 1;
  bool running = false;
  time_point started;
  time_point back_at;     ///< when to start it again
  std::deque<deed> deeds; ///< of all its lives

  void begin_life(time_point now) {
    running = true;
    started = now;
    for (auto& x : deeds)
      x.to = std::min(x.to, now);
  }

  void note(const deed& x) {
    deeds.push_back(x);
    if (deeds.size() > max_deeds)
      deeds.pop_front();
  }

  /// It was frozen at `from`, and goes on. What lost nothing was no deed.
  void end_freeze(time_point from, time_point now) {
    const auto is_meant = [&](const deed& x) { return x.from == from && x.what == "frozen"; };
    const auto found = std::ranges::find_if(deeds, is_meant);
    if (found == deeds.end())
      return;
    if (now - from < deadly_freeze)
      deeds.erase(found);
    else
      found->to = std::min(found->to, now + until_heard);
  }

  /// The last deed of which that holds; null: none.
  template <class Condition>
  const deed* last_deed(Condition holds) const {
    const auto x = std::find_if(deeds.rbegin(), deeds.rend(), holds);
    return x == deeds.rend() ? nullptr : &*x;
  }

  /// A deed that had its end long ago where this process lives, and has none yet; null: there is none.
  const deed* endless(time_point now) const {
    return last_deed([&](const deed& x) { return x.to == time_point::max() && now - x.from > longest_deed; });
  }

  /// What was last done to it in a span of time; empty: nothing.
  std::string done_between(time_point from, time_point to) const {
    const auto* found = last_deed([&](const deed& x) { return x.from <= to && x.to >= from; });
    return found ? found->what : std::string();
  }
};

using member_map = std::map<std::string, member>; ///< by name

/// By name; a third of the workers have two slots.
inline member_map members_of(int workers, std::uint32_t max_slots) {
  member_map result;
  for (int i = 0; i < workers; ++i)
    result["node-w" + std::to_string(i)].slots = i % 3 == 2 ? max_slots : 1;
  for (int i = 0; i < 2; ++i)
    result["node-k" + std::to_string(i)].keeper = true;
  return result;
}

inline std::vector<std::string> names_of(const member_map& all) {
  std::vector<std::string> result;
  for (const auto& [name, x] : all)
    result.push_back(name);
  return result;
}

} // namespace parcae
