#include "planner/market/advice.hpp"

#include "planner/cost/profile.hpp"
#include "planner/market/measured_clusters.hpp"
#include "planner/market/table.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <set>
#include <stdexcept>

namespace parcae::market {

namespace {

// Coarser than that of a job that runs, as it is worked out for each hour of each window; money differs by less than a
// hundredth.
constexpr std::size_t price_intervals = 96, price_points = 300;

constexpr double never = std::numeric_limits<double>::infinity();

std::string text_of(const char* format, double x) {
  char text[64];
  std::snprintf(text, sizeof text, format, x);
  return text;
}

std::size_t history_of(const rented_market& x) {
  std::size_t result = 0;
  for (const auto& place : x.places)
    result = std::max(result, place.spot.size());
  return result;
}

// `ticks` ticks from `first` on, as if the history went round.
std::vector<elastic_place> window_of(const rented_market& x, std::size_t first, std::size_t ticks) {
  std::vector<elastic_place> result;
  for (const auto& place : x.places) {
    auto& y = result.emplace_back(elastic_place{place.name, {}, {}, place.on_demand, place.on_demand_usd_per_h});
    y.spot.reserve(ticks);
    y.spot_usd_per_h.reserve(ticks);
    for (std::size_t i = 0; i < ticks; ++i) {
      const auto at = (first + i) % place.spot.size();
      y.spot.push_back(place.spot[at]);
      y.spot_usd_per_h.push_back(place.spot_usd_per_h[at]);
    }
  }
  return result;
}

holding holding_of(const plan& x, const purchase_state& now) {
  const auto& offer = now.places[x.place];
  holding result{x.place, 0, 0};
  if (x.rule != holding_rule::on_demand)
    result.spot = std::min(x.instances, offer.spot);
  if (x.rule != holding_rule::spot)
    result.on_demand = std::min(x.instances - result.spot, offer.on_demand);
  return result;
}

// Sizes that are faster than one less: the knee, and some of the others, evenly over them.
std::vector<std::uint32_t> sizes_of(const std::vector<double>& rates, std::uint32_t most, std::size_t count) {
  std::vector<std::uint32_t> all;
  for (std::uint32_t n = 1; n <= most && n < rates.size(); ++n)
    if (rates[n] > rates[n - 1])
      all.push_back(n);
  if (all.size() <= count)
    return all;
  std::set<std::uint32_t> result;
  for (std::size_t i = 1; i <= count; ++i)
    result.insert(all[i * all.size() / count - 1]);
  if (const auto at = knee(std::span(rates).subspan(1)); at && *at <= most)
    result.insert(static_cast<std::uint32_t>(*at));
  return {result.begin(), result.end()};
}

std::vector<plan> plans_of(const advice_request& x) {
  std::vector<plan> result;
  for (std::size_t kind = 0; kind < x.kinds.size(); ++kind) {
    const auto& [name, market, options] = x.kinds[kind];
    result.push_back({kind});
    // On demand is alike in all places: only where it is cheapest.
    std::size_t cheapest = 0;
    for (std::size_t place = 1; place < market.places.size(); ++place) {
      const auto &a = market.places[cheapest], &b = market.places[place];
      if (b.on_demand > 0 && (a.on_demand == 0 || b.on_demand_usd_per_h < a.on_demand_usd_per_h))
        cheapest = place;
    }
    for (std::size_t place = 0; place < market.places.size(); ++place) {
      const auto& y = market.places[place];
      const auto spot = y.spot.empty() ? 0 : *std::ranges::max_element(y.spot);
      for (const auto n : sizes_of(options.samples_per_s, spot, x.sizes))
        result.push_back({kind, holding_rule::spot, place, n});
      for (const auto n : sizes_of(options.samples_per_s, y.on_demand, x.sizes)) {
        if (place == cheapest)
          result.push_back({kind, holding_rule::on_demand, place, n});
        if (spot > 0)
          result.push_back({kind, holding_rule::filled, place, n});
      }
    }
  }
  return result;
}

std::string text_of(const plan& x, const advised_kind& kind) {
  if (x.rule == holding_rule::budget)
    return "budget policy on " + kind.name;
  const auto* sort = x.rule == holding_rule::spot        ? " spot "
                     : x.rule == holding_rule::on_demand ? " on-demand "
                                                         : " spot or else on-demand ";
  return std::to_string(x.instances) + sort + kind.name + " in " + kind.market.places[x.place].name;
}

double mean(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

advised_plan weighed(const advice_request& x, const plan& what) {
  const auto& kind = x.kinds[what.kind];
  const auto runs = runs_under(x, what);
  advised_plan result{what, text_of(what, kind), 0, 0, {}, {}, 0, 0, {}, {}};
  result.places.resize(kind.market.places.size());
  std::vector<double> usd, finish_h;
  const auto share = 1 / static_cast<double>(runs.size());
  for (const auto& run : runs) {
    usd.push_back(run.usd);
    finish_h.push_back(run.finish_h.value_or(never));
    result.late += finish_h.back() * 3600 > x.deadline_s ? share : 0;
    result.over += x.total_usd && run.usd > *x.total_usd ? share : 0;
    for (std::size_t i = 0; i < run.places.size(); ++i) {
      result.places[i].spot += run.places[i].spot * share;
      result.places[i].on_demand += run.places[i].on_demand * share;
    }
  }
  result.usd = mean(usd);
  result.finish_h = mean(finish_h);
  const double independent = static_cast<double>(history_of(kind.market)) * kind.market.tick_s / x.deadline_s;
  result.usd_spread = spread_of(std::move(usd), independent);
  result.finish_spread = spread_of(std::move(finish_h), independent);
  return result;
}

double misses(const advised_plan& x) {
  return x.late + x.over;
}

// Against the first; of the first itself, against the next.
std::string why(const advised_plan& x, const advised_plan& other, bool is_first, const advice_request& request,
                const std::optional<std::size_t>& knee) {
  const double more = 100 * (x.usd / other.usd - 1);
  if (is_first) {
    const auto than = misses(x) < misses(other) ? "more often in time and within the money than "
                      : more > -0.05            ? "as cheap as "
                                                : text_of("%.1f %% cheaper than ", -more);
    return (misses(x) > 0 ? text_of("in time and within the money in all but %.0f %% of the windows, ", 100 * misses(x))
                          : "in time in all windows, ") +
           (than + other.text);
  }
  if (x.late > 0)
    return text_of("late in %.0f %% of the windows", 100 * x.late) +
           (x.what.rule == holding_rule::spot ? ": spot is not always to be had" : ": too slow");
  if (x.over > 0)
    return text_of("in time, but dearer than the total in %.0f %% of the windows", 100 * x.over);
  const auto dearer = text_of("in time, but %.1f %% dearer", more);
  const auto& place = request.kinds[x.what.kind].market.places[x.what.place];
  if (x.what.rule == holding_rule::budget)
    return dearer + " than " + other.text;
  if (knee && x.what.instances > *knee)
    return dearer + ": beyond " + std::to_string(*knee) + " one more adds less than a tenth";
  if (x.what.rule != holding_rule::spot && !place.spot_usd_per_h.empty() &&
      place.on_demand_usd_per_h > place.spot_usd_per_h.front())
    return dearer + text_of(": on demand costs %.1f times as much as spot",
                            place.on_demand_usd_per_h / place.spot_usd_per_h.front());
  return dearer + " than " + other.text;
}

void check(const advice_request& x) {
  for (const auto& kind : x.kinds) {
    const double seconds = static_cast<double>(history_of(kind.market)) * kind.market.tick_s;
    if (seconds < x.deadline_s)
      throw std::invalid_argument(text_of("the histories last %.1f h, less than the deadline", seconds / 3600));
  }
}

// By its rank in n independent ones: that of a run to come is any with the same chance, so (n + 1)·share.
double quantile(const std::vector<double>& sorted, double share, double independent) {
  const auto last = static_cast<double>(sorted.size() - 1);
  const double rank = std::clamp((share * (independent + 1) - 0.5) / independent, 0.0, 1.0) * (last + 1) - 0.5;
  const double at = std::clamp(rank, 0.0, last);
  const auto low = static_cast<std::size_t>(at);
  if (low + 1 >= sorted.size() || at == std::floor(at))
    return sorted[low];
  const double part = at - static_cast<double>(low);
  return std::isinf(sorted[low + 1]) ? sorted[low + 1] : (1 - part) * sorted[low] + part * sorted[low + 1];
}

} // namespace

std::vector<plan_run> runs_under(const advice_request& x, const plan& what) {
  const auto& [name, market, given] = x.kinds[what.kind];
  auto options = given;
  options.interval_s = market.tick_s;
  options.price_intervals = price_intervals;
  options.price_points = price_points;
  options.deadline_s = what.rule == holding_rule::budget ? x.deadline_s : 2 * x.deadline_s;
  const auto ticks = static_cast<std::size_t>(std::ceil(options.deadline_s / market.tick_s));
  const auto length = history_of(market);
  const auto count = what.rule == holding_rule::on_demand ? 1 : std::min(x.windows, length);
  std::vector<plan_run> result;
  for (std::size_t i = 0; i < count; ++i) {
    const auto window = window_of(market, i * length / count, ticks);
    const auto bill = what.rule == holding_rule::budget
                          ? run_elastic(window, x.samples, market.tick_s, options)
                          : run_elastic(window, x.samples, market.tick_s, options, [&](const purchase_state& now) {
                              purchase decision;
                              decision.what = holding_of(what, now);
                              return decision;
                            });
    plan_run run{bill.usd, {}, bill.places};
    if (bill.finish_s)
      run.finish_h = *bill.finish_s / 3600;
    run.usd += market.fixed_usd_per_h * bill.finish_s.value_or(options.deadline_s) / 3600;
    result.push_back(std::move(run));
  }
  return result;
}

spread spread_of(std::vector<double> runs, double independent) {
  std::ranges::sort(runs);
  return {quantile(runs, 0.1, independent), quantile(runs, 0.5, independent), quantile(runs, 0.9, independent)};
}

advice advise(const advice_request& x) {
  check(x);
  advice result;
  result.windows = x.windows;
  for (const auto& kind : x.kinds)
    result.knees.push_back(knee(std::span(kind.options.samples_per_s).subspan(1)));
  for (const auto& what : plans_of(x))
    result.plans.push_back(weighed(x, what));
  std::ranges::stable_sort(result.plans, [](const auto& a, const auto& b) {
    return std::pair(misses(a), a.usd) < std::pair(misses(b), b.usd);
  });
  auto& plans = result.plans;
  for (std::size_t i = 0; i < plans.size() && plans.size() > 1; ++i)
    plans[i].why = why(plans[i], plans[i == 0 ? 1 : 0], i == 0, x, result.knees[plans[i].what.kind]);
  return result;
}

std::vector<std::pair<std::string, std::vector<double>>> parse_rates(std::string_view text) {
  enum : std::size_t { kind, instances, rate };
  const table all(text, {"kind", "instances", "samples_per_s"});
  std::vector<std::pair<std::string, std::vector<double>>> result;
  for (const auto& row : all.rows()) {
    auto found = std::ranges::find(result, row.text(kind), &std::pair<std::string, std::vector<double>>::first);
    if (found == result.end())
      found = result.insert(result.end(), {row.text(kind), {0}});
    const auto n = row.whole(instances, 10'000);
    if (n < found->second.size())
      row.fail("instances of a kind must rise from line to line, from 1 on");
    found->second.resize(n, found->second.back());
    found->second.push_back(row.number(rate, 1e-9, 1e9));
  }
  return result;
}

} // namespace parcae::market
