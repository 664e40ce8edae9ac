#include "runtime/simulate/market_input.hpp"

#include "planner/market/elastic_figures.hpp"
#include "planner/market/market_data.hpp"
#include "runtime/simulate/trace_input.hpp"

#include <algorithm>
#include <filesystem>

namespace parcae {

namespace {

// A file by zone, or a trace of one place, generated ones too.
std::vector<std::uint32_t> history_of(const instance_pool& pool, double tick_s) {
  if (std::filesystem::exists(pool.history)) {
    const auto by_zone = from_file(pool.history, [&](const std::string& text) {
      return market::is_counts_by_zone(text) ? market::parse_counts(text, tick_s) : std::vector<market::counts>{};
    });
    if (!by_zone.empty()) {
      const auto found = std::ranges::find(by_zone, pool.place, &market::counts::place);
      if (found == by_zone.end())
        throw std::runtime_error(pool.history + ": has no zone " + pool.place + ", the place of the pool " + pool.name);
      return found->available;
    }
  }
  return market::sampled(load_trace(pool.history).intervals, tick_s);
}

double price_of(const instance_pool& pool, const std::string& file) {
  if (!pool.usd_per_h)
    throw std::runtime_error(file + ": the pool " + pool.name +
                             " has no price; give it one, or a feed or a catalog that has");
  return *pool.usd_per_h;
}

void add_pool(market::elastic_place& place, const instance_pool& pool, const std::string& file, double tick_s,
              std::size_t assumed_ticks) {
  const double usd = price_of(pool, file);
  if (!pool.spot) {
    if (place.on_demand > 0)
      throw std::runtime_error(file + ": two pools of " + pool.kind + " are on demand in " + pool.place +
                               "; make them one");
    place.on_demand = pool.most;
    place.on_demand_usd_per_h = usd;
    return;
  }
  if (!place.spot.empty())
    throw std::runtime_error(file + ": two pools of " + pool.kind + " are spot in " + pool.place + "; make them one");
  place.spot = pool.history.empty() ? std::vector(assumed_ticks, pool.most) : history_of(pool, tick_s);
  for (auto& x : place.spot)
    x = std::min(x, pool.most);
  place.spot_usd_per_h.assign(place.spot.size(), usd);
}

std::vector<std::vector<double>> egress_of(const std::vector<market::elastic_place>& places,
                                           const market_description& market) {
  std::vector<std::vector<double>> result(places.size(), std::vector<double>(places.size(), 0));
  const auto index = [&](const std::string& name) {
    return static_cast<std::size_t>(std::ranges::find(places, name, &market::elastic_place::name) - places.begin());
  };
  for (const auto& x : market.paths)
    if (const auto from = index(x.from), to = index(x.to); from < places.size() && to < places.size())
      result[from][to] = x.usd_per_gb;
  return result;
}

} // namespace

market::rented_market market_of(const std::string& file, const market_description& market, const std::string& kind,
                                double tick_s, std::optional<std::size_t> assumed_ticks) {
  market::rented_market result;
  result.tick_s = tick_s;
  result.fixed_usd_per_h = market.fixed_usd_per_h;
  std::size_t length = SIZE_MAX; // of the shortest history
  for (const auto& pool : market.pools) {
    if (pool.kind != kind)
      continue;
    auto place = std::ranges::find(result.places, pool.place, &market::elastic_place::name);
    if (place == result.places.end())
      place = result.places.insert(place, market::elastic_place{pool.place, {}, {}, 0, 0});
    if (pool.spot && pool.history.empty() && !assumed_ticks)
      throw std::runtime_error(file + ": the pool " + pool.name +
                               " has no history to simulate with: history = \"FILE\", lines seconds,count");
    add_pool(*place, pool, file, tick_s, assumed_ticks.value_or(0));
    if (pool.spot && !pool.history.empty())
      length = std::min(length, place->spot.size());
  }
  if (length == SIZE_MAX && !assumed_ticks)
    throw std::runtime_error(file + ": no pool of " + kind + " is spot; on demand alone needs no simulation");
  if (length == SIZE_MAX)
    length = *assumed_ticks;
  for (auto& x : result.places) { // where there is no spot pool, none is available
    x.spot.resize(length, x.spot.empty() ? 0 : x.spot.back());
    x.spot_usd_per_h.resize(length, x.spot_usd_per_h.empty() ? x.on_demand_usd_per_h : x.spot_usd_per_h.back());
  }
  result.usd_per_gb = egress_of(result.places, market);
  return result;
}

instance_figures instances_of(const std::string& file, const market_description& market, const std::string& kind) {
  instance_figures result;
  std::chrono::milliseconds start{0};
  for (const auto& x : market.pools)
    if (x.kind == kind) {
      result.slots = std::max(result.slots, x.slots);
      start = std::max(start, x.start);
    }
  for (const auto& x : market.pools)
    if (x.kind == kind && x.slots != result.slots)
      throw std::runtime_error(file + ": the pools of " + kind + " have unlike slots; a kind has the same number");
  result.start_s = seconds(start);
  return result;
}

double state_gb(const profile& workload) {
  double parameters = 0;
  for (const auto& x : workload.layers)
    parameters += x.parameters;
  return parameters * workload.state_bytes_per_parameter() / 1e9;
}

std::vector<double> rates_of(const profile& workload, std::uint32_t slots, std::size_t least) {
  std::vector<double> result;
  for (std::uint32_t n = 0; n * slots <= max_slots; ++n)
    result.push_back(workload.throughput(workload.fastest(n * slots)));
  const auto last = std::ranges::max_element(result) - result.begin();
  result.resize(std::max<std::size_t>(static_cast<std::size_t>(last), least) + 1);
  return result;
}

market::purchase_options options_of(const profile& workload, std::optional<double> link_bytes_per_ms,
                                    std::uint32_t slots, const market::rented_market& market, std::size_t most) {
  auto figures = market::figures_with_builds(workload);
  if (link_bytes_per_ms)
    figures.link_bytes_per_ms = *link_bytes_per_ms;
  figures.detect_ms = 2'000; // the limit of heartbeats
  auto result = market::elastic_figures(workload, figures, slots, static_cast<std::uint32_t>(most));
  result.move_usd = market.usd_per_gb;
  for (auto& x : result.move_usd)
    for (auto& usd : x)
      usd *= state_gb(workload);
  return result;
}

} // namespace parcae
