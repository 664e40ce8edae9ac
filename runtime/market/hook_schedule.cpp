#include "runtime/market/hook_schedule.hpp"

#include <algorithm>

namespace parcae {

std::optional<hook_state::time_point> next_call(const hook_state& x, const hook_pace& pace) {
  if (x.wanted == 0)
    return std::nullopt;
  if (x.failures > 0) // also for what is new: a hook that fails is not called more often for it
    return x.ended + pace.pause.after(x.failures);
  return x.answered == x.wanted ? x.began + pace.again : x.ended;
}

void called(hook_state& x, std::uint64_t wanted, bool was_answered, hook_state::time_point began,
            hook_state::time_point ended) {
  x.began = began;
  x.ended = ended;
  x.failures = was_answered ? 0 : x.failures + 1;
  if (was_answered)
    x.answered = std::max(x.answered, wanted);
}

} // namespace parcae
