#include "planner/market/market_data.hpp"

#include "planner/cost/profile.hpp"
#include "planner/market/table.hpp"

#include <algorithm>
#include <cmath>

namespace parcae::market {

namespace {

constexpr std::uint64_t max_ticks = 2'000'000;
constexpr std::size_t max_zones = 10; // of max_ticks each
constexpr std::uint32_t max_count = 1'000'000;

// Lines are few, ticks many: what a file may ask for in memory.
class tick_limit {
public:
  void take(const table::row& row, std::uint64_t ticks) {
    if (ticks > left_)
      row.fail("makes more than " + std::to_string(max_zones * max_ticks) + " ticks of all zones together");
    left_ -= ticks;
  }

private:
  std::uint64_t left_ = max_zones * max_ticks;
};

} // namespace

std::map<unsigned, std::vector<offers>> parse_windows(std::string_view text, double on_demand_usd_per_h) {
  enum : std::size_t { window, zone, tick, available, price };
  const table all(text, {"window", "zone", "tick", "available", "spot_usd_per_h"});
  std::map<unsigned, std::vector<offers>> result;
  tick_limit limit;
  bool is_open = false;
  for (const auto& row : all.rows()) {
    auto& places = result[static_cast<unsigned>(row.whole(window, 1000))];
    const bool is_new = places.empty() || places.back().place != row.text(zone);
    if (is_new && is_open)
      row.fail("begins a zone, but the one before has no end: a row without availability");
    if (is_new)
      places.push_back({row.text(zone), {}, {}, on_demand_usd_per_h});
    auto& x = places.back();
    const auto at = row.whole(tick, max_ticks);
    if (is_new ? at != 0 : at <= x.available.size() - 1 || !is_open)
      row.fail("a zone must begin at tick 0, and each row be later than the one before");
    if (!is_new) { // what the row before says holds until here
      const auto value = x.available.back();
      const auto usd = x.spot_usd_per_h.back();
      limit.take(row, at - x.available.size());
      x.available.resize(at, value);
      x.spot_usd_per_h.resize(at, usd);
    }
    is_open = !row.is_empty(available);
    if (!is_open)
      continue;
    x.available.push_back(row.whole(available, 1) != 0);
    x.spot_usd_per_h.push_back(row.number(price, 0, max_usd_per_h));
  }
  if (is_open)
    throw parse_error("the last zone has no end: a row without availability");
  return result;
}

bool is_counts_by_zone(std::string_view text) {
  return table::header(text) == std::vector<std::string>{"seconds", "zone", "count"};
}

std::vector<counts> parse_counts(std::string_view text, double tick_s) {
  enum : std::size_t { seconds, zone, count };
  const table all(text, {"seconds", "zone", "count"});
  struct state {
    std::optional<std::uint32_t> now;
    double since_s = -1;
  };
  std::vector<counts> result;
  std::vector<state> states;
  tick_limit limit;
  for (const auto& row : all.rows()) {
    const auto found = std::ranges::find(result, row.text(zone), &counts::place);
    const auto i = static_cast<std::size_t>(found - result.begin());
    if (found == result.end()) {
      result.push_back({row.text(zone), {}});
      states.emplace_back();
    }
    const double at = row.number(seconds, 0, static_cast<double>(max_ticks) * tick_s);
    if (at <= states[i].since_s)
      row.fail("must be later than the zone's row before");
    if (states[i].now) {
      const auto until = static_cast<std::size_t>(std::ceil(at / tick_s));
      limit.take(row, until - result[i].available.size());
      result[i].available.resize(until, *states[i].now);
    }
    states[i].since_s = at;
    states[i].now.reset();
    if (!row.is_empty(count))
      states[i].now = static_cast<std::uint32_t>(row.whole(count, max_count));
  }
  return result;
}

std::vector<std::uint32_t> sampled(const fleet_history& trace, double tick_s) {
  std::vector<std::uint32_t> result;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    // Of several rows within a tick the last one at its beginning counts.
    const double until = i + 1 < trace.size() ? trace[i + 1].seconds : trace[i].seconds + 1;
    if (const double ticks = std::ceil((until - trace.front().seconds) / tick_s); ticks <= max_ticks)
      result.resize(static_cast<std::size_t>(ticks), trace[i].available);
  }
  return result;
}

gang_market from_tick(const gang_market& x, std::size_t first) {
  auto result = x;
  for (auto& place : result.places) {
    const auto skipped = static_cast<std::ptrdiff_t>(std::min(first, place.available.size()));
    place.available.erase(place.available.begin(), place.available.begin() + skipped);
    place.spot_usd_per_h.erase(place.spot_usd_per_h.begin(), place.spot_usd_per_h.begin() + skipped);
  }
  return result;
}

std::string problem_of(const gang_market& market, const gang_job& job) {
  if (market.places.empty())
    return "there is no place";
  if (!(market.tick_s > 0) || !(job.work_s > 0) || !(job.deadline_s > 0) || job.start_s < 0)
    return "work, deadline and ticks must be above 0";
  const auto ticks = std::ceil(job.deadline_s / market.tick_s);
  const double starts = std::ceil(job.start_s / market.tick_s) + 1;
  if (ticks * (1 + std::ceil(job.work_s / market.tick_s)) * static_cast<double>(1 + 3 * market.places.size()) * starts >
      3e8)
    return "so many ticks, in so many places, are too many for the optimum; take longer ticks";
  for (const auto& x : market.places)
    if (x.available.size() != x.spot_usd_per_h.size() || static_cast<double>(x.available.size()) < ticks)
      return x.place + " has a history of " + std::to_string(x.available.size()) + " ticks, fewer than the " +
             std::to_string(static_cast<std::uint64_t>(ticks)) + " until the deadline";
  const double needed_s = std::ceil((job.work_s + job.start_s) / market.tick_s) * market.tick_s;
  if (needed_s > std::floor(job.deadline_s / market.tick_s) * market.tick_s)
    return "not even on demand is in time: work and one start take longer than the deadline allows";
  return {};
}

std::vector<catalog_entry> parse_catalog(std::string_view text) {
  enum : std::size_t { kind, price, spot, region, zone };
  const auto there = table::header(text);
  const bool has_zones = std::ranges::find(there, "AvailabilityZone") != there.end();
  const table all(text, {"InstanceType", "Price", "SpotPrice", "Region", has_zones ? "AvailabilityZone" : "Region"});
  std::vector<catalog_entry> result;
  for (const auto& row : all.rows()) {
    const auto usd = [&](std::size_t column) -> std::optional<double> {
      if (row.is_empty(column)) // not sold so
        return {};
      return row.number(column, 0, max_usd_per_h);
    };
    if (row.is_empty(kind)) // a TPU, which has no machine of its own
      continue;
    const auto& place = row.text(zone).empty() ? row.text(region) : row.text(zone);
    result.push_back({row.text(kind), row.text(region), place, usd(price), usd(spot)});
  }
  return result;
}

std::optional<double> price_in(const std::vector<catalog_entry>& catalog, const std::string& kind,
                               const std::string& place, bool spot) {
  std::optional<double> result;
  for (const auto& x : catalog)
    if (x.kind == kind && (x.place == place || x.region == place || x.region == region_of(place))) {
      // Of the region's other zones only what costs the same in all of them: on demand.
      if (spot && x.place != place && x.region != place)
        continue;
      const auto usd = spot ? x.spot_usd_per_h : x.on_demand_usd_per_h;
      if (usd && *usd > 0 && (!result || *usd < *result))
        result = usd;
    }
  return result;
}

} // namespace parcae::market
