#include "runtime/simulate/serve_command.hpp"

#include "planner/cost/cost_model.hpp"
#include "planner/cost/profile.hpp"
#include "runtime/process/usage.hpp"
#include "runtime/simulate/trace_input.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>

namespace parcae {

namespace {

serving::arrival_list arrivals_of(const serve_arguments& args, double end_ms) {
  try {
    if (const auto law = serving::parse_arrival_law(args.arrivals))
      return serving::draw_arrivals(*law, args.usual, end_ms, args.seed);
  } catch (const parse_error& e) {
    throw std::invalid_argument(std::string("--arrivals ") + e.what());
  }
  if (!std::filesystem::exists(args.arrivals))
    throw std::runtime_error(args.arrivals + " cannot be opened; arrivals are a file, poisson:RATE or gamma:RATE,CV");
  return from_file(args.arrivals, [&](const std::string& text) { return serving::parse_arrivals(text, args.usual); });
}

// The model's times, in either of both forms.
void read_profile(const std::string& path, serving::service_world& world) {
  from_file(path, [&](const std::string& text) {
    if (serving::is_passes(text)) {
      world.model = serving::parse_passes(text);
    } else {
      world.profile = serving::parse_serving_profile(text);
      world.model = serving::passes_of(*world.profile);
    }
    return true;
  });
}

serving::service_world read_world(const serve_arguments& args, std::string& accounting) {
  serving::service_world world;
  read_profile(args.profile, world);
  world.fleet = load_trace(args.trace).intervals;
  const double end_s = world.fleet.back().seconds + interval_s;
  world.end_ms = end_s * 1000;
  world.arrivals = arrivals_of(args, world.end_ms);
  const auto in_time = std::ranges::count_if(world.arrivals, [&](const auto& x) { return x.ms < world.end_ms; });
  if (in_time == 0)
    throw std::runtime_error("no request comes before " + args.trace + " ends");
  world.slots_each = args.devices;
  world.least_slots = args.least_slots;
  world.asked_per_s = args.asked.value_or(static_cast<double>(in_time) / end_s);
  world.limits = {args.requests.value_or(world.model.max_decoding), args.chunk};
  world.max_batch = args.batch;
  world.new_tokens = args.usual.tokens;
  world.seed = args.seed;
  if (accounting.empty())
    accounting = world.profile ? "published" : "realistic";
  if (accounting == "realistic")
    world.changes = {static_cast<double>(args.stall.count()),
                     args.link_bytes_per_ms.value_or(change_figures{}.link_bytes_per_ms)};
  else if (args.link_bytes_per_ms)
    throw std::invalid_argument("--link needs --accounting realistic: as published, changes are free");
  return world;
}

std::vector<std::string> policies_of(const std::vector<std::string>& asked, bool has_profile) {
  auto result = asked;
  if (result.empty() || std::ranges::find(result, "all") != result.end()) {
    result = serve_policies();
    if (!has_profile) {
      std::fprintf(stderr, "without spotserve: it needs a profile of SpotServe's\n");
      std::erase(result, "spotserve");
    }
  }
  return result;
}

} // namespace

std::vector<std::string> serve_policies() {
  return {"spotserve", "service"};
}

void add_serve_options(CLI::App& command, serve_arguments& args) {
  command.add_flag("--serve", args.is_on, "a model is served, not trained: latencies and costs of requests");
  command.add_option("--arrivals", args.arrivals,
                     "of a served model: file (seconds[,prompt[,tokens]], or SpotServe's), poisson:RATE or "
                     "gamma:RATE,CV, requests a second");
  command
      .add_option("--batches", args.batches,
                  "of a served model: static or continuous (default: static under the policy spotserve)")
      ->check(CLI::IsMember({"static", "continuous"}));
  command.add_option("--asked", args.asked, "of a served model: requests a second to plan with (default: as come)")
      ->check(CLI::PositiveNumber);
  command.add_option("--least-slots", args.least_slots, "of a served model: of a pipeline, as it fits no fewer")
      ->capture_default_str()
      ->check(CLI::Range(1u, 4096u));
  command.add_option("--prompt", args.usual.prompt, "of a served model: positions, where the arrivals do not say")
      ->capture_default_str()
      ->check(CLI::Range(1u, 1u << 20));
  command.add_option("--tokens", args.usual.tokens, "of a served model: new ones, likewise")
      ->capture_default_str()
      ->check(CLI::Range(1u, 1u << 20));
  command
      .add_option("--requests", args.requests,
                  "of a served model: in a pipeline at once (default: as many as were measured)")
      ->check(CLI::Range(1u, 4096u));
  command.add_option("--chunk", args.chunk, "of a served model: rows of prompts in a pass")
      ->capture_default_str()
      ->check(CLI::Range(1u, 65'536u));
  command.add_option("--batch", args.batch, "of a served model: requests in a static batch, at most")
      ->capture_default_str()
      ->check(CLI::Range(1u, 4096u));
  add_duration(command, "--stall", args.stall,
               "of a served model, realistic accounting: of a change, besides what moves (default 4ms, as training's)");
  command.add_option("--price", args.price, "of a served model: of an instance, US-dollars an hour")
      ->check(CLI::PositiveNumber);
  command.add_option("--seed", args.seed, "of a served model: of arrivals and losses that are drawn")
      ->capture_default_str();
}

void simulate_serving(const serve_arguments& args, const std::vector<std::string>& policies, bool as_json) {
  if (args.profile.empty() || args.trace.empty() || args.arrivals.empty())
    throw std::invalid_argument("--serve needs --profile, --trace and --arrivals, such as --arrivals poisson:0.35");
  const auto known = serve_policies();
  for (const auto& name : policies)
    if (name != "all" && std::ranges::find(known, name) == known.end())
      throw std::invalid_argument("--policy " + name + " is for training; of a served model it may be " +
                                  names_of(known));
  auto accounting = args.accounting;
  const auto world = read_world(args, accounting);
  std::vector<serve_run> runs;
  for (const auto& name : policies_of(policies, world.profile.has_value())) {
    const bool spotserve = name == "spotserve";
    const auto kind = !args.batches.empty() ? args.batches : spotserve ? "static" : "continuous";
    if (!world.profile && (spotserve || kind == "static"))
      throw std::runtime_error(args.profile + " has passes; " +
                               (spotserve ? "--policy spotserve needs" : "static batches need") +
                               " a profile of SpotServe's");
    runs.push_back({name, kind,
                    serving::simulate_service(
                        world, spotserve ? serving::service_policy::spotserve : serving::service_policy::service,
                        kind == "static" ? serving::batch_kind::fixed : serving::batch_kind::continuous)});
  }
  const serve_setting setting{world.model.name, args.trace,        args.arrivals,
                              accounting,       world.asked_per_s, runs.front().result.requests.size(),
                              args.price};
  if (as_json)
    std::printf("%s\n", boost::json::serialize(to_json(setting, runs)).c_str());
  else
    std::fputs(to_table(setting, runs).c_str(), stdout);
}

} // namespace parcae
