#include "runtime/view/status_text.hpp"

#include "protocols/base/duration.hpp"
#include "protocols/base/text.hpp"
#include "runtime/view/printable_status.hpp"
#include "runtime/view/service_text.hpp"
#include "runtime/view/step_times.hpp"
#include "runtime/view/watch_events.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace parcae {

namespace {

constexpr std::size_t decisions_shown = 3; // the newest, to people
constexpr std::size_t lines_shown = 8;     // of a failure

std::string text_of_loss(double x) {
  return std::isfinite(x) ? fmt::format("{:.4f}", x) : "not finite";
}

void add_keepers(std::string& out, const job_status& x) {
  if (x.state == "running" && !x.keepers.empty())
    out += fmt::format("  keepers hold step {}, {} behind{}{}\n", x.protected_steps,
                       counted(x.steps_done - std::min(x.protected_steps, x.steps_done), "step"), copies_of(x),
                       x.protected_now ? "" : " (not protected)");
  for (const auto& k : x.keepers)
    out += fmt::format("    {}: step {}, {} of {} layers\n", k.keeper, k.steps, k.layers, x.layers);
}

void add_transport(std::string& out, const job_status& x) {
  if (x.gradient_sums == "bfloat16")
    out += "  gradients are summed in bfloat16\n";
  std::string links;
  for (const auto& link : x.links)
    if (!link.reason.empty())
      links +=
          "  " + link.kind + (link.by == "peer" ? " by copies from GPU to GPU: " : " by TCP: ") + link.reason + "\n";
  if (const auto transport = transport_of(x); !transport.empty() && (links.empty() || x.transport.by == "nccl"))
    out += "  " + transport + "\n"; // else each kind of links has the reason
  out += links;
}

void add_course(std::string& out, const job_status& x) {
  out += early_end_of(x);
  out += fmt::format(", step {}/{}", x.steps_done, x.steps);
  if (x.generation > 0)
    out += fmt::format(", generation {}, loss {}", x.generation, loss_of(x));
  if (x.evaluated_steps >= 0)
    out += fmt::format(", validation loss {} at step {}", text_of_loss(x.validation_loss), x.evaluated_steps);
  if (x.width > 0)
    out += fmt::format(", {}×{}, {} samples/s", x.width, x.depth, text_of_quantity(x.samples_per_s));
  if (x.time_left_ms >= 0)
    out += ", " + text_of_age(static_cast<std::int64_t>(1000 * x.time_left_ms)) + " left";
}

void add_job(std::string& out, const job_status& x) {
  out += fmt::format("job {} {}: {}", x.id, x.name, x.state);
  if (x.state == "running" && x.phase != "running")
    out += ", " + x.phase;
  if (x.kind == "serve")
    out += (x.generation > 0 ? fmt::format(", generation {}", x.generation) : "") + service_figures(x);
  else
    add_course(out, x);
  out += '\n';
  if (!x.owner.empty())
    out += "  of " + x.owner + "\n";
  if (!x.problem.empty())
    out += "  " + x.problem + "\n";
  if (!x.idle.empty())
    out += "  " + x.idle + "\n";
  if (const auto waits = data_wait_of(x); !waits.empty())
    out += "  " + waits + "\n";
  for (const auto& line : service_lines(x))
    out += "  " + line + "\n";
  out += step_times_of(x);
  add_transport(out, x);
  for (std::uint32_t d = 0; d < x.width; ++d) {
    out += fmt::format("  pipeline {}:", d);
    for (std::uint32_t p = 0; p < x.depth; ++p)
      out += " " + x.grid.at(d * x.depth + p);
    out += '\n';
  }
  if (const auto risk = risk_of(x); !risk.empty())
    out += "  " + risk + "\n";
  add_keepers(out, x);
  out += fmt::format("  {}: {} intra-stage, {} inter-stage, {} pipeline, {} in place; {} replayed\n",
                     counted(x.change_count, "change"), x.migrations.intra_stage, x.migrations.inter_stage,
                     x.migrations.pipeline, x.migrations.none, counted(x.replayed_steps, "step"));
  if (!x.changes.empty()) {
    const auto& c = x.changes.back();
    out += fmt::format("  last change: {} to {} ({}), stall {}{}\n", c.trigger, c.configuration, kind_of(c),
                       c.stall_ms < 0 ? "-" : text_of_ms(c.stall_ms),
                       c.state_wait_ms > 0 ? ", then waited " + text_of_ms(c.state_wait_ms) + " for state" : "");
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
  // What several say alike is not of one of them.
  if (who.size() > 1)
    out += fmt::format("{} ({} ago, say instances {})\n", said_by(x), age, names);
  else
    out += fmt::format("instance {} {} {} ago: {}\n", names, x.ended ? "failed" : "reported", age, x.what);
  for (std::size_t i = x.lines.size() - std::min(x.lines.size(), lines_shown); i < x.lines.size(); ++i)
    out += "  " + x.lines[i] + "\n";
}

} // namespace

std::string kind_of(const change_status& x) {
  if (x.kind == "none")
    return "in place";
  auto result = x.kind;
  std::ranges::replace(result, '_', '-');
  return result;
}

std::string data_wait_of(const job_status& x) {
  constexpr double told = 0.01; // of a step
  if (x.data_wait_for.empty() || x.data_wait_ms < told * x.step_ms)
    return {};
  return fmt::format("waits {:.1f} ms a step for data: {}", x.data_wait_ms, x.data_wait_for);
}

std::string risk_of(const job_status& x) {
  if (x.state != "running" || x.phase.empty() || x.phase == "recovering" || x.kind == "serve")
    return {}; // nothing is known of it yet, or can be lost
  return x.keepers.empty() ? "no keeper, so not protected: start one with parcae-node --role keeper" : x.not_on_disk;
}

std::string early_end_of(const job_status& x) {
  if (x.state != "done" || x.steps_done >= x.steps || x.kind == "serve")
    return {};
  return " early, as validation got no better (job.patience)";
}

std::string transport_of(const job_status& x) {
  if (x.transport.by == "nccl")
    return "tensors move by NCCL (" + x.transport.device + ")";
  return x.transport.reason.empty() ? std::string() : "tensors move by TCP: " + x.transport.reason;
}

std::string copies_of(const job_status& x) {
  if (x.copies_problem.empty() && x.copies < 2)
    return {};
  return fmt::format(", {} {} of step {}{}{}", x.copies, x.copies == 1 ? "copy" : "copies", x.copied_steps,
                     x.copies_problem.empty() ? "" : ": ", x.copies_problem);
}

std::string loss_of(const job_status& x) {
  return x.loss_steps < 0 ? "-" : text_of_loss(x.loss);
}

std::string market_text(const status_reply& x) {
  const auto& m = x.market;
  if (m.pools.empty())
    return {};
  std::vector<std::string> held;
  for (const auto& pool : m.pools)
    if (pool.want > 0 || pool.have > 0)
      held.push_back(fmt::format("{} of {} {}", pool.have, pool.want, pool.name));
  std::string result = fmt::format("market: {}; ${:.2f} spent",
                                   held.empty() ? "nothing held" : fmt::format("{}", fmt::join(held, ", ")), m.usd);
  if (m.job > 0 && m.job_usd != m.usd)
    result += fmt::format(", ${:.2f} on job {}", m.job_usd, m.job);
  const auto from_now = [&](std::int64_t wall_us) {
    const auto us = wall_us - x.wall_us;
    return us >= 0 ? "in " + text_of_age(us) : text_of_age(-us) + " ago";
  };
  const bool has_spread = m.expected_us_spread.p10 > 0;
  if (m.expected_us > 0)
    result += fmt::format(
        "; ${:.2f} more expected{}, the end {}{}", m.expected_usd,
        has_spread ? fmt::format(" (8 of 10: ${:.2f} to ${:.2f})", m.expected_usd_spread.p10, m.expected_usd_spread.p90)
                   : "",
        from_now(m.expected_us),
        has_spread ? fmt::format(" (8 of 10: {} to {})", from_now(m.expected_us_spread.p10),
                                 m.expected_us_spread.p90 > 0 ? from_now(m.expected_us_spread.p90) : "never")
                   : "");
  if (m.deadline_us > 0)
    result += ", the deadline " + from_now(m.deadline_us);
  return result;
}

namespace {

void add_market(std::string& out, const status_reply& x) {
  const auto first = market_text(x);
  if (first.empty())
    return;
  out += first + "\n";
  for (const auto& line : {x.market.why, x.market.feed, x.market.hook})
    if (!line.empty())
      out += "  " + line + "\n";
  for (const auto& pool : x.market.pools)
    if (!pool.why.empty())
      out += "  " + pool.name + ": " + pool.why + "\n";
}

/// "97 % busy, 64 °C, slowed by power, 2 memory errors (1 not corrected), XID 63"
std::string text_of(const gpu_state& x) {
  std::vector<std::string> parts;
  if (x.busy_percent >= 0)
    parts.push_back(fmt::format("{} % busy", x.busy_percent));
  if (x.celsius >= 0)
    parts.push_back(fmt::format("{} °C", x.celsius));
  if (!x.throttled.empty())
    parts.push_back("slowed by " + x.throttled);
  const auto count_of = [](std::int64_t count) { return static_cast<std::uint64_t>(std::max<std::int64_t>(0, count)); };
  const auto uncorrected = count_of(x.uncorrected);
  if (const auto errors = count_of(x.corrected) + uncorrected; errors > 0) // unsigned: a node says what it likes
    parts.push_back(counted(errors, "memory error") +
                    (uncorrected > 0 ? fmt::format(" ({} not corrected)", uncorrected) : std::string()));
  if (x.xid > 0)
    parts.push_back(fmt::format("XID {}", x.xid));
  if (!x.problem.empty())
    parts.push_back(x.problem);
  return fmt::format("{}", fmt::join(parts, ", "));
}

void add_instances(std::string& out, const status_reply& x, bool all) {
  if (!x.warning.empty())
    out += "manager: " + x.warning + "\n";
  add_market(out, x);
  for (const auto& i : x.instances) {
    if (i.state == "lost" && !all)
      continue;
    out += fmt::format("instance {} ({}, {}): {}", i.name, i.role, counted(i.slots, "slot"), i.state);
    if (i.expires_in_ms >= 0 && i.state == "leaving")
      out += " in " + text_of_age(1000 * i.expires_in_ms);
    if (i.slots_needed > 0)
      out += fmt::format(", {} to be moved by then", counted(i.slots_needed, "slot"));
    if (!i.warning.empty() && i.state != "lost")
      out += fmt::format("{} ({})", i.state == "alive" ? ", at risk" : "", i.warning);
    if (i.state == "lost")
      out += " " + text_of_age(x.now_us - i.lost_at_us) + " ago";
    out += ", joined " + text_of_age(1000 * static_cast<std::int64_t>(i.age_ms)) + " ago\n";
    for (const auto& gpu : i.gpus)
      if (const auto text = text_of(gpu); !text.empty() && i.state != "lost")
        out += "  " + gpu.place + ": " + text + "\n";
  }
  if (x.instances.empty())
    out += std::ranges::any_of(x.jobs, [](const auto& job) { return job.phase == "recovering"; })
               ? "no instances yet: those that are there dial again\n"
               : "no instances; start some with `parcae-node`\n";
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

std::string to_string(const status_reply& given, bool all) {
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
    for (const auto& line : {job.idle, data_wait_of(job), risk_of(job), job.checkpoint_problem})
      if (!line.empty())
        out += "  " + line + "\n";
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

} // namespace parcae
