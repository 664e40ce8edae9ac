#include "planner/market/market_runs.hpp"

#include "planner/market/elastic_world.hpp"
#include "planner/market/gang_policies.hpp"
#include "planner/market/market_data.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <stdexcept>

namespace parcae::market {

namespace {

using policy_maker = std::function<std::unique_ptr<gang_policy>(const gang_market&, const gang_job&)>;

const std::vector<std::pair<std::string, policy_maker>>& makers() {
  static const std::vector<std::pair<std::string, policy_maker>> result{
      {"budget", [](auto& market, auto& job) { return budget_gang_policy(market, job); }},
      {"optimum", [](auto& market, auto& job) { return gang_optimum(market, job); }},
      {"skynomad-oracle", [](auto&, auto&) { return skynomad_oracle(); }},
      {"skynomad", [](auto& market, auto&) { return skynomad(market); }},
      {"failover", [](auto&, auto&) { return uniform_progress(); }},
      {"on-demand", [](auto&, auto&) { return on_demand_only(); }},
  };
  return result;
}

std::size_t ticks_of(const rented_market& market, const rented_job& job) {
  return static_cast<std::size_t>(std::ceil(job.gang.deadline_s / market.tick_s));
}

std::size_t windows_of(const rented_market& market, const rented_job& job) {
  std::size_t length = 0;
  for (const auto& x : market.places)
    length = std::max(length, x.spot.size());
  const auto result = length / ticks_of(market, job);
  if (result == 0)
    throw std::invalid_argument(
        "the histories last " +
        std::to_string(static_cast<std::uint64_t>(static_cast<double>(length) * market.tick_s / 3600)) +
        " h, less than the deadline");
  return result;
}

// The gang is there where all its instances are.
gang_market gangs_of(const rented_market& market, const rented_job& job) {
  gang_market result{market.tick_s, {}, market.usd_per_gb};
  const double size = job.instances;
  for (const auto& x : market.places) {
    if (x.on_demand < job.instances)
      throw std::invalid_argument("the place " + x.name + " has " + std::to_string(x.on_demand) +
                                  " instances on demand, a gang needs " + std::to_string(job.instances) +
                                  ": it could not be in time for sure");
    offers place{x.name, {}, {}, x.on_demand_usd_per_h * size};
    for (const auto n : x.spot)
      place.available.push_back(n >= job.instances);
    for (const double usd : x.spot_usd_per_h)
      place.spot_usd_per_h.push_back(usd * size);
    result.places.push_back(std::move(place));
  }
  if (const auto problem = problem_of(result, job.gang); !problem.empty())
    throw std::invalid_argument(problem);
  return result;
}

market_run run_gang(const std::string& name, const policy_maker& make, const rented_market& market,
                    const rented_job& job) {
  market_run result{name, {}};
  const auto count = windows_of(market, job), ticks = ticks_of(market, job);
  const auto all = gangs_of(market, job);
  for (std::size_t i = 0; i < count; ++i) {
    const auto window = from_tick(all, i * ticks);
    const auto policy = make(window, job.gang);
    const auto bill = gang_world(window, job.gang).run(*policy);
    window_run x;
    x.begin_h = static_cast<double>(i * ticks) * market.tick_s / 3600;
    x.spot_h = bill.spot_s / 3600;
    x.on_demand_h = bill.on_demand_s / 3600;
    x.usd = bill.usd + market.fixed_usd_per_h * bill.finish_s.value_or(job.gang.deadline_s) / 3600;
    x.in_time = bill.finish_s.has_value();
    if (bill.finish_s)
      x.finish_h = *bill.finish_s / 3600;
    x.launches = bill.launches;
    result.windows.push_back(x);
  }
  return result;
}

market_run run_in(std::size_t place, const rented_market& market, const rented_job& job) {
  market_run result{"uniform:" + market.places[place].name, {}};
  const auto count = windows_of(market, job), ticks = ticks_of(market, job);
  const auto all = gangs_of(market, job);
  for (std::size_t i = 0; i < count; ++i) {
    window_run x;
    x.begin_h = static_cast<double>(i * ticks) * market.tick_s / 3600;
    x.usd = uniform_progress_in(from_tick(all, i * ticks), place, job.gang) +
            market.fixed_usd_per_h * job.gang.deadline_s / 3600;
    result.windows.push_back(x);
  }
  return result;
}

// From a tick on.
std::vector<elastic_place> places_from(const std::vector<elastic_place>& places, std::size_t tick) {
  auto result = places;
  for (auto& x : result) {
    x.spot.erase(x.spot.begin(), x.spot.begin() + static_cast<std::ptrdiff_t>(tick));
    x.spot_usd_per_h.erase(x.spot_usd_per_h.begin(), x.spot_usd_per_h.begin() + static_cast<std::ptrdiff_t>(tick));
  }
  return result;
}

market_run run_budget(const rented_market& market, const rented_job& job) {
  market_run result{"budget", {}};
  const auto ticks = ticks_of(market, job);
  auto options = *job.elastic;
  options.interval_s = market.tick_s;
  options.start_s = job.gang.start_s;
  options.deadline_s = job.gang.deadline_s;
  const double samples = job.gang.work_s * options.samples_per_s.at(job.instances);
  for (std::size_t i = 0; i < windows_of(market, job); ++i) {
    const auto bill = run_elastic(places_from(market.places, i * ticks), samples, market.tick_s, options);
    window_run x;
    x.begin_h = static_cast<double>(i * ticks) * market.tick_s / 3600;
    x.usd = bill.usd + market.fixed_usd_per_h * bill.finish_s.value_or(job.gang.deadline_s) / 3600;
    x.in_time = bill.finish_s.has_value();
    if (bill.finish_s)
      x.finish_h = *bill.finish_s / 3600;
    x.spot_h = bill.spot_h / job.instances;
    x.on_demand_h = bill.on_demand_h / job.instances;
    x.launches = bill.changes;
    for (std::size_t k = 0; k < bill.decisions.size(); ++k)
      if (k == 0 || bill.decisions[k].what != bill.decisions[k - 1].what)
        x.decisions.push_back({static_cast<double>(k) * market.tick_s / 3600, bill.decisions[k]});
    result.windows.push_back(std::move(x));
  }
  return result;
}

market_run run_bound(const rented_market& market, const rented_job& job) {
  if (job.samples_per_s.size() <= job.instances || job.samples_per_s[job.instances] <= 0)
    throw std::invalid_argument("the bound needs --profile with a rate for the gang's " +
                                std::to_string(job.instances) + " instances");
  market_run result{"bound", {}};
  const auto ticks = ticks_of(market, job);
  const elastic_job elastic{job.samples_per_s, job.gang.work_s * job.samples_per_s[job.instances], job.gang.deadline_s};
  for (std::size_t i = 0; i < windows_of(market, job); ++i) {
    const auto bound = bound_of(places_from(market.places, i * ticks), elastic, market.tick_s);
    window_run x;
    x.begin_h = static_cast<double>(i * ticks) * market.tick_s / 3600;
    x.in_time = bound.has_value();
    x.usd = bound ? bound->usd : 0;
    result.windows.push_back(x);
  }
  return result;
}

} // namespace

double market_run::mean_usd() const {
  const double sum =
      std::accumulate(windows.begin(), windows.end(), 0.0, [](double usd, const auto& x) { return usd + x.usd; });
  return windows.empty() ? 0 : sum / static_cast<double>(windows.size());
}

double market_run::max_usd() const {
  return windows.empty() ? 0 : std::ranges::max_element(windows, {}, &window_run::usd)->usd;
}

std::size_t market_run::late() const {
  return static_cast<std::size_t>(std::ranges::count(windows, false, &window_run::in_time));
}

std::vector<std::string> policy_names() {
  std::vector<std::string> result{"bound"};
  for (const auto& [name, make] : makers())
    result.push_back(name);
  result.emplace_back("uniform");
  return result;
}

std::vector<market_run> run_policy(const std::string& name, const rented_market& market, const rented_job& job) {
  if (name == "bound")
    return {run_bound(market, job)};
  if (name == "budget" && job.elastic)
    return {run_budget(market, job)};
  if (name == "uniform") {
    std::vector<market_run> result;
    for (std::size_t i = 0; i < market.places.size(); ++i)
      result.push_back(run_in(i, market, job));
    return result;
  }
  for (const auto& [known, make] : makers())
    if (known == name)
      return {run_gang(name, make, market, job)};
  throw std::invalid_argument("there is no policy " + name + " for markets");
}

} // namespace parcae::market
