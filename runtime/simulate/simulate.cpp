#include "runtime/simulate/simulate.hpp"

#include "planner/simulation/peers.hpp"
#include "planner/simulation/simulator.hpp"
#include "planner/simulation/trace_generator.hpp"
#include "protocols/base/duration.hpp"
#include "runtime/process/usage.hpp"
#include "runtime/simulate/market_command.hpp"
#include "runtime/simulate/serve_command.hpp"
#include "runtime/simulate/simulation_report.hpp"
#include "runtime/simulate/trace_input.hpp"

#include <boost/json.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>

namespace parcae {

namespace {

constexpr peer_kind peer_kinds[] = {peer_kind::varuna, peer_kind::bamboo, peer_kind::oobleck};

struct simulate_arguments {
  std::string profile;
  std::string trace;
  std::string network;
  std::string peers;
  std::string peer_model;
  std::vector<std::string> policies; // none: the usual ones
  std::string forecast = "auto";
  std::optional<std::uint32_t> notice; // once all is read: none if it is the trace that gives notices
  std::uint32_t look_ahead = 12;
  std::uint32_t devices = 1;
  std::string accounting;                       // by default the profile's
  std::optional<double> link_bytes_per_ms;      // else the profile's
  std::optional<std::uint32_t> keepers, copies; // else one
  bool feed = false;
  bool processors = false;
  double told_ms = 0; // once all is read: the shortest notice that counts
  std::optional<std::chrono::milliseconds> detect;
  std::optional<std::chrono::milliseconds> node_start;
  std::string plan_out;
  std::string plot;
  bool as_json = false;
  market_arguments market;
  serve_arguments serve;
};

// What a run needs, read once.
struct simulation_input {
  profile workload;
  network_profile network;
  trace_input trace;
  std::vector<peer_model> peers; // empty if there are none
};

policy policy_of(const std::string& name) {
  if (name == "ideal")
    return policy::ideal;
  return name == "throughput" ? policy::throughput : policy::liveput;
}

// The figures that no option gives are the profile's.
realistic_options realistic_of(const simulate_arguments& args, const profile& workload) {
  realistic_options result;
  result.announced = args.notice.value_or(0) > 0;
  result.devices = args.devices;
  result.figures = figures_of(workload);
  if (args.link_bytes_per_ms)
    result.figures.link_bytes_per_ms = *args.link_bytes_per_ms;
  result.figures.detect_ms = args.detect ? static_cast<double>(args.detect->count()) : vanished_ms;
  result.kept.keepers = args.keepers.value_or(1);
  result.kept.copies = args.copies.value_or(1);
  result.kept.processors = args.processors;
  result.feed = args.feed;
  result.notice_ms = args.notice.value_or(0) > 0 ? *args.notice * 1000 * interval_s : args.told_ms;
  return result;
}

// The end of the interval that was just carried out, which is the beginning of the next.
policy_run::moment end_of(const simulator& x, const fleet_history& history) {
  const auto count = x.intervals().size();
  const double seconds = count < history.size() ? history[count].seconds : history.back().seconds + interval_s;
  return {seconds / 3600, x.intervals().back().used, x.samples(), x.ideal()};
}

policy_run run_policy(const simulate_arguments& args, const std::string& name, const simulation_input& input) {
  using clock = std::chrono::steady_clock;
  const auto& history = input.trace.intervals;
  policy_run run;
  run.policy = name;
  const simulation_options options{policy_of(name), args.forecast, args.notice.value_or(0), args.look_ahead};
  if (options.policy == policy::liveput)
    run.forecast = args.forecast;
  const bool real_time = args.accounting == "realistic";
  // The cost tables count as planning: they are filled as decisions need them.
  const auto begin = clock::now();
  std::unique_ptr<published_cost> published;
  std::unique_ptr<simulator> x;
  if (real_time) {
    x = std::make_unique<simulator>(input.workload, realistic_of(args, input.workload), history, options);
  } else {
    published = std::make_unique<published_cost>(input.workload, input.network, args.devices);
    x = std::make_unique<simulator>(input.workload, *published, history, options);
  }
  run.plan_total_ms = std::chrono::duration<double, std::milli>(clock::now() - begin).count();
  double seconds = 0;
  while (!x->done()) {
    const auto start = clock::now();
    x->decide();
    run.plan_ms.push_back(std::chrono::duration<double, std::milli>(clock::now() - start).count());
    run.plan_total_ms += run.plan_ms.back();
    seconds += x->seconds(x->intervals().size());
    x->advance();
    const auto end = end_of(*x, history);
    if (run.course.empty())
      run.course.push_back({history[0].seconds / 3600, {}, 0, 0});
    run.course.back().used = end.used; // from its beginning
    run.course.push_back(end);
  }
  std::sort(run.plan_ms.begin(), run.plan_ms.end());
  run.samples = x->samples();
  run.samples_per_s = seconds > 0 ? run.samples / seconds : 0;
  run.ideal = x->ideal();
  run.migrations = x->migrations();
  if (real_time)
    run.lost = x->lost();
  return run;
}

policy_run run_peer(const simulate_arguments& args, peer_kind kind, const peer_model& model,
                    const std::vector<trace_event>& events) {
  const auto rules = args.accounting == "published" ? peer_rules::published(model.name) : peer_rules{};
  const auto x = replay_peer(kind, model, events, rules);
  policy_run run;
  run.policy = to_string(kind);
  run.samples = x.samples;
  run.samples_per_s = x.samples_per_s;
  const auto ideal = ideal_progress(model, events);
  run.ideal = ideal.back().samples;
  run.migrations = x.regroupings;
  run.published_samples_per_s = model.systems.at(run.policy).published_samples_per_s;
  run.course.push_back({});
  for (const auto& moment : x.progress)
    run.course.push_back({moment.seconds / 3600, {}, moment.samples, samples_at(ideal, moment.seconds)});
  run.course.push_back({ideal.back().seconds / 3600, {}, x.samples, run.ideal});
  return run;
}

void write_plan(const std::string& path, const policy_run& run) {
  boost::json::array plan;
  for (std::size_t i = 0; i + 1 < run.course.size(); ++i)
    plan.push_back(boost::json::array{run.course[i].used.width, run.course[i].used.depth});
  std::ofstream file(path);
  file << boost::json::serialize(plan) << '\n';
  if (!file.flush())
    throw std::runtime_error("cannot write the plan to " + path);
}

std::filesystem::path beside(const std::string& profile, const char* name) {
  return std::filesystem::path(profile).parent_path() / name;
}

// Why the peers cannot be run; empty if they can. The model is set if it is known.
std::string peers_missing(const simulate_arguments& args, const simulation_input& input, const peer_model*& model) {
  if (input.trace.events.empty())
    return "need a trace of events, not of counts";
  if (args.devices > 1)
    return "have one device per instance";
  std::vector<std::string> names;
  for (const auto& x : input.peers) {
    names.push_back(x.name);
    if (x.name == args.peer_model)
      model = &x;
  }
  if (model) {
    std::vector<std::string> lacks;
    for (const auto kind : peer_kinds)
      if (!model->systems.contains(to_string(kind)))
        lacks.push_back(to_string(kind));
    return lacks.empty() ? "" : "have no figures of " + names_of(lacks) + " for " + model->name + " in " + args.peers;
  }
  return "have no figures for " + args.peer_model +
         (names.empty() ? "; --peers FILE may be the project's deploy/profiles/peers-oobleck-artifact.json"
                        : "; --peer-model may be " + names_of(names));
}

void check_accounting(const simulate_arguments& args) {
  const bool real_time = args.link_bytes_per_ms || args.detect || args.node_start || args.keepers || args.copies ||
                         args.feed || args.processors;
  if (args.accounting != "realistic" && real_time)
    throw std::invalid_argument("--link, --detect, --node-start, --keepers, --copies, --feed and --processors need "
                                "--accounting realistic");
  if (args.accounting == "realistic" && !args.network.empty())
    throw std::invalid_argument("--network needs --accounting published; --link tells the rate of a link");
}

double shortest_notice_ms(const std::vector<trace_event>& events, double least_ms) {
  double result = 0;
  for (const auto& x : events)
    if (const auto ms = static_cast<double>(x.notice_ms); ms > 0 && ms >= least_ms)
      result = result > 0 ? std::min(result, ms) : ms;
  return result;
}

// The trace's intervals, in real time as training lives through them. Sets `notice` unless it is the trace that gives
// notices. Notice for which the new configuration cannot be made ready is none.
fleet_history intervals_used(simulate_arguments& args, const simulation_input& input) {
  const auto& events = input.trace.events;
  if (args.node_start && events.empty())
    throw std::invalid_argument("--node-start needs a trace of events");
  const bool real_time = args.accounting == "realistic";
  const auto longest_ms = longest_notice_ms(events);
  const double least_ms = making_ready_ms(realistic_of(args, input.workload).figures);
  args.told_ms = shortest_notice_ms(events, least_ms);
  const bool in_time = longest_ms > 0 && static_cast<double>(longest_ms) >= least_ms;
  if (longest_ms > 0 && !args.notice && !real_time)
    std::fprintf(stderr, "as published, --notice 0 is what is known: the trace's own notices need --accounting "
                         "realistic\n");
  else if (longest_ms > 0 && !args.notice && !in_time)
    std::fprintf(stderr,
                 "the trace's notices are shorter than the %.0f ms in which a change is made ready: they count "
                 "as none\n",
                 least_ms);
  if (!args.notice && !(in_time && real_time))
    args.notice = 0;
  if (events.empty() || !real_time)
    return input.trace.intervals;
  return lived_intervals(events, input.trace.intervals,
                         args.node_start ? std::optional(static_cast<std::uint64_t>(args.node_start->count()))
                                         : std::nullopt,
                         args.notice ? std::nullopt : std::optional(least_ms));
}

simulation_input read_input(simulate_arguments& args) {
  if (!args.accounting.empty())
    check_accounting(args);
  simulation_input result;
  result.workload = from_file(args.profile, [](const std::string& text) { return parse_profile(text); });
  if (args.accounting.empty()) {
    args.accounting = result.workload.changes ? "realistic" : "published";
    check_accounting(args);
  }
  if (args.accounting == "published") {
    if (args.network.empty()) {
      args.network = beside(args.profile, "network-10gbps.json").string();
      if (!std::filesystem::exists(args.network))
        throw std::invalid_argument("no " + args.network + ": give --network FILE, or --accounting realistic");
    }
    result.network = from_file(args.network, [](const std::string& text) { return parse_network(text); });
  }
  result.trace = load_trace(args.trace);
  result.trace.intervals = intervals_used(args, result);
  const bool asked = !args.peers.empty();
  if (!asked)
    args.peers = beside(args.profile, "peers-oobleck-artifact.json").string();
  if (asked || std::filesystem::exists(args.peers))
    result.peers = from_file(args.peers, [](const std::string& text) { return parse_peers(text); });
  if (args.peer_model.empty())
    args.peer_model = result.workload.name;
  return result;
}

// Those that are about a model that is served.
void serve(simulate_arguments& args) {
  if (!args.plot.empty() || !args.plan_out.empty())
    throw std::invalid_argument("--plot and --plan-out are of training; --serve has --json");
  args.serve.profile = args.profile;
  args.serve.trace = args.trace;
  args.serve.accounting = args.accounting;
  args.serve.link_bytes_per_ms = args.link_bytes_per_ms;
  args.serve.devices = args.devices;
  simulate_serving(args.serve, args.policies, args.as_json);
}

void refuse_others(const simulate_arguments& args, const std::vector<std::string>& others, const char* what) {
  for (const auto& name : others)
    if (std::ranges::find(args.policies, name) != args.policies.end())
      throw std::invalid_argument("--policy " + name + " is for " + what);
}

void simulate(simulate_arguments args) {
  if (args.serve.is_on && !args.market.file.empty())
    throw std::invalid_argument("--serve and --market exclude each other");
  if (args.serve.is_on)
    return serve(args);
  refuse_others(args, serve_policies(), "models that are served: --serve");
  if (!args.serve.arrivals.empty())
    throw std::invalid_argument("--arrivals is of a model that is served: --serve");
  if (!args.market.file.empty()) {
    if (!args.trace.empty())
      throw std::invalid_argument("--trace and --market exclude each other: a market's pools have their histories");
    if (args.policies.empty())
      args.policies = {"all"};
    args.market.link_bytes_per_ms = args.link_bytes_per_ms;
    return simulate_market(args.market, args.policies, args.profile, args.plot, args.as_json);
  }
  if (args.trace.empty() || args.profile.empty())
    throw CLI::RequiredError("--profile with --trace, or --market with --deadline");
  if (args.policies.empty())
    args.policies = {"liveput"};
  refuse_others(args, market_policies(), "markets: --market FILE");
  const auto input = read_input(args);
  const peer_model* model = nullptr;
  const auto missing = peers_missing(args, input, model);
  auto names = args.policies;
  if (std::find(names.begin(), names.end(), "all") != names.end()) {
    names = {"ideal", "throughput", "liveput"};
    if (missing.empty())
      for (const auto kind : peer_kinds)
        names.push_back(to_string(kind));
    else
      std::fprintf(stderr, "without varuna, bamboo, oobleck: they %s\n", missing.c_str());
  }
  if (!args.plan_out.empty() && (names.size() != 1 || parse_peer_kind(names[0])))
    throw std::invalid_argument("--plan-out needs exactly one policy of this project");
  std::vector<policy_run> runs;
  for (const auto& name : names) {
    const auto peer = parse_peer_kind(name);
    if (!peer) {
      runs.push_back(run_policy(args, name, input));
      if (!args.plan_out.empty())
        write_plan(args.plan_out, runs.back());
      continue;
    }
    if (!missing.empty())
      throw std::runtime_error(name + ": " + "peers " + missing);
    runs.push_back(run_peer(args, *peer, *model, input.trace.events));
  }
  const simulation_setting setting{input.workload.name, args.trace,      args.accounting,
                                   args.notice,         args.look_ahead, input.trace.intervals.size()};
  if (!args.plot.empty())
    plot_runs(args.plot, setting, input.trace.intervals, runs);
  if (args.as_json)
    std::printf("%s\n", boost::json::serialize(to_json(setting, runs)).c_str());
  else
    std::fputs(to_table(runs).c_str(), stdout);
}

using shared_arguments = std::shared_ptr<simulate_arguments>;

// What is replayed, and who plans it.
void add_planning_options(CLI::App& command, const shared_arguments& args) {
  command.add_option("--profile", args->profile, "workload, JSON");
  command.add_option(
      "--trace", args->trace,
      "file (milliseconds,add|remove,node[,notice_ms] or seconds,count), or KIND:SEED of a generated one: " +
          names_of(trace_kinds()));
  command.add_option("--network", args->network,
                     "published accounting: transfer times, JSON (default: network-10gbps.json beside the profile)");
  std::vector<std::string> policies{"ideal", "throughput", "liveput"};
  for (const auto kind : peer_kinds)
    policies.push_back(to_string(kind));
  policies.push_back("all");
  const auto on_markets = market_policies(), of_services = serve_policies();
  const auto text = names_of(policies) +
                    ", or several of them (default: liveput); of a market: " + names_of(on_markets) +
                    "; of a served model: " + names_of(of_services) + " (default: all)";
  policies.insert(policies.end(), on_markets.begin(), on_markets.end());
  policies.insert(policies.end(), of_services.begin(), of_services.end());
  command.add_option("--policy", args->policies, text)->delimiter(',')->check(CLI::IsMember(policies));
  auto forecasts = method_names();
  forecasts.push_back("oracle");
  command.add_option("--forecast", args->forecast, names_of(forecasts) + " (auto is regime)")
      ->capture_default_str()
      ->check(CLI::IsMember(forecasts));
  command
      .add_option("--notice", args->notice,
                  "intervals whose events are known before they are decided on (default: in real time the trace's own "
                  "notices, else 0)")
      ->check(CLI::Range(0, 2));
  command.add_option("--look-ahead", args->look_ahead, "intervals")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  command.add_option("--devices", args->devices, "devices per instance")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
}

void add_accounting_options(CLI::App& command, const shared_arguments& args) {
  command
      .add_option("--accounting", args->accounting,
                  "cost model: published, or realistic (real time; default for profiles of `parcae profile`)")
      ->check(CLI::IsMember({"published", "realistic"}));
  command.add_option_function<std::string>(
      "--link",
      [args](const std::string& text) {
        const auto rate = parse_link_rate(text);
        if (!rate)
          throw CLI::ValidationError("--link", "\"" + text + "\" must be like 10Gb/s, 500Mb/s or 1.2GB/s");
        args->link_bytes_per_ms = *rate;
      },
      "realistic accounting: rate of an instance's link in each direction (default: the profile's, else 10Gb/s)");
  add_duration(command, "--detect", args->detect,
               "realistic accounting: until a loss without notice is known (default 1050ms)");
  add_duration(command, "--node-start", args->node_start,
               "realistic accounting: from a node's addition until it can work (default 0s; peers always take 45s)");
}

void add_state_options(CLI::App& command, const shared_arguments& args) {
  command
      .add_option("--keepers", args->keepers,
                  "realistic accounting: keepers, of which each has a link like an instance's (default 1)")
      ->check(CLI::Range(1, 100'000));
  command.add_option("--copies", args->copies, "realistic accounting: keepers that hold each layer (default 1)")
      ->check(CLI::Range(1, 100));
  command.add_flag("--feed", args->feed,
                   "realistic accounting: as if state went ahead of joins and announced losses, kept up to date while "
                   "the old configuration trains (the system does not do so)");
  command.add_flag("--processors", args->processors,
                   "realistic accounting: ranks are processors, which stand still while they copy a snapshot (default: "
                   "devices, which copy behind a step)");
}

void add_peer_and_output_options(CLI::App& command, const shared_arguments& args) {
  command.add_option("--peers", args->peers,
                     "figures of peers, JSON (default: peers-oobleck-artifact.json beside the profile)");
  command.add_option("--peer-model", args->peer_model, "which model of that file (default: named like the profile)");
  command.add_option("--plan-out", args->plan_out, "write [D, P] of every interval here, JSON; of one policy")
      ->check(in_a_folder);
  command
      .add_option("--plot", args->plot,
                  "draw availability, configurations, samples and the lag behind the ideal over time here, SVG")
      ->check(in_a_folder);
  command.add_flag("--json", args->as_json, "one JSON object");
}

} // namespace

void add_simulate(CLI::App& app) {
  auto args = std::make_shared<simulate_arguments>();
  auto* command =
      app.add_subcommand("simulate", "replay a trace under planning policies\nExample: parcae simulate "
                                     "--profile deploy/profiles/gpt.json --trace p3:1 --policy all --peer-model gpt2 "
                                     "--plot p3.svg");
  add_planning_options(*command, args);
  add_accounting_options(*command, args);
  add_state_options(*command, args);
  add_peer_and_output_options(*command, args);
  add_market_options(*command, args->market);
  add_serve_options(*command, args->serve);
  command->callback([args] { simulate(*args); });
}

} // namespace parcae
