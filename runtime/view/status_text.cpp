#include "runtime/view/status_text.hpp"

#include "protocols/base/duration.hpp"
#include "protocols/base/text.hpp"
#include "runtime/view/printable_status.hpp"
#include "runtime/view/watch_events.hpp"

#include <boost/json.hpp>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

namespace parcae {

namespace {

namespace json = boost::json;

constexpr std::size_t decisions_shown = 3; // the newest, to people
constexpr std::size_t lines_shown = 8;     // of a failure

std::string incarnation_text(std::uint64_t x) {
  return fmt::format("{:016x}", x);
}

json::object object_of(const instance_status& x) {
  return {{"name", x.name},
          {"incarnation", incarnation_text(x.incarnation)},
          {"role", x.role},
          {"state", x.state},
          {"slots", x.slots},
          {"host", x.host},
          {"port", x.port},
          {"processor", x.processor},
          {"age_ms", x.age_ms},
          {"expires_in_ms", x.expires_in_ms},
          {"lost_at_us", x.lost_at_us}};
}

json::object object_of(const change_status& x) {
  return {{"number", x.number},
          {"to", x.to},
          {"trigger", x.trigger},
          {"configuration", x.configuration},
          {"kind", x.kind},
          {"bytes", x.bytes},
          {"replayed_steps", x.replayed_steps},
          {"decided_ms", x.decided_ms},
          {"planned_ms", x.planned_ms},
          {"prepared_ms", x.prepared_ms},
          {"stopped_ms", x.stopped_ms},
          {"ready_ms", x.ready_ms},
          {"active_ms", x.active_ms},
          {"first_commit_ms", x.first_commit_ms},
          {"stall_ms", x.stall_ms},
          {"predicted_ms", x.predicted_ms},
          {"plans", x.plans},
          {"waited", x.waited},
          {"at_us", x.at_us}};
}

json::object object_of(const weighed_choice& x) {
  return {{"configuration", x.configuration}, {"samples", x.samples}};
}

json::object object_of(const forecast_outlook& x) {
  return {{"mean", x.mean}, {"low", x.low}, {"high", x.high}};
}

json::object object_of(const configuration_status& x) {
  const bool measured = x.measured_steps > 0;
  return {{"width", x.width},
          {"depth", x.depth},
          {"predicted_samples_per_s", x.predicted_samples_per_s},
          {"measured_samples_per_s", measured ? json::value(x.samples_per_s) : json::value(nullptr)},
          {"measured_by", !measured ? json::value(nullptr) : json::value(x.measured_by_cpu ? "cpu" : "clock")},
          {"samples_per_s", x.samples_per_s},
          {"low_samples_per_s", x.low_samples_per_s},
          {"high_samples_per_s", x.high_samples_per_s},
          {"steps", x.measured_steps},
          {"visits", x.visits}};
}

json::object object_of(const memory_status& x) {
  return {{"slot", x.slot}, {"peak_bytes", x.peak_bytes}, {"estimated_bytes", x.estimated_bytes}};
}

json::object object_of(const decision& x);

json::object object_of(const event_status& x) {
  return {{"number", x.number}, {"at_us", x.at_us}, {"level", x.level}, {"text", x.text}};
}

json::object object_of(const chain_link& x) {
  json::object result{{"by", x.by.value}, {"base", x.base}};
  // While a generation runs its end is open.
  result["last"] = x.last == UINT64_MAX ? json::value(nullptr) : json::value(x.last);
  return result;
}

json::object object_of(const checkpoint_folder& x) {
  return {{"keeper", x.keeper}, {"folder", x.folder}};
}

json::object object_of(const job_status& x);

// JSON has no NaN, and a job that diverges must not make the whole status unreadable.
json::value number(double x) {
  return std::isfinite(x) ? json::value(x) : json::value(nullptr);
}

json::object object_of(const loss_point& x) {
  return {{"steps", x.steps}, {"loss", number(x.loss)}};
}

json::object object_of(const keeper_status& x) {
  return {{"keeper", x.keeper}, {"steps", x.steps}, {"layers", x.layers}};
}

json::object object_of(const failure_status& x) {
  return {{"number", x.number}, {"at_us", x.at_us}, {"instance", x.instance},
          {"job", x.job},       {"what", x.what},   {"lines", json::value_from(x.lines)}};
}

template <class Values>
json::array array_of(const Values& values) {
  json::array result;
  for (const auto& x : values)
    result.push_back(object_of(x));
  return result;
}

json::object object_of(const decision& x) {
  return {{"number", x.number},
          {"at_us", x.at_us},
          {"trigger", x.trigger},
          {"policy", x.policy},
          {"forecast", array_of(x.forecast)},
          {"chosen", object_of(x.chosen)},
          {"runners_up", array_of(x.runners_up)},
          {"reason", x.reason},
          {"generation", x.generation},
          {"expected_ms", x.expected_ms},
          {"realised_ms", x.realised_ms}};
}

json::object object_of(const job_status& x) {
  json::array grid, lives;
  for (std::uint32_t d = 0; d < x.width; ++d) {
    json::array pipeline, of_pipeline;
    for (std::uint32_t p = 0; p < x.depth; ++p) {
      const auto rank = std::size_t{d} * x.depth + p;
      pipeline.emplace_back(x.grid.at(rank));
      if (rank < x.grid_lives.size()) // a manager of an older build does not tell
        of_pipeline.emplace_back(incarnation_text(x.grid_lives[rank]));
    }
    grid.push_back(std::move(pipeline));
    lives.push_back(std::move(of_pipeline));
  }
  json::object steps_by_depth;
  for (auto [depth, steps] : x.steps_by_depth)
    steps_by_depth[std::to_string(depth)] = steps;
  return {
      {"id", x.id},
      {"name", x.name},
      {"state", x.state},
      {"detailed", x.detailed},
      {"phase", x.phase},
      {"problem", x.problem},
      {"generation", x.generation},
      {"steps", x.steps},
      {"steps_done", x.steps_done},
      {"width", x.width},
      {"depth", x.depth},
      {"grid", std::move(grid)},
      {"grid_incarnations", std::move(lives)},
      {"loss", x.loss_steps < 0 ? json::value(nullptr) : number(x.loss)},
      {"loss_steps", x.loss_steps},
      {"priority", x.priority},
      {"idle", x.idle},
      {"evaluated_steps", x.evaluated_steps},
      {"validation_loss", x.evaluated_steps < 0 ? json::value(nullptr) : number(x.validation_loss)},
      {"gradient_norm", number(x.gradient_norm)},
      {"learning_rate", x.learning_rate},
      {"step_ms", x.step_ms},
      {"samples_per_s", x.samples_per_s},
      {"time_left_ms", x.time_left_ms},
      {"losses", array_of(x.losses)},
      {"validation_losses", array_of(x.validation_losses)},
      {"protected_steps", x.protected_steps},
      {"protected_now", x.protected_now},
      {"keepers", array_of(x.keepers)},
      {"layers", x.layers},
      {"replayed_steps", x.replayed_steps},
      {"migrations",
       {{"none", x.unmoved}, {"intra_stage", x.intra_stage}, {"inter_stage", x.inter_stage}, {"pipeline", x.pipeline}}},
      {"steps_by_depth", std::move(steps_by_depth)},
      {"change_count", x.change_count},
      {"changes", array_of(x.changes)},
      {"chain", array_of(x.chain)},
      {"parameters_sha256", x.parameters_sha256},
      {"checkpoint_steps", x.checkpoint_steps},
      {"checkpoint_folders", array_of(x.checkpoint_folders)},
      {"checkpoint_problem", x.checkpoint_problem},
      {"event_count", x.event_count},
      {"events", array_of(x.events)},
      {"decision_count", x.decision_count},
      {"decisions", array_of(x.decisions)},
      {"configurations", array_of(x.configurations)},
      {"layer_costs", array_of(x.layer_costs)},
      {"memory", array_of(x.memory)},
      {"change_figures", object_of(x.figures)},
      {"other_ms", x.other_ms}};
}

std::string text_of_loss(double x) {
  return std::isfinite(x) ? fmt::format("{:.4f}", x) : "not finite";
}

std::string text_of_ms(double x) {
  return text_of_duration(std::chrono::milliseconds(std::llround(x)));
}

void add_job(std::string& out, const job_status& x) {
  out += fmt::format("job {} {}: {}", x.id, x.name, x.state);
  if (x.state == "running")
    out += ", " + x.phase;
  out += fmt::format(", step {}/{}", x.steps_done, x.steps);
  if (x.generation > 0)
    out += fmt::format(", generation {}, loss {}", x.generation, loss_of(x));
  if (x.evaluated_steps >= 0)
    out += fmt::format(", validation loss {} at step {}", text_of_loss(x.validation_loss), x.evaluated_steps);
  if (x.width > 0)
    out += fmt::format(", {}×{}, {} samples/s", x.width, x.depth, text_of_quantity(x.samples_per_s));
  if (x.time_left_ms >= 0)
    out += ", " + text_of_age(static_cast<std::int64_t>(1000 * x.time_left_ms)) + " left";
  out += '\n';
  if (!x.problem.empty())
    out += "  " + x.problem + "\n";
  if (!x.idle.empty())
    out += "  " + x.idle + "\n";
  for (std::uint32_t d = 0; d < x.width; ++d) {
    out += fmt::format("  pipeline {}:", d);
    for (std::uint32_t p = 0; p < x.depth; ++p)
      out += " " + x.grid.at(d * x.depth + p);
    out += '\n';
  }
  if (x.state == "running" && x.keepers.empty())
    out += "  no keeper, so not protected: start one with parcae-node --role keeper\n";
  else if (x.state == "running")
    out += fmt::format("  keepers hold step {}{}\n", x.protected_steps, x.protected_now ? "" : " (not protected)");
  for (const auto& k : x.keepers)
    out += fmt::format("    {}: step {}, {} of {} layers\n", k.keeper, k.steps, k.layers, x.layers);
  out += fmt::format("  {}: {} intra-stage, {} inter-stage, {} pipeline, {} in place; {} replayed\n",
                     counted(x.change_count, "change"), x.intra_stage, x.inter_stage, x.pipeline, x.unmoved,
                     counted(x.replayed_steps, "step"));
  if (!x.changes.empty()) {
    const auto& c = x.changes.back();
    out += fmt::format("  last change: {} to {} ({}), stall {}\n", c.trigger, c.configuration, kind_of(c),
                       c.stall_ms < 0 ? "-" : text_of_ms(c.stall_ms));
  }
  if (x.checkpoint_steps > 0)
    out += fmt::format("  checkpoint of step {}{}\n", x.checkpoint_steps, x.checkpoint_folders.empty() ? "" : ":");
  for (const auto& place : x.checkpoint_folders)
    out += fmt::format("    {}: {}\n", place.keeper, place.folder);
  if (!x.checkpoint_problem.empty())
    out += "  " + x.checkpoint_problem + "\n";
  for (std::size_t i = x.decisions.size() - std::min(x.decisions.size(), decisions_shown); i < x.decisions.size();
       ++i) {
    const auto& d = x.decisions[i];
    out += fmt::format("  decision {}, {}: {}", d.number, d.trigger, d.reason);
    if (d.expected_ms > 0)
      out += fmt::format("; {} stall expected", text_of_ms(d.expected_ms));
    if (d.realised_ms >= 0)
      out += fmt::format(", {} measured", text_of_ms(d.realised_ms));
    out += '\n';
  }
  if (!x.parameters_sha256.empty())
    out += "  parameters sha256 " + x.parameters_sha256 + "\n";
}

// Without the slot that says so.
std::string_view said_by(const failure_status& x) {
  const std::string_view what = x.what;
  const auto end = what.find(": ");
  return what.starts_with(x.instance + "/") && end != what.npos ? what.substr(end + 2) : what;
}

void add_failure(std::string& out, const failure_status& x, const std::vector<std::string>& who, std::int64_t now_us) {
  std::string names;
  for (const auto& name : who)
    names += (names.empty() ? "" : ", ") + name;
  const auto age = text_of_age(now_us - x.at_us);
  // Several instances say the same, each with its own slot in front: the text without it.
  if (who.size() > 1)
    out += fmt::format("{} ({} ago, say instances {})\n", said_by(x), age, names);
  else
    out += fmt::format("instance {} failed {} ago: {}\n", names, age, x.what);
  for (std::size_t i = x.lines.size() - std::min(x.lines.size(), lines_shown); i < x.lines.size(); ++i)
    out += "  " + x.lines[i] + "\n";
}

} // namespace

json::object object_of(const layer_cost& x) {
  return {{"forward_ms", x.forward_ms},
          {"backward_ms", x.backward_ms},
          {"optimizer_ms", x.optimizer_ms},
          {"waking_forward_ms", x.waking.forward_ms},
          {"waking_backward_ms", x.waking.backward_ms},
          {"waking_optimizer_ms", x.waking.optimizer_ms},
          {"gradient_bytes", x.gradient_bytes},
          {"output_bytes", x.output_bytes},
          {"state_bytes", x.state_bytes},
          {"activation_bytes", x.activation_bytes},
          {"tied_bytes", x.tied_bytes}};
}

json::object object_of(const change_figures& x) {
  return {{"link_bytes_per_ms", x.link_bytes_per_ms},
          {"detect_ms", x.detect_ms},
          {"settle_ms", x.settle_ms},
          {"loss_ms", x.loss_ms},
          {"plan_ms", x.plan_ms},
          {"prepare_ms", x.prepare_ms},
          {"transfer_ms", x.transfer_ms},
          {"activate_ms", x.activate_ms},
          {"rank_ms", x.rank_ms}};
}

std::string kind_of(const change_status& x) {
  if (x.kind == "none")
    return "in place";
  auto result = x.kind;
  std::ranges::replace(result, '_', '-');
  return result;
}

std::string loss_of(const job_status& x) {
  return x.loss_steps < 0 ? "-" : text_of_loss(x.loss);
}

std::string curve_of(const job_status& x) {
  std::map<std::uint64_t, std::pair<std::string, std::string>> lines;
  const auto text = [](double loss) { return std::isfinite(loss) ? fmt::format("{}", loss) : std::string("nan"); };
  for (const auto& p : x.losses)
    lines[p.steps].first = text(p.loss);
  for (const auto& p : x.validation_losses)
    lines[p.steps].second = text(p.loss);
  std::string result = "step,loss,validation_loss\n";
  for (const auto& [steps, losses] : lines)
    result += fmt::format("{},{},{}\n", steps, losses.first, losses.second);
  return result;
}

namespace {

void add_instances(std::string& out, const status_reply& x, bool all) {
  for (const auto& i : x.instances) {
    if (i.state == "lost" && !all)
      continue;
    out += fmt::format("instance {} ({}, {}): {}", i.name, i.role, counted(i.slots, "slot"), i.state);
    if (i.expires_in_ms >= 0 && i.state == "leaving")
      out += " in " + text_of_age(1000 * i.expires_in_ms);
    if (i.state == "lost")
      out += " " + text_of_age(x.now_us - i.lost_at_us) + " ago";
    out += ", joined " + text_of_age(1000 * static_cast<std::int64_t>(i.age_ms)) + " ago\n";
  }
  if (x.instances.empty())
    out += "no instances; start some with `parcae-node`\n";
}

// Those of other jobs, old ones mostly, are no answer.
void add_failures(std::string& out, const status_reply& x) {
  const auto asked = [&](const failure_status& f) {
    return f.job == 0 || std::ranges::any_of(x.jobs, [&](const auto& j) { return j.detailed && j.id == f.job; });
  };
  for (auto f = x.failures.begin(); f != x.failures.end(); ++f) {
    const auto alike = [&](const failure_status& y) { return said_by(y) == said_by(*f) && y.job == f->job; };
    if (!asked(*f) || std::any_of(x.failures.begin(), f, alike))
      continue;
    std::vector<std::string> who;
    for (const auto& y : x.failures)
      if (alike(y))
        who.push_back(y.instance);
    add_failure(out, *f, who, x.now_us);
  }
}

bool has_ended(const job_status& x) {
  return x.state != "running" && x.state != "queued";
}

} // namespace

std::string text_of(const status_reply& given, bool all) {
  const auto x = printable(given);
  std::string out;
  for (const auto& job : x.jobs)
    add_job(out, job);
  if (x.jobs.empty())
    out += "no jobs; submit one with `parcae submit JOB.toml`\n";
  add_instances(out, x, all);
  add_failures(out, x);
  return out;
}

std::string overview_of(const status_reply& given, bool all) {
  const auto x = printable(given);
  std::string out;
  const bool any = !std::ranges::all_of(x.jobs, has_ended);
  std::uint64_t left_out = 0;
  for (const auto& job : x.jobs) {
    if (has_ended(job) && !all && (any || &job != &x.jobs.back())) {
      ++left_out;
      continue;
    }
    out += summary_of(job) + "\n";
    if (!job.idle.empty())
      out += "  " + job.idle + "\n";
  }
  if (x.jobs.empty())
    out += "no jobs; submit one with `parcae submit JOB.toml`\n";
  if (left_out > 0)
    out +=
        counted(left_out, "job") + " more that " + (left_out == 1 ? "has" : "have") + " ended: `parcae status --all`\n";
  add_instances(out, x, all);
  add_failures(out, x);
  return out;
}

std::string json_of(const status_reply& x) {
  return json::serialize(json::object{{"now_us", x.now_us},
                                      {"jobs", array_of(x.jobs)},
                                      {"instances", array_of(x.instances)},
                                      {"news_count", x.news_count},
                                      {"news", array_of(x.news)},
                                      {"failure_count", x.failure_count},
                                      {"failures", array_of(x.failures)}});
}

} // namespace parcae
