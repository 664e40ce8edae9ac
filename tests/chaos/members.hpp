#pragma once

// The processes that harm is done to, and what was done to each.

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

namespace parcae {

/// Something done to a process that may well cost what it holds.
struct deed {
  std::chrono::steady_clock::time_point from;
  std::chrono::steady_clock::time_point to; ///< from here on it, or the one in its place, is as good as any
  std::string what;
};

struct member {
  using time_point = std::chrono::steady_clock::time_point;

  bool keeper = false;
  std::uint32_t slots = 1;
  bool running = false;
  time_point started;
  time_point back_at;     ///< when to start it again
  std::deque<deed> deeds; ///< of all its lives

  /// What was last done to it in a span of time; empty: nothing.
  std::string done_between(time_point from, time_point to) const {
    for (auto x = deeds.rbegin(); x != deeds.rend(); ++x)
      if (x->from <= to && x->to >= from)
        return x->what;
    return {};
  }
};

using member_map = std::map<std::string, member>; ///< by name

} // namespace parcae
