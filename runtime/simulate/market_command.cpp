#include "runtime/simulate/market_command.hpp"

#include "planner/cost/profile.hpp"
#include "planner/market/elastic_figures.hpp"
#include "planner/market/market_data.hpp"
#include "protocols/base/suggestion.hpp"
#include "runtime/market/market_file.hpp"
#include "runtime/process/usage.hpp"
#include "runtime/simulate/trace_input.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <set>

namespace parcae {

namespace {

constexpr std::uint32_t most_slots = 4096; // of an elastic job

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

std::string kind_of(const market_arguments& args, const market_description& market) {
  std::set<std::string> kinds;
  for (const auto& x : market.pools)
    kinds.insert(x.kind);
  if (!args.kind.empty() && !kinds.contains(args.kind))
    throw std::invalid_argument("--kind " + args.kind + " is in no pool of " + args.file + "; " +
                                advice(args.kind, {kinds.begin(), kinds.end()}));
  if (args.kind.empty() && kinds.size() > 1)
    throw std::invalid_argument(args.file + " has several kinds: --kind must be one of " +
                                names_of({kinds.begin(), kinds.end()}));
  return args.kind.empty() ? *kinds.begin() : args.kind;
}

double price_of(const instance_pool& pool, const market_arguments& args) {
  if (!pool.usd_per_h)
    throw std::runtime_error(args.file + ": the pool " + pool.name +
                             " has no price; give it one, or a feed or a catalog that has");
  return *pool.usd_per_h;
}

void add_pool(market::elastic_place& place, const instance_pool& pool, const market_arguments& args, double tick_s) {
  const double usd = price_of(pool, args);
  if (!pool.spot) {
    if (place.on_demand > 0)
      throw std::runtime_error(args.file + ": two pools of " + pool.kind + " are on demand in " + pool.place +
                               "; make them one");
    place.on_demand = pool.most;
    place.on_demand_usd_per_h = usd;
    return;
  }
  if (!place.spot.empty())
    throw std::runtime_error(args.file + ": two pools of " + pool.kind + " are spot in " + pool.place +
                             "; make them one");
  if (pool.history.empty())
    throw std::runtime_error(args.file + ": the pool " + pool.name +
                             " has no history to simulate with: history = \"FILE\", lines seconds,count");
  place.spot = history_of(pool, tick_s);
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

market::rented_market rented(const market_arguments& args, const market_description& market, const std::string& kind) {
  market::rented_market result;
  result.tick_s = static_cast<double>(args.tick.count()) / 1000;
  result.fixed_usd_per_h = market.fixed_usd_per_h;
  for (const auto& pool : market.pools) {
    if (pool.kind != kind)
      continue;
    auto place = std::ranges::find(result.places, pool.place, &market::elastic_place::name);
    if (place == result.places.end())
      place = result.places.insert(place, market::elastic_place{pool.place, {}, {}, 0, 0});
    add_pool(*place, pool, args, result.tick_s);
  }
  // As long as all histories are there; where there is no spot pool, none is available.
  std::size_t length = SIZE_MAX;
  for (const auto& x : result.places)
    length = x.spot.empty() ? length : std::min(length, x.spot.size());
  if (length == SIZE_MAX)
    throw std::runtime_error(args.file + ": no pool of " + kind + " is spot; on demand alone needs no simulation");
  for (auto& x : result.places) {
    x.spot.resize(length, 0);
    x.spot_usd_per_h.resize(length, x.on_demand_usd_per_h);
  }
  result.usd_per_gb = egress_of(result.places, market);
  return result;
}

struct input {
  market_setting setting;
  market::rented_market market;
  market::rented_job job;
};

double seconds(std::chrono::milliseconds x) {
  return static_cast<double>(x.count()) / 1000;
}

// What the budget policy knows of the job; one copy of its state moves.
market::purchase_options elastic_of(const market_arguments& args, const profile& workload, std::uint32_t slots,
                                    const market::rented_market& market, std::size_t most) {
  auto figures = figures_of(workload);
  if (args.link_bytes_per_ms)
    figures.link_bytes_per_ms = *args.link_bytes_per_ms;
  figures.detect_ms = 2'000; // as simulate has it for traces
  auto result = market::elastic_figures(workload, figures, slots, static_cast<std::uint32_t>(most));
  double parameters = 0;
  for (const auto& x : workload.layers)
    parameters += x.parameters;
  result.move_usd = market.usd_per_gb;
  for (auto& x : result.move_usd)
    for (auto& usd : x)
      usd *= parameters * workload.state_bytes_per_parameter() / 1e9;
  result.hourly_usd = args.hourly_usd;
  result.total_usd = args.total_usd;
  result.total_first = args.first == "total";
  return result;
}

input read(const market_arguments& args, const std::string& profile_file) {
  input result;
  const auto market = read_market(args.file);
  const auto kind = kind_of(args, market);
  result.market = rented(args, market, kind);
  auto& job = result.job;
  std::uint32_t slots = 1;
  std::chrono::milliseconds start{0};
  for (const auto& x : market.pools)
    if (x.kind == kind) {
      slots = std::max(slots, x.slots);
      start = std::max(start, x.start);
    }
  for (const auto& x : market.pools)
    if (x.kind == kind && x.slots != slots)
      throw std::runtime_error(args.file + ": the pools of " + kind + " have unlike slots; a kind has the same number");
  job.instances = (args.slots + slots - 1) / slots;
  job.gang = {seconds(args.work), seconds(*args.deadline), seconds(start), args.checkpoint_gb.value_or(0)};
  if (!profile_file.empty()) {
    const auto workload = from_file(profile_file, [](const std::string& text) { return parse_profile(text); });
    double parameters = 0;
    for (const auto& x : workload.layers)
      parameters += x.parameters;
    if (!args.checkpoint_gb)
      job.gang.checkpoint_gb = parameters * workload.state_bytes_per_parameter() / 1e9;
    for (std::uint32_t n = 0; n * slots <= most_slots; ++n)
      job.samples_per_s.push_back(workload.throughput(workload.fastest(n * slots)));
    // Beyond what was measured more of them add nothing.
    const auto last = std::ranges::max_element(job.samples_per_s) - job.samples_per_s.begin();
    job.samples_per_s.resize(std::max<std::size_t>(static_cast<std::size_t>(last), job.instances) + 1);
    std::size_t most = job.instances; // together in a place
    for (const auto& x : result.market.places)
      most = std::max<std::size_t>(most, *std::ranges::max_element(x.spot) + x.on_demand);
    job.elastic = elastic_of(args, workload, slots, result.market, std::min(most, job.samples_per_s.size() - 1));
  }
  result.setting = {std::filesystem::path(args.file).filename().string(),
                    kind,
                    job.gang.deadline_s / 3600,
                    job.gang.work_s / 3600,
                    job.instances,
                    args.total_usd};
  return result;
}

} // namespace

std::vector<std::string> market_policies() {
  return market::policy_names();
}

void add_market_options(CLI::App& command, market_arguments& args) {
  command.add_option("--market", args.file, "market file, TOML: instead of a trace; what a job would have paid there");
  command.add_option("--kind", args.kind, "of a market: the instances' kind, if the file has several");
  add_duration(command, "--deadline", args.deadline, "of a market: until when the work must be done, such as 36h");
  command.add_option("--total", args.total_usd, "of a market: US-dollars; how often a policy spends more is counted")
      ->check(CLI::PositiveNumber);
  command.add_option("--hourly", args.hourly_usd, "of a market: US-dollars an hour, at most, under the budget policy")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--first", args.first,
                  "of a market: deadline or total, what the budget policy keeps if both cannot hold")
      ->capture_default_str()
      ->check(CLI::IsMember({"deadline", "total"}));
  add_duration(command, "--work", args.work, "of a market: how long the gang works without a loss (default 24h)");
  add_duration(command, "--tick", args.tick, "of a market: between decisions (default 5m)");
  command.add_option("--gang", args.slots, "of a market: slots of a gang, which works with all of them or not at all")
      ->capture_default_str()
      ->check(CLI::Range(1u, most_slots));
  command
      .add_option("--checkpoint-gb", args.checkpoint_gb,
                  "of a market: what moves with a change of place (default: "
                  "the profile's)")
      ->check(CLI::Range(0.0, 1e6));
}

void simulate_market(const market_arguments& args, const std::vector<std::string>& policies, const std::string& profile,
                     const std::string& plot, bool as_json) {
  if (!args.deadline)
    throw std::invalid_argument("--market needs --deadline, such as --deadline 36h");
  if (args.first == "total" && !args.total_usd)
    throw std::invalid_argument("--first total needs --total, such as --total 500");
  if ((args.first == "total" || args.hourly_usd) && profile.empty())
    throw std::invalid_argument("--first total and --hourly need --profile: they are for an elastic job");
  if (args.tick.count() < 1000)
    throw std::invalid_argument("--tick must be at least 1s");
  const auto known = market_policies();
  const bool all = std::ranges::find(policies, "all") != policies.end();
  std::vector<market::market_run> runs;
  const auto given = read(args, profile);
  for (const auto& name : all ? known : policies) {
    if (std::ranges::find(known, name) == known.end())
      throw std::invalid_argument("--policy " + name + " is for traces; on a market it may be " + names_of(known));
    if (all && name == "bound" && profile.empty()) {
      std::fprintf(stderr, "without bound: it needs --profile, for the rates of more and fewer instances\n");
      continue;
    }
    for (auto& x : market::run_policy(name, given.market, given.job))
      runs.push_back(std::move(x));
  }
  if (!plot.empty())
    plot_market(plot, given.setting, given.market, runs);
  if (as_json)
    std::printf("%s\n", boost::json::serialize(to_json(given.setting, runs)).c_str());
  else
    std::fputs(to_table(given.setting, runs).c_str(), stdout);
}

} // namespace parcae
