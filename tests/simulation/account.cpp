#include "tests/simulation/account.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace parcae::simulation {

namespace {

double ms_of(nanoseconds x) {
  return std::chrono::duration<double, std::milli>(x).count();
}

} // namespace

void trained_time::exchanged(generation by, std::uint64_t step, time_point now,
                             const std::function<bool(generation)>& is_disturbed) {
  const auto known = std::ranges::lower_bound(news_, step, {}, &new_step::number);
  if (known != news_.end() && known->by >= by) // by another rank; or this one is not up to date
    return;
  for (auto x = known; x != news_.end(); ++x) // what is void now took time
    manager_in_peace_ &= x->in_peace;
  news_.erase(known, news_.end());
  const bool before_in_peace = !news_.empty() && !is_disturbed(news_.back().by);
  news_.push_back({now, by, step, !is_disturbed(by) && manager_in_peace_, before_in_peace});
  manager_in_peace_ = true;
}

std::string trained_time::problem_with(const change_status& told, nanoseconds longest_step, nanoseconds slack) const {
  if (told.active_ms < 0 || told.stall_ms < 0)
    return {};
  const auto slack_ms = ms_of(slack);
  const auto active = static_cast<double>(told.at_us) / 1e3 + told.active_ms; // ms
  const auto at = [](const new_step& x) { return ms_of(x.at.time_since_epoch()); };
  const auto next =
      std::ranges::find_if(news_, [&](const auto& x) { return x.by.value == told.to && at(x) >= active - slack_ms; });
  if (next == news_.end() || next == news_.begin() || !next->in_peace)
    return {};
  const auto& last = *(next - 1);
  if (last.by == next->by) // it was active before that was heard
    return {};
  const auto step_ms = ms_of(longest_step);
  const auto wait_ms = std::max(0.0, told.state_wait_ms);
  const auto after = at(*next) - active;
  const auto account = [&](double seen, double known) {
    return fmt::format("generation {}: nothing new was trained for {:.0f} ms, and {:.0f} ms are told of", told.to, seen,
                       known);
  };
  if (const auto known = wait_ms + static_cast<double>(told.replayed_steps + 1) * step_ms; after > known + slack_ms)
    return account(after, known);
  if (!next->before_in_peace || told.replayed_steps > 0)
    return {};
  const auto gap = at(*next) - at(last), known = told.stall_ms + wait_ms;
  return gap > known + step_ms + slack_ms || gap < known - slack_ms ? account(gap, known) : "";
}

} // namespace parcae::simulation
