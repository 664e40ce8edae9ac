#include "planner/market/outlook.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <utility>

namespace parcae::market {

namespace {

struct course {
  double usd = 0, seconds = 0;
};

// Worth most at that price; the present one, unless another is worth more by `gain` of what it trains.
interval_choice best_of(const std::vector<interval_choice>& choices, double usd_per_sample,
                        const std::optional<interval_choice>& present, double gain) {
  interval_choice best;
  for (const auto& x : choices)
    if (usd_per_sample * (x.samples - best.samples) >= x.usd - best.usd)
      best = x;
  if (present && usd_per_sample * (best.samples - (1 + gain) * present->samples) <= best.usd - present->usd)
    return *present;
  return best;
}

std::size_t next_of(std::span<const double> row, double chance) {
  std::size_t next = 0;
  while (next + 1 < row.size() && (chance -= row[next]) > 0)
    ++next;
  return next;
}

course course_of(const outlook_setting& x, std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform;
  const auto states = x.choices.size();
  const auto chances = x.chances(random);
  course result;
  double left = x.samples;
  auto state = x.state;
  const double speed = std::uniform_real_distribution<double>(x.least_speed, x.most_speed)(random);
  std::optional<interval_choice> present;
  for (std::size_t i = 0; i < x.intervals; ++i) {
    auto held = best_of(x.choices[state], x.usd_per_sample(i, state, left), present, x.gain);
    present = held;
    held.samples *= speed;
    if (held.samples >= left) {
      const double part = held.samples > 0 ? left / held.samples : 0;
      return {result.usd + part * held.usd, result.seconds + part * x.interval_s};
    }
    left -= held.samples;
    result.usd += held.usd;
    result.seconds += x.interval_s;
    const auto before =
        std::exchange(state, next_of(std::span(chances).subspan(state * states, states), uniform(random)));
    if (state != before)
      present.reset();
  }
  result.seconds += x.kept_s * uniform(random);
  const double part = x.behind.samples > 0 ? left / x.behind.samples : std::numeric_limits<double>::infinity();
  return {result.usd + (x.behind.samples > 0 ? part * x.behind.usd : 0), result.seconds + part * x.interval_s};
}

double quantile(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(std::lround(share * static_cast<double>(sorted.size() - 1)))];
}

spread spread_of_all(std::vector<double> all) {
  std::ranges::sort(all);
  return {quantile(all, 0.1), quantile(all, 0.5), quantile(all, 0.9)};
}

} // namespace

outlook outlook_of(const outlook_setting& x, std::size_t courses) {
  std::mt19937_64 random(1);
  std::vector<double> usd, seconds;
  double sum = 0, done = 0;
  for (std::size_t i = 0; i < courses; ++i) {
    const auto one = course_of(x, random);
    usd.push_back(one.usd);
    seconds.push_back(one.seconds);
    if (std::isfinite(one.seconds)) {
      sum += one.seconds;
      done += 1;
    }
  }
  outlook result;
  result.finish_s = done > 0 ? sum / done : std::numeric_limits<double>::infinity();
  result.usd_spread = spread_of_all(std::move(usd));
  result.finish_s_spread = spread_of_all(std::move(seconds));
  return result;
}

} // namespace parcae::market
