#include "planner/market/elastic_bound.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace parcae::market {

namespace {

struct holding_value {
  double samples = 0;
  double usd = 0;
};

// What may be chosen in a tick: holdings that are worth most at some price of a sample.
using choices = std::vector<holding_value>;

choices choices_in(const std::vector<elastic_place>& places, const elastic_job& job, std::size_t tick, double tick_s) {
  choices result{{0, 0}};
  for (const auto& x : places) {
    const double spot_usd = x.spot_usd_per_h[tick];
    const bool spot_first = spot_usd <= x.on_demand_usd_per_h;
    const auto most = std::min<std::size_t>(job.samples_per_s.size() - 1, x.spot[tick] + x.on_demand);
    for (std::size_t n = 1; n <= most; ++n) {
      const auto first = std::min<std::size_t>(n, spot_first ? x.spot[tick] : x.on_demand);
      const auto spot = static_cast<double>(spot_first ? first : n - first);
      const double usd = spot * spot_usd + (static_cast<double>(n) - spot) * x.on_demand_usd_per_h;
      result.push_back({x.speed * job.samples_per_s[n] * tick_s, usd * tick_s / 3600});
    }
  }
  return result;
}

// Ticks that are alike count together.
std::map<std::vector<std::pair<std::uint32_t, double>>, std::pair<choices, double>>
ticks_of(const std::vector<elastic_place>& places, const elastic_job& job, double tick_s) {
  std::map<std::vector<std::pair<std::uint32_t, double>>, std::pair<choices, double>> result;
  const auto ticks = static_cast<std::size_t>(std::floor(job.deadline_s / tick_s));
  for (std::size_t t = 0; t < ticks; ++t) {
    std::vector<std::pair<std::uint32_t, double>> key;
    for (const auto& x : places)
      key.emplace_back(x.spot[t], x.spot_usd_per_h[t]);
    auto& [all, times] = result[key];
    if (all.empty())
      all = choices_in(places, job, t, tick_s);
    times += 1;
  }
  return result;
}

} // namespace

// By its dual: for each price of a sample every tick takes what is worth most; the greatest of these values is the
// bound, and at it as many samples are done as are asked for.
std::optional<elastic_bound> bound_of(const std::vector<elastic_place>& places, const elastic_job& job, double tick_s) {
  const auto ticks = ticks_of(places, job, tick_s);
  const auto at = [&](double price) { // samples done, and the dual's value
    holding_value sum;
    double worth = price * job.samples;
    for (const auto& [key, x] : ticks) {
      holding_value best;
      double most = 0;
      for (const auto& y : x.first)
        if (const double value = price * y.samples - y.usd;
            value > most || (value == most && y.samples > best.samples)) {
          most = value;
          best = y;
        }
      sum.samples += x.second * best.samples;
      worth -= x.second * most;
    }
    return std::pair(sum.samples, worth);
  };
  double high = 1e-12;
  for (; at(high).first < job.samples; high *= 2)
    if (high > 1e12)
      return {};
  double low = high / 2;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (at(middle).first < job.samples ? low : high) = middle;
  }
  return elastic_bound{at(high).second, high};
}

} // namespace parcae::market
