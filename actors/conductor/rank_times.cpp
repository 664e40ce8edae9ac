#include "actors/conductor/rank_times.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace parcae {

void rank_times::hear(time_point now, std::uint32_t rank, const step_parts& x) {
  const bool is_time = std::ranges::all_of(members_of_step_parts, [&](auto member) { return x.*member >= 0; });
  if (!is_time || !std::isfinite(total_ms(x)) || total_ms(x) == 0)
    return;
  const auto [known, is_first] = of_.try_emplace(rank, mean{now, x});
  if (is_first)
    return;
  auto& [at, parts] = known->second;
  const std::chrono::duration<double> since = now - at;
  const auto weight = 1 - std::exp(-std::max(0.0, since.count()) / window.count());
  for (const auto member : members_of_step_parts)
    parts.*member += weight * (x.*member - parts.*member);
  at = now;
}

std::map<std::uint32_t, step_parts> rank_times::means() const {
  std::map<std::uint32_t, step_parts> result;
  for (const auto& [rank, x] : of_)
    result.emplace(rank, x.parts);
  return result;
}

} // namespace parcae
