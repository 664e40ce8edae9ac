#include "runtime/simulate/market_command.hpp"

#include "planner/cost/profile.hpp"
#include "protocols/base/suggestion.hpp"
#include "runtime/market/market_file.hpp"
#include "runtime/process/usage.hpp"
#include "runtime/simulate/market_input.hpp"
#include "runtime/simulate/trace_input.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>

namespace parcae {

namespace {

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

struct input {
  market_setting setting;
  market::rented_market market;
  market::rented_job job;
};

input read(const market_arguments& args, const std::string& profile_file) {
  input result;
  const auto market = read_market(args.file);
  const auto kind = kind_of(args, market);
  result.market = market_of(args.file, market, kind, seconds(args.tick));
  auto& job = result.job;
  const auto [slots, start_s] = instances_of(args.file, market, kind);
  job.instances = (args.slots + slots - 1) / slots;
  job.gang = {seconds(args.work), seconds(*args.deadline), start_s, args.checkpoint_gb.value_or(0)};
  if (!profile_file.empty()) {
    const auto workload = from_file(profile_file, [](const std::string& text) { return parse_profile(text); });
    if (!args.checkpoint_gb)
      job.gang.checkpoint_gb = state_gb(workload);
    job.samples_per_s = rates_of(workload, slots, job.instances);
    std::size_t most = job.instances; // together in a place
    for (const auto& x : result.market.places)
      most = std::max<std::size_t>(most, *std::ranges::max_element(x.spot) + x.on_demand);
    job.elastic = options_of(workload, args.link_bytes_per_ms, slots, result.market,
                             std::min(most, job.samples_per_s.size() - 1));
    job.elastic->hourly_usd = args.hourly_usd;
    job.elastic->total_usd = args.total_usd;
    job.elastic->total_first = args.first == "total";
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
      ->check(CLI::Range(1u, max_slots));
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
  auto given = read(args, profile);
  if (as_json && given.job.elastic)
    given.job.elastic->courses = 100; // of which each decision's 10, 50 and 90 % are told
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
