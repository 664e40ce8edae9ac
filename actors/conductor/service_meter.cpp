#include "actors/conductor/service_meter.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace parcae {

namespace {

constexpr std::uint32_t most_rows = 1'024; // of a pass
constexpr double most_ms = 600'000;        // that it takes
constexpr double most_per_s = 1e6;
constexpr std::uint32_t longest = 1u << 24; // request, positions

bool makes_sense(const sized_passes& x) {
  return x.size > 0 && x.size <= most_rows && x.passes > 0 && x.ms > 0 && x.ms <= most_ms; // not of NaN
}

bool makes_sense(const answered_request& x) {
  return x.prompt > 0 && x.tokens > 0 && x.prompt <= longest && x.tokens <= longest;
}

} // namespace

void service_meter::learn(std::uint32_t first, std::uint32_t last, const std::vector<sized_passes>& all) {
  auto& known = known_.passes;
  for (std::size_t i = 0; i < std::min(all.size(), most_pass_sizes); ++i) {
    const auto& x = all[i];
    if (!makes_sense(x))
      continue;
    auto found = std::ranges::find_if(
        known, [&](const auto& y) { return y.first_layer == first && y.last_layer == last && y.taken.size == x.size; });
    if (found == known.end()) {
      if (known.size() == most)
        known.erase(known.begin());
      found = known.insert(known.end(), {first, last, {x.size, 0, 0}});
    }
    auto& to = found->taken;
    const auto passes = std::min(x.passes, most_passes);
    to.passes = std::min(to.passes, most_passes) + passes;
    to.ms += (x.ms - to.ms) * static_cast<double>(passes) / static_cast<double>(to.passes);
  }
}

void service_meter::learn(const routed& x) {
  std::vector<answered_request> answered;
  for (std::size_t i = 0; i < std::min(x.answered.size(), most_answered_told); ++i)
    if (makes_sense(x.answered[i]))
      answered.push_back(x.answered[i]);
  if (answered.empty())
    return;
  known_.answered = std::move(answered);
  const auto per_s = x.requests.arrivals_per_s;
  known_.arrivals_per_s = per_s > 0 ? std::min(per_s, most_per_s) : 0;
}

double service_meter::row_ms(const placement& grid) const {
  double slowest = 0;
  for (std::uint32_t s = 0; s < grid.depth; ++s) {
    auto least = std::numeric_limits<double>::infinity();
    for (const auto& x : known_.passes)
      if (x.first_layer == grid.first_layer[s] && x.last_layer == grid.first_layer[s + 1])
        least = std::min(least, x.taken.ms / x.taken.size);
    if (!std::isfinite(least))
      return 0;
    slowest = std::max(slowest, least);
  }
  return slowest;
}

} // namespace parcae
