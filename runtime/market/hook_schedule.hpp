#pragma once

// When a hook is called. Pure: no thread, no clock.
//
// given                                          | the next call
// nothing was ever wanted                        | none
// what is wanted was not said yet                | at once, behind a failure after the back-off
// it was said, and answered                      | `again` after that call began
// it was said, and the call failed               | after the back-off: 5 s, doubled up to 5 min

#include "protocols/base/back_off.hpp"

#include <chrono>
#include <cstdint>
#include <optional>

namespace parcae {

struct hook_pace {
  std::chrono::milliseconds call{60'000}; ///< that one may take
  back_off<std::chrono::milliseconds> pause{std::chrono::milliseconds(5'000), std::chrono::milliseconds(300'000)};
  std::chrono::milliseconds again{600'000}; ///< from one call to the next, if nothing changes
};

struct hook_state {
  using time_point = std::chrono::steady_clock::time_point;

  std::uint64_t wanted = 0;   ///< how often something was wanted
  std::uint64_t answered = 0; ///< which of these was said and answered last
  unsigned failures = 0;      ///< in a row
  time_point began{};         ///< the last call
  time_point ended{};
};

/// Nothing: none, until something is wanted.
std::optional<hook_state::time_point> next_call(const hook_state& x, const hook_pace& pace);

/// A call is over, in which `wanted` was said.
void called(hook_state& x, std::uint64_t wanted, bool was_answered, hook_state::time_point began,
            hook_state::time_point ended);

} // namespace parcae
