#include "runtime/simulate.hpp"

#include "forecast/evaluation.hpp"
#include "planner/simulator.hpp"
#include "planner/trace_generator.hpp"

#include <boost/json.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>

namespace parcae {

namespace {

namespace json = boost::json;

struct simulate_arguments {
  std::string profile;
  std::string trace;
  std::string network;
  std::vector<std::string> policies{"liveput"};
  std::string forecast = "auto";
  std::uint32_t notice = 0;
  std::uint32_t look_ahead = 12;
  std::uint32_t devices = 1;
  std::string accounting = "published";
  std::string plan_out;
  bool as_json = false;
};

struct forecast_arguments {
  std::string trace;
  std::vector<std::string> methods;
  std::vector<std::size_t> horizons{1, 4, 8, 12};
  std::size_t warm_up = 30;
  bool as_json = false;
};

struct run_result {
  std::string policy;
  std::unique_ptr<simulator> simulation;
  std::vector<double> plan_ms; // sorted
  double plan_total_ms = 0;
};

// Adds the file's name to what is wrong with it.
template <class F>
auto from_file(const std::string& path, F parse) {
  const auto text = read_file(path);
  try {
    return parse(text);
  } catch (const parse_error& e) {
    throw std::runtime_error(path + ": " + e.what());
  }
}

// A file, or "KIND:SEED" for a generated trace ("p3:7").
fleet_history load_trace(const std::string& name) {
  const auto colon = name.find(':');
  const auto kinds = trace_kinds();
  if (std::find(kinds.begin(), kinds.end(), name.substr(0, colon)) != kinds.end() && !std::filesystem::exists(name)) {
    std::uint64_t seed = 1;
    if (colon != std::string::npos && !CLI::detail::lexical_cast(name.substr(colon + 1), seed))
      throw std::runtime_error("the seed in --trace " + name + " must be a whole number");
    return intervals_of(generate_trace(trace_kind(name.substr(0, colon)), seed));
  }
  return from_file(name, [](const std::string& text) {
    auto history = parse_trace(text);
    if (history.empty())
      throw parse_error("the trace has no intervals");
    return history;
  });
}

policy policy_of(const std::string& name) {
  if (name == "ideal")
    return policy::ideal;
  return name == "throughput" ? policy::throughput : policy::liveput;
}

double percentile(const std::vector<double>& sorted, double q) {
  if (sorted.empty())
    return 0;
  return sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(q * static_cast<double>(sorted.size())))];
}

run_result run_policy(const simulate_arguments& args, const std::string& name, const profile& workload,
                      published_cost& costs, const fleet_history& history) {
  using clock = std::chrono::steady_clock;
  run_result result;
  result.policy = name;
  // The cost tables count as planning: they are filled as decisions need them.
  const auto begin = clock::now();
  result.simulation =
      std::make_unique<simulator>(workload, costs, &costs, history,
                                  simulation_options{policy_of(name), args.forecast, args.notice, args.look_ahead});
  result.plan_total_ms = std::chrono::duration<double, std::milli>(clock::now() - begin).count();
  while (!result.simulation->done()) {
    const auto start = clock::now();
    result.simulation->decide();
    result.plan_ms.push_back(std::chrono::duration<double, std::milli>(clock::now() - start).count());
    result.plan_total_ms += result.plan_ms.back();
    result.simulation->advance();
  }
  std::sort(result.plan_ms.begin(), result.plan_ms.end());
  return result;
}

json::object describe(const simulate_arguments& args, const profile& workload, const run_result& x, double ideal) {
  json::object result;
  result["profile"] = workload.name;
  result["trace"] = args.trace;
  result["policy"] = x.policy;
  result["forecast"] = x.policy == "liveput" ? args.forecast : "";
  result["notice"] = args.notice;
  result["look_ahead"] = args.look_ahead;
  result["accounting"] = args.accounting;
  result["intervals"] = x.simulation->intervals().size();
  result["samples"] = x.simulation->samples();
  result["share_of_ideal"] = ideal > 0 ? x.simulation->samples() / ideal : 0;
  result["migrations"] = x.simulation->migrations();
  result["plan_wall_ms"] = json::object{
      {"total", x.plan_total_ms}, {"p50", percentile(x.plan_ms, 0.5)}, {"p99", percentile(x.plan_ms, 0.99)}};
  return result;
}

void write_plan(const std::string& path, const simulator& x) {
  json::array plan;
  for (const auto& interval : x.intervals())
    plan.push_back(json::array{interval.used.width, interval.used.depth});
  std::ofstream file(path);
  file << json::serialize(plan) << '\n';
  if (!file.flush())
    throw std::runtime_error("cannot write the plan to " + path);
}

void simulate(const simulate_arguments& args) {
  const auto workload = from_file(args.profile, [](const std::string& text) { return parse_profile(text); });
  const auto network_file = args.network.empty()
                                ? (std::filesystem::path(args.profile).parent_path() / "network-10gbps.json").string()
                                : args.network;
  const auto network = from_file(network_file, [](const std::string& text) { return parse_network(text); });
  const auto history = load_trace(args.trace);
  auto names = args.policies;
  if (std::find(names.begin(), names.end(), "all") != names.end())
    names = {"ideal", "throughput", "liveput"};
  double ideal = 0;
  for (const auto& x : history)
    ideal += interval_s * workload.throughput(workload.fastest(x.available * args.devices));
  std::vector<json::object> rows;
  if (!args.as_json)
    std::printf("%-12s %16s %10s %11s %12s %10s\n", "policy", "samples", "of ideal", "migrations", "planning ms",
                "p99 ms");
  for (const auto& name : names) {
    published_cost costs(workload, network, args.devices);
    const auto x = run_policy(args, name, workload, costs, history);
    if (args.as_json)
      rows.push_back(describe(args, workload, x, ideal));
    else
      std::printf("%-12s %16.1f %9.2f%% %11u %12.1f %10.3f\n", name.c_str(), x.simulation->samples(),
                  ideal > 0 ? 100 * x.simulation->samples() / ideal : 0, x.simulation->migrations(), x.plan_total_ms,
                  percentile(x.plan_ms, 0.99));
    if (!args.plan_out.empty())
      write_plan(args.plan_out, *x.simulation);
  }
  if (!args.as_json)
    return;
  if (rows.size() == 1) {
    std::printf("%s\n", json::serialize(rows[0]).c_str());
    return;
  }
  json::object all;
  json::array runs;
  for (auto& row : rows)
    runs.push_back(std::move(row));
  all["runs"] = std::move(runs);
  std::printf("%s\n", json::serialize(all).c_str());
}

void forecast(const forecast_arguments& args) {
  const auto history = load_trace(args.trace);
  // The first one is what the others are compared with.
  auto methods = args.methods;
  if (methods.empty())
    for (const auto& x : method_names())
      if (x != "last-spread")
        methods.push_back(x);
  methods.erase(std::remove(methods.begin(), methods.end(), "last-spread"), methods.end());
  methods.insert(methods.begin(), "last-spread");
  const auto rows = evaluate(history, methods, args.horizons, args.warm_up);
  if (!args.as_json) {
    std::printf("%-12s %8s %10s %8s %8s %9s   %s\n", "method", "horizon", "forecasts", "MAE", "CRPS", "in 80 %",
                "CRPS against last value spread by its errors, 95 %");
    for (const auto& x : rows)
      std::printf("%-12s %8zu %10zu %8.3f %8.3f %8.1f%%   %+.3f  [%+.3f, %+.3f]\n", x.method.c_str(), x.horizon,
                  x.forecasts, x.mae, x.crps, 100 * x.covered, x.difference, x.difference_low, x.difference_high);
    return;
  }
  json::array list;
  for (const auto& x : rows)
    list.push_back(json::object{{"method", x.method},
                                {"horizon", x.horizon},
                                {"forecasts", x.forecasts},
                                {"mae", x.mae},
                                {"crps", x.crps},
                                {"covered_80", x.covered},
                                {"crps_difference", x.difference},
                                {"crps_difference_95", json::array{x.difference_low, x.difference_high}}});
  std::printf("%s\n", json::serialize(json::object{{"trace", args.trace}, {"errors", std::move(list)}}).c_str());
}

std::string names_of(const std::vector<std::string>& x) {
  std::string result;
  for (const auto& name : x)
    result += (result.empty() ? "" : ", ") + name;
  return result;
}

} // namespace

void add_simulate(CLI::App& app) {
  auto args = std::make_shared<simulate_arguments>();
  auto* command = app.add_subcommand("simulate", "Replay a trace under a planning policy");
  command->add_option("--profile", args->profile, "workload, JSON")->required();
  command
      ->add_option("--trace", args->trace,
                   "file (milliseconds,add|remove,node or seconds,count), or KIND:SEED of a generated one: " +
                       names_of(trace_kinds()))
      ->required();
  command->add_option("--network", args->network,
                      "transfer times, JSON (default: network-10gbps.json beside the profile)");
  command->add_option("--policy", args->policies, "ideal, throughput, liveput, several of them, or all")
      ->delimiter(',')
      ->check(CLI::IsMember({"ideal", "throughput", "liveput", "all"}));
  auto forecasts = method_names();
  forecasts.push_back("oracle");
  command->add_option("--forecast", args->forecast, names_of(forecasts))->check(CLI::IsMember(forecasts));
  command->add_option("--notice", args->notice, "intervals whose events are known before they are decided on")
      ->check(CLI::Range(0, 2));
  command->add_option("--look-ahead", args->look_ahead, "intervals")->check(CLI::Range(1, 1'000'000));
  command->add_option("--devices", args->devices, "devices per instance")->check(CLI::Range(1, 64));
  command->add_option("--accounting", args->accounting, "cost model")->check(CLI::IsMember({"published"}));
  command->add_option("--plan-out", args->plan_out, "write [D, P] of every interval here, JSON");
  command->add_flag("--json", args->as_json, "one JSON object");
  command->footer("Example: parcae simulate --profile gpt2-1.5b.json --trace p3.csv --policy all --notice 1");
  command->callback([args] { simulate(*args); });
}

void add_forecast(CLI::App& app) {
  auto args = std::make_shared<forecast_arguments>();
  auto* command = app.add_subcommand("forecast", "Error tables of the availability forecasts on a trace");
  command->add_option("--trace", args->trace, "file, or KIND:SEED of a generated one: " + names_of(trace_kinds()))
      ->required();
  command->add_option("--method", args->methods, names_of(method_names()) + " (default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember(method_names()));
  command->add_option("--horizon", args->horizons, "intervals ahead")->delimiter(',')->check(CLI::Range(1, 24));
  command->add_option("--warm-up", args->warm_up, "intervals before the first forecast that counts");
  command->add_flag("--json", args->as_json, "one JSON object");
  command->footer("Example: parcae forecast --trace p3.csv --method last,regime,auto");
  command->callback([args] { forecast(*args); });
}

} // namespace parcae
