#include "runtime/lab/demo_report.hpp"

#include "protocols/base/text.hpp"

#include <boost/json.hpp>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace parcae {

namespace {

constexpr const char* kinds[] = {"intra_stage", "inter_stage", "pipeline"};

std::vector<double> stalls_of(const job_status& x) {
  std::vector<double> result;
  for (const auto& c : x.changes)
    if (c.stall_ms >= 0)
      result.push_back(c.stall_ms);
  return result;
}

double fraction_pipelined(const job_status& x) {
  std::uint64_t all = 0;
  std::uint64_t pipelined = 0;
  for (auto [depth, steps] : x.steps_by_depth) {
    all += steps;
    pipelined += depth >= 2 ? steps : 0;
  }
  return all == 0 ? 0 : static_cast<double>(pipelined) / static_cast<double>(all);
}

// Unknown if the job was nowhere for long enough to see how fast it is there.
std::optional<double> goodput_of(const demo_result& x) {
  if (x.possible_steps > 0)
    return static_cast<double>(x.disturbed.steps_done) / x.possible_steps;
  return std::nullopt;
}

} // namespace

void rate_meter::sample(std::chrono::steady_clock::time_point now,
                        std::pair<std::uint32_t, std::uint32_t> configuration, double step_ms) {
  if (configuration.first > 0)
    in_use_ = configuration;
  auto& use = usage_[in_use_];
  if (last_.time_since_epoch().count() != 0)
    use.time += now - last_;
  last_ = now;
  if (step_ms > 0)
    use.step_ms.push_back(step_ms);
}

double rate_meter::possible_steps() const {
  double all_ms = 0, timed_ms = 0, steps = 0;
  for (const auto& [configuration, use] : usage_) {
    all_ms += use.time.count();
    // The undisturbed rate is what was reached at good moments: others include joins that compete for the cores.
    if (auto step_ms = percentile(use.step_ms, 0.1); step_ms > 0) {
      timed_ms += use.time.count();
      steps += use.time.count() / step_ms;
    }
  }
  return timed_ms > 0 ? steps * all_ms / timed_ms : 0;
}

double percentile(std::vector<double> values, double fraction) {
  if (values.empty())
    return 0;
  std::sort(values.begin(), values.end());
  auto rank = static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(values.size())));
  return values[std::clamp<std::size_t>(rank, 1, values.size()) - 1];
}

bool went_as_planned(const change_status& x) {
  return x.plans == 1 && !x.waited;
}

std::pair<double, std::size_t> prediction_ratio(const job_status& x, const std::string& kind) {
  std::vector<double> ratios;
  for (const auto& c : x.changes)
    if (c.kind == kind && c.stall_ms > 0 && c.predicted_ms > 0 && went_as_planned(c))
      ratios.push_back(c.predicted_ms / c.stall_ms);
  const auto count = ratios.size();
  return {percentile(std::move(ratios), 0.5), count};
}

bool demo_result::identical() const {
  return !disturbed.parameters_sha256.empty() && disturbed.parameters_sha256 == undisturbed.parameters_sha256;
}

std::string json_of(const demo_result& x) {
  const auto goodput = goodput_of(x);
  auto stalls = stalls_of(x.disturbed);
  const auto& detect = x.tally.detect_ms;
  boost::json::array changes;
  for (const auto& c : x.disturbed.changes)
    changes.push_back(boost::json::object{{"kind", c.kind},
                                          {"trigger", c.trigger},
                                          {"configuration", c.configuration},
                                          {"bytes", c.bytes},
                                          {"decided_ms", c.decided_ms},
                                          {"planned_ms", c.planned_ms},
                                          {"prepared_ms", c.prepared_ms},
                                          {"stopped_ms", c.stopped_ms},
                                          {"ready_ms", c.ready_ms},
                                          {"active_ms", c.active_ms},
                                          {"predicted_ms", c.predicted_ms},
                                          {"plans", c.plans},
                                          {"waited", c.waited},
                                          {"measured_ms", c.stall_ms}});
  boost::json::object ratios;
  for (const auto* kind : kinds)
    ratios[kind] = prediction_ratio(x.disturbed, kind).first;
  return boost::json::serialize(boost::json::object{
      {"steps", x.disturbed.steps_done},
      {"samples", x.disturbed.steps_done * x.samples_per_step},
      {"preemptions", x.tally.preemptions},
      {"preemptions_without_notice", x.tally.preemptions_without_notice},
      {"simultaneous_losses", x.tally.simultaneous_losses},
      {"losses_during_change", x.tally.losses_during_change},
      {"stage_losses", x.tally.stage_losses},
      {"joins", x.tally.joins},
      {"trace_changes_left", x.tally.trace_left},
      {"generation_changes", x.disturbed.change_count},
      {"share_of_steps_pipelined", fraction_pipelined(x.disturbed)},
      {"goodput", goodput ? boost::json::value(*goodput) : boost::json::value()},
      {"stall_ms",
       {{"p50", percentile(stalls, 0.5)}, {"p99", percentile(stalls, 0.99)}, {"max", percentile(stalls, 1)}}},
      {"detect_ms", {{"p50", percentile(detect, 0.5)}, {"max", percentile(detect, 1)}}},
      {"lost_steps", x.disturbed.replayed_steps},
      {"migrations",
       {{"intra_stage", x.disturbed.migrations.intra_stage},
        {"inter_stage", x.disturbed.migrations.inter_stage},
        {"pipeline", x.disturbed.migrations.pipeline}}},
      {"policy", x.policy},
      {"decisions", x.disturbed.decision_count},
      {"changes", std::move(changes)},
      {"predicted_over_measured", std::move(ratios)},
      {"final_loss", x.disturbed.loss},
      {"parameters_sha256", x.disturbed.parameters_sha256},
      {"undisturbed_parameters_sha256", x.undisturbed.parameters_sha256},
      {"identical", x.identical()},
      {"seed", x.seed},
      {"wall_s", x.wall_s},
  });
}

std::string to_string(const demo_result& x) {
  const auto goodput = goodput_of(x);
  const auto& d = x.disturbed;
  auto stalls = stalls_of(d);
  std::string out = fmt::format("{} ({} samples) in {:.0f} s through {}, {} of them without notice, and {}\n",
                                counted(d.steps_done, "step"), d.steps_done * x.samples_per_step, x.wall_s,
                                counted(x.tally.preemptions, "preemption"), x.tally.preemptions_without_notice,
                                counted(x.tally.joins, "join"));
  out += fmt::format("{} at the same moment, {} during a change, {} took all replicas of a stage\n",
                     x.tally.simultaneous_losses, x.tally.losses_during_change, x.tally.stage_losses);
  if (x.tally.trace_left > 0)
    out +=
        fmt::format("the job ended {} before the end of the trace; more --steps, or a higher --speed, see all of it\n",
                    counted(x.tally.trace_left, "change"));
  out += fmt::format("{} of generation: {} intra-stage, {} inter-stage, {} pipeline; {} replayed\n",
                     counted(d.change_count, "change"), d.migrations.intra_stage, d.migrations.inter_stage,
                     d.migrations.pipeline, counted(d.replayed_steps, "step"));
  out += fmt::format("stall {:.0f} ms (median), {:.0f} ms (worst); loss seen after {:.1f} ms (median); goodput {}\n",
                     percentile(stalls, 0.5), percentile(stalls, 1), percentile(x.tally.detect_ms, 0.5),
                     goodput ? fmt::format("{:.0f} %", 100 * *goodput) : "unknown");
  out += fmt::format("{} decisions by {}; stall predicted / measured (median, of how many changes):", d.decision_count,
                     x.policy);
  for (const auto* kind : kinds) {
    const auto [ratio, count] = prediction_ratio(d, kind);
    out += fmt::format("{} {} {:.2f} ({})", kind == kinds[0] ? "" : ",", kind, ratio, count);
  }
  const auto anew = std::ranges::count_if(d.changes, [](const auto& c) { return !went_as_planned(c); });
  if (anew > 0)
    out += fmt::format("; {} left out: planned again on the way, or had to wait for instances", anew);
  out += '\n';
  out += fmt::format("final loss {:.4f}\nparameters  {}\nundisturbed {}\n{}\n", d.loss, d.parameters_sha256,
                     x.undisturbed.parameters_sha256, x.identical() ? "identical" : "DIFFERENT");
  return out;
}

} // namespace parcae
