#include "actors/conductor/planning_desk.hpp"

#include "protocols/base/back_off.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace parcae {

namespace {

constexpr std::size_t causes_named = 8; // of a change
constexpr std::string_view cause_separator = "; ";
constexpr std::string_view more_causes = "; and more";

} // namespace

void add_cause(std::string& to, const std::string& why) {
  if (to == why)
    return;
  std::size_t named = 0;
  for (std::size_t begin = 0; begin < to.size(); ++named) {
    const auto end = std::min(to.find(cause_separator, begin), to.size());
    if (to.compare(begin, end - begin, why) == 0)
      return;
    begin = end + cause_separator.size();
  }
  if (named < causes_named)
    to += (to.empty() ? "" : std::string(cause_separator)) + why;
  else if (!to.ends_with(more_causes))
    to += more_causes;
}

void planning_desk::soon(const std::string& why, std::optional<time_point> at) {
  auto causes = std::exchange(news_, true) ? trigger_ : std::string(); // else they were the last one's
  add_cause(causes, why);                                              // which may be trigger_
  trigger_ = std::move(causes);
  if (at)
    at_ = std::min(at_.value_or(*at), *at);
  else
    missed_ = true;
}

bool planning_desk::take_missed() {
  return std::exchange(missed_, false);
}

bool planning_desk::begin() {
  at_.reset();
  return std::exchange(news_, false);
}

planning_desk::milliseconds planning_desk::pause(milliseconds first) const {
  return back_off{first, 32 * first}.after(static_cast<unsigned>(std::max(0, restarts_ - quick_restarts)));
}

} // namespace parcae
