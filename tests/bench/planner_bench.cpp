// How long planning takes, and how good the forecasts are that it rests on. Prints figures:
//   trace      a whole trace (the published p3 where it is present, else a generated one), cost tables included
//   live       one decision of a running job of 26 layers: news, forecast, cost tables and plan, at every event
//   decision   one decision of the distribution planner, forecast included, by fleet size, look-ahead and detail
//   forecast   errors of the regime chain and of the last value on the published p3 (its intervals are minutes), by
//              horizon
//   regime     CRPS of the regime chain over that of the best other method on generated traces, by kind
// Fails if one is beyond its bound. Times are of this thread's processor. Options: --quick leaves out
// the largest fleet and the generated traces.

#include "planner/choose/live_plan.hpp"
#include "planner/simulation/simulator.hpp"
#include "planner/simulation/trace_generator.hpp"
#include "tests/bench/figures.hpp"
#include "tests/bench/measure.hpp"
#include "tests/forecast/relative_crps.hpp"
#include "tests/planner/published.hpp"
#include "tests/planner/workloads.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

using namespace parcae;

namespace {

// Of a running job, p99: what conductor_bench allows from a loss to its PREPAREs.
constexpr double decision_limit_ms = 100;

void whole_trace(const profile& workload, const network_profile& network, const fleet_history& history,
                 const char* forecast, std::uint32_t notice, figures& out) {
  const auto begin = thread_ms();
  published_cost costs(workload, network);
  simulator x(workload, costs, history, {policy::liveput, forecast, notice, 12});
  while (!x.done()) {
    x.decide();
    x.advance();
  }
  const auto what = workload.name + ", a trace, " + forecast + ", notice " + std::to_string(notice) + ": ";
  out.note(what + "ms", thread_ms() - begin);
  out.note(what + "samples", x.samples());
}

// 48 layers, depths 4 … 32 in steps of 4, throughput that rises less than linearly with the slots.
profile large_workload(std::uint32_t slots) {
  auto x = made_up::workload(48, 4, 1);
  x.samples_per_s.clear();
  x.min_depth = 4;
  x.max_depth = 32;
  for (std::uint32_t depth = 1; depth <= 48; ++depth)
    if (depth % 4 != 0)
      x.excluded_depths.insert(depth);
  for (std::uint32_t depth = 4; depth <= 32; depth += 4)
    for (std::uint32_t width = 1; width * depth <= slots; ++width)
      x.samples_per_s[{width, depth}] = width * depth / (1 + 0.002 * width + 0.01 * std::abs(depth - 12.0));
  return x;
}

void decisions(std::uint32_t instances, std::uint32_t look_ahead, double detail, figures& out) {
  const auto workload = large_workload(instances);
  const auto network = made_up::network();
  auto options = trace_kind("large");
  options.capacity = instances;
  options.mean_group = std::max(2.0, instances / 40.0);
  options.largest_group = std::max(6u, instances / 8);
  options.mean_join_group = options.mean_group;
  options.hours = 6;
  const auto history = intervals_of(generate_trace(options, 1));
  published_cost costs(workload, network);
  move_table table(workload, costs, instances);
  const auto forecast = make_method("auto");
  std::vector<double> ms;
  interval_state state;
  std::uint32_t held = 0;
  const std::size_t warm = 120, count = instances > 300 ? 160 : 320;
  for (std::size_t i = 0; i < std::min(count, history.size()); ++i) {
    const auto begin = thread_ms();
    forecast->observe(history[i]);
    const fleet_change known{history[i].joined, history[i].lost};
    const auto decision =
        plan_liveput(table, state, held, std::span(&known, 1), forecast->forecast(look_ahead - 1, detail));
    if (i >= warm)
      ms.push_back(thread_ms() - begin);
    state = {decision[0].target, true, false, 0};
    held = history[i].available;
  }
  char what[80];
  std::snprintf(what, sizeof what, "%u instances, %u ahead, detail %g: a decision", instances, look_ahead, detail);
  out.note(what + std::string(", median, ms"), median(ms));
  out.only_shown(what + std::string(", p99, ms"), percentile(ms, 0.99));
}

void live(std::uint32_t instances, figures& out) {
  trace_options options = trace_kind("large");
  options.capacity = instances;
  options.mean_group = std::max(2.0, instances / 40.0);
  options.largest_group = std::max(6u, instances / 8);
  options.mean_join_group = options.mean_group;
  options.hours = 12;
  const auto events = generate_trace(options, 1);
  job_specification job;
  job.global_batch = 512;
  job.micro_batch = 1;
  job.virtual_replicas = 128;
  situation now;
  now.costs.assign(26, {10, 20, 2, 50'000'000, 4'000'000});
  const std::vector<std::uint64_t> state_bytes(26, 150'000'000);
  now.keepers = 1;
  fleet_recorder record("auto", 60);
  std::vector<double> ms;
  for (const auto& event : events) {
    const auto begin = thread_ms();
    const auto seconds = static_cast<double>(event.ms) / 1000;
    record.note({seconds, event.node, 1, event.added, false});
    now.slots += event.added ? 1 : -1;
    const auto decision = decide_by_liveput(job, state_bytes, now, record.forecast(seconds, job.look_ahead - 1));
    if (event.ms > 3'600'000)
      ms.push_back(thread_ms() - begin);
    now.current = {decision.choice.width, decision.choice.depth};
    now.left.assign(now.current.depth, now.current.width);
    now.running = now.current.width > 0;
    if (ms.size() == 200)
      break;
  }
  const auto what = std::to_string(instances) + " instances: a running job's decision, ";
  out.note(what + "median, ms", median(ms));
  out.at_most(what + "p99, ms", percentile(ms, 0.99), decision_limit_ms);
}

// In instances; the difference is that of CRPS to the last value spread by its own past errors, with its 95 % interval.
void forecast_errors_of(const fleet_history& history, figures& out) {
  const std::vector<std::string> methods{"last-spread", "last", "regime"};
  const std::vector<std::size_t> horizons{1, 4, 8, 12};
  const auto rows = evaluate(history, methods, horizons, 30);
  for (std::size_t i = 0; i < horizons.size(); ++i) {
    const auto &spread = rows[i], &last = rows[horizons.size() + i], &chosen = rows[2 * horizons.size() + i];
    const auto what = "p3, " + std::to_string(chosen.horizon) + " ahead: ";
    out.note(what + "mean absolute error of the last value", last.mae);
    out.note(what + "mean absolute error of the regime chain", chosen.mae);
    out.note(what + "CRPS of it less that of last value spread", chosen.difference);
    out.note(what + "the same, from", chosen.difference_low);
    out.note(what + "the same, to", chosen.difference_high);
    out.at_most(what + "CRPS of the regime chain over last value spread", chosen.crps / spread.crps, 1);
  }
}

// Of the mean over the seeds.
void regime(const std::string& kind, figures& out) {
  constexpr std::uint64_t seeds = 5;
  std::map<std::string, double> sum;
  double worst = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const auto relative = relative_crps(intervals_of(generate_trace(trace_kind(kind), seed)));
    for (const auto& [method, value] : relative)
      sum[method] += value;
    worst = std::max(worst, regime_to_best(relative));
  }
  out.only_shown(kind + ": CRPS of the regime chain over the best other method", regime_to_best(sum));
  out.note(kind + ": the same of the trace where it is largest", worst);
}

} // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  figures out;
  if (published::present()) {
    const auto network = published::network();
    const auto history = published::trace("p3");
    for (const char* name : {"gpt2-1.5b", "bert-large", "resnet152", "vgg19", "gpt3-6.7b"}) {
      const auto workload = published::workload(name);
      whole_trace(workload, network, history, "oracle", 0, out);
      for (std::uint32_t notice = 0; notice < 3; ++notice)
        whole_trace(workload, network, history, "auto", notice, out);
    }
  } else {
    whole_trace(large_workload(32), made_up::network(), intervals_of(generate_trace(trace_kind("p3"), 1)), "auto", 0,
                out);
  }
  for (auto instances : {8u, 32u, 64u, 256u, 1024u})
    live(instances, out);
  decisions(32, 12, planning_detail, out);
  decisions(32, 24, planning_detail, out);
  decisions(32, 12, planning_detail / 4, out);
  decisions(256, 12, planning_detail, out);
  if (!quick)
    decisions(1024, 12, planning_detail, out);
  if (published::present())
    forecast_errors_of(published::trace("p3"), out);
  if (!quick)
    for (const auto& kind : trace_kinds())
      regime(kind, out);
  return out.status();
}
