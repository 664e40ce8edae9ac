#include "runtime/lab/stall_report.hpp"

#include "protocols/base/enum_text.hpp"

#include <boost/json.hpp>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <utility>

namespace parcae {

namespace {

namespace json = boost::json;

struct cause {
  double step_causes::*ms;
  const char* name;
};
constexpr std::array causes{cause{&step_causes::computing_ms, "computing"},
                            cause{&step_causes::core_ms, "waiting for a core"},
                            cause{&step_causes::data_ms, "data"},
                            cause{&step_causes::pipeline_ms, "waiting for a stage"},
                            cause{&step_causes::activations_ms, "activations"},
                            cause{&step_causes::reduction_ms, "reduction"},
                            cause{&step_causes::exchange_ms, "commit exchange"},
                            cause{&step_causes::snapshot_ms, "snapshot copies"},
                            cause{&step_causes::other_ms, "other"}};

/// The clock is read when steps are heard of, and a machine is not as fast in one minute as in another.
constexpr double allowed_share = 0.05, allowed_least_ms = 0.3;

step_causes less(const step_causes& a, const step_causes& b) {
  step_causes result;
  for (const auto& x : causes)
    result.*x.ms = a.*x.ms - b.*x.ms;
  return result;
}

step_stall difference(std::string kind, const stall_run& with, const stall_run& without) {
  step_stall result;
  result.kind = std::move(kind);
  result.width = with.width;
  result.depth = with.depth;
  result.by_runs_ms = with.step_ms - without.step_ms;
  result.by_cause = less(with.causes, without.causes);
  result.allowed_ms = std::max(allowed_least_ms, allowed_share * std::max(with.step_ms, without.step_ms));
  result.explained = std::abs(result.by_runs_ms - total_ms(result.by_cause)) <= result.allowed_ms;
  return result;
}

const stall_run* find(const std::vector<stall_run>& runs, std::uint32_t width, std::uint32_t depth,
                      sample_origin samples, bool over_hosts) {
  const auto i = std::ranges::find_if(runs, [&](const stall_run& x) {
    return std::tuple(x.width, x.depth, x.samples, x.over_hosts) == std::tuple(width, depth, samples, over_hosts);
  });
  return i == runs.end() ? nullptr : &*i;
}

std::string shape_of(std::uint32_t width, std::uint32_t depth) {
  return fmt::format("{}×{}", width, depth);
}

/// The two causes that there is most more of.
std::string mostly(const step_causes& x) {
  auto sorted = causes;
  std::ranges::stable_sort(sorted, [&](const auto& a, const auto& b) { return x.*a.ms > x.*b.ms; });
  std::string result;
  for (const auto& c : {sorted[0], sorted[1]})
    if (x.*c.ms >= 0.05) // else it is shown as 0.0
      result += fmt::format("{}{} {:.1f}", result.empty() ? "" : ", ", c.name, x.*c.ms);
  return result;
}

std::string title_of(const stall_measurements& x, const stall_run& first) {
  const auto where = first.over_hosts ? fmt::format("each slot behind a link of {:g} Mb/s", x.link_bytes_per_s * 8e-6)
                                      : std::string("all slots on one host");
  switch (first.samples) {
  case sample_origin::made_up:
    return where + ", samples made up";
  case sample_origin::cached:
    return where + ", samples cached";
  case sample_origin::cold:
    return where + ", samples cold";
  }
  return where;
}

/// Runs that differ in their shape alone.
std::string table_of(const stall_measurements& x, const std::vector<const stall_run*>& runs) {
  auto result = fmt::format("{}: ms of a step\n  {:<20}", title_of(x, *runs.front()), "");
  for (const auto* run : runs)
    result += fmt::format("{:>10}", shape_of(run->width, run->depth));
  result += "\n";
  const auto row = [&](const char* name, const auto& ms_of) {
    result += fmt::format("  {:<20}", name);
    for (const auto* run : runs)
      result += fmt::format("{:>10.1f}", ms_of(*run));
    result += "\n";
  };
  for (const auto& c : causes)
    row(c.name, [&](const stall_run& run) { return run.causes.*c.ms; });
  row("together", [](const stall_run& run) { return total_ms(run.causes); });
  row("by the clock", [](const stall_run& run) { return run.step_ms; });
  return result + "\n";
}

json::object json_of(const step_stall& x) {
  const auto sum = total_ms(x.by_cause);
  return {{"kind", x.kind},
          {"width", x.width},
          {"depth", x.depth},
          {"by_runs_ms", x.by_runs_ms},
          {"by_causes_ms", sum},
          {"unexplained_ms", x.by_runs_ms - sum},
          {"allowed_ms", x.allowed_ms},
          {"explained", x.explained},
          {"causes", json::value_from(x.by_cause)}};
}

} // namespace

step_causes causes_of(const step_parts& x) {
  return {x.forward_ms + x.backward_ms + x.recompute_ms + x.optimizer_ms,
          x.core_ms,
          x.data_ms,
          x.pipeline_ms,
          x.transfer_ms,
          x.reduction_ms,
          x.exchange_ms,
          x.snapshot_ms,
          x.other_ms};
}

double total_ms(const step_causes& x) {
  double result = 0;
  for (const auto& c : causes)
    result += x.*c.ms;
  return result;
}

std::vector<step_stall> stalls_of(const std::vector<stall_run>& runs) {
  // What the others are compared with: no file is read there, if that can be.
  const auto plain = find(runs, 1, 1, sample_origin::made_up, false) ? sample_origin::made_up : sample_origin::cached;
  const auto* alone = find(runs, 1, 1, plain, false);
  std::vector<step_stall> result;
  const auto add = [&](const char* kind, const stall_run* with, const stall_run* without) {
    if (with && without)
      result.push_back(difference(kind, *with, *without));
  };
  for (const auto& x : runs)
    if (!x.over_hosts && x.samples == plain && x.width * x.depth > 1)
      add("interconnect", &x, alone);
  for (const auto& x : runs)
    if (x.over_hosts)
      add("network", &x, find(runs, x.width, x.depth, x.samples, false));
  for (const auto& [kind, with, without] : {std::tuple("preparation", sample_origin::cached, sample_origin::made_up),
                                            std::tuple("fetch", sample_origin::cold, sample_origin::cached)})
    for (const auto& x : runs)
      if (!x.over_hosts && x.samples == with)
        add(kind, &x, find(runs, x.width, x.depth, without, false));
  return result;
}

json::object to_json(const stall_measurements& x) {
  json::array runs, stalls, remarks;
  for (const auto& run : x.runs)
    runs.push_back({{"width", run.width},
                    {"depth", run.depth},
                    {"samples", enum_name(run.samples)},
                    {"hosts", run.over_hosts ? run.width * run.depth : 1},
                    {"step_ms", run.step_ms},
                    {"steps", run.steps},
                    {"traced_steps", run.traced},
                    {"gradient_bytes", run.gradient_bytes},
                    {"causes", json::value_from(run.causes)}});
  for (const auto& stall : stalls_of(x.runs))
    stalls.push_back(json_of(stall));
  for (const auto& remark : x.remarks)
    remarks.push_back(json::string(remark));
  return {{"job", x.job},
          {"link_bytes_per_s", x.link_bytes_per_s > 0 ? json::value(x.link_bytes_per_s) : json::value(nullptr)},
          {"runs", std::move(runs)},
          {"stalls", std::move(stalls)},
          {"remarks", std::move(remarks)}};
}

std::string to_string(const stall_measurements& x) {
  std::string result;
  for (const bool over_hosts : {false, true})
    for (const auto samples : {sample_origin::made_up, sample_origin::cached, sample_origin::cold}) {
      std::vector<const stall_run*> alike;
      for (const auto& run : x.runs)
        if (run.over_hosts == over_hosts && run.samples == samples)
          alike.push_back(&run);
      if (!alike.empty())
        result += table_of(x, alike);
    }
  result += fmt::format("stalls, ms of a step    {:>10}{:>12}   {}\n", "by runs", "by causes", "mostly");
  for (const auto& stall : stalls_of(x.runs))
    result += fmt::format(
        "  {:<13}{:<9}{:>10.1f}{:>12.1f}   {}{}\n", stall.kind, shape_of(stall.width, stall.depth), stall.by_runs_ms,
        total_ms(stall.by_cause), mostly(stall.by_cause),
        stall.explained ? "" : fmt::format(" (not explained: the two differ by more than {:.1f})", stall.allowed_ms));
  for (const auto& remark : x.remarks)
    result += remark + "\n";
  return result;
}

} // namespace parcae
