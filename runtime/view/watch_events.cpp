#include "runtime/view/watch_events.hpp"

#include "protocols/base/duration.hpp"
#include "protocols/base/text.hpp"
#include "runtime/view/printable_status.hpp"
#include "runtime/view/service_text.hpp"
#include "runtime/view/status_text.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <tuple>
#include <utility>

namespace parcae {

namespace {

constexpr std::uint64_t max_events = 100;       // of each source: more than any screen has lines
constexpr std::size_t events_before = 10;       // shown of what was before the watch began
constexpr std::int64_t progress_us = 1'000'000; // between two lines that only tell of steps

watch_event event_of(const change_status& x) {
  auto text = fmt::format("{} after {}: {}", x.configuration, x.trigger, kind_of(x));
  if (x.stall_ms > 0)
    text += ", " + text_of_ms(x.stall_ms) + " stall";
  if (x.replayed_steps > 0)
    text += ", " + counted(x.replayed_steps, "step") + " replayed";
  const auto at_us = x.at_us + static_cast<std::int64_t>(1000 * std::max(0.0, x.active_ms));
  return {watch_event::source::change, x.number, at_us, "information", std::move(text)};
}

watch_event event_of(const decision& x) {
  auto text = fmt::format("decision for {}: {}", x.chosen.configuration, x.reason);
  if (x.expected_ms > 0)
    text += "; " + text_of_ms(x.expected_ms) + " stall expected";
  return {watch_event::source::decision, x.number, x.at_us, "information", std::move(text)};
}

std::uint64_t all_but_newest(std::uint64_t count) {
  return count - std::min(count, max_events);
}

} // namespace

std::string time_of_day(const moment& now, std::int64_t at_us) {
  constexpr std::int64_t day_us = 86'400'000'000;
  const auto s = ((now.wall_us - now.us + at_us) % day_us + day_us) % day_us / 1'000'000;
  return fmt::format("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::vector<watch_event> events_of(const status_reply& x, const job_status* job) {
  using source = watch_event::source;
  std::vector<watch_event> result;
  for (const auto& n : x.news)
    if (n.job == 0 || (job && n.job == job->id)) // what failed in others is none of this one
      result.push_back({source::news, n.number, n.at_us, n.level, n.text});
  if (job) {
    for (const auto& c : job->changes)
      result.push_back(event_of(c));
    for (const auto& d : job->decisions)
      if (d.generation != 0)
        result.push_back(event_of(d));
    for (const auto& e : job->events)
      if (e.level != "information")
        result.push_back({source::journal, e.number, e.at_us, e.level, e.text});
  }
  std::ranges::sort(result, {}, [](const auto& e) { return std::tuple(e.at_us, e.from, e.number); });
  return result;
}

const job_status* find_job(const status_reply& x, std::uint64_t id) {
  const auto i = std::ranges::find(x.jobs, id, &job_status::id);
  return i == x.jobs.end() ? nullptr : &*i;
}

std::uint64_t job_to_watch(const status_reply& x) {
  for (const auto* state : {"running", "queued"})
    if (const auto i = std::ranges::find(x.jobs, state, &job_status::state); i != x.jobs.end())
      return i->id;
  return x.jobs.empty() ? 0 : std::ranges::max(x.jobs, {}, &job_status::id).id;
}

status_request next_request(const status_reply& x, std::uint64_t job) {
  status_request result{.job = job, .news_from = all_but_newest(x.news_count), .failures_from = UINT64_MAX};
  if (const auto* known = find_job(x, job)) {
    result.changes_from = all_but_newest(known->change_count);
    result.events_from = all_but_newest(known->event_count);
    result.decisions_from = all_but_newest(known->decision_count);
  }
  return result;
}

std::string summary_of(const job_status& x) {
  auto text = fmt::format("job {} {}: {}", x.id, x.name, x.state);
  if (x.state == "running" && x.phase != "running")
    text += ", " + x.phase;
  if (x.kind == "serve")
    return text + service_figures(x) + (x.problem.empty() ? "" : "; " + x.problem);
  text += early_end_of(x);
  text += fmt::format(", step {}/{}", x.steps_done, x.steps);
  if (x.generation > 0)
    text += ", loss " + loss_of(x);
  if (x.evaluated_steps >= 0)
    text += fmt::format(", validation loss {:.4f} at step {}", x.validation_loss, x.evaluated_steps);
  if (x.width > 0)
    text += fmt::format(", {}×{}, {} samples/s", x.width, x.depth, text_of_quantity(x.samples_per_s));
  if (x.time_left_ms >= 0 && x.state == "running")
    text += ", " + text_of_age(static_cast<std::int64_t>(1000 * x.time_left_ms)) + " left";
  if (!x.problem.empty())
    text += "; " + x.problem;
  if (!x.parameters_sha256.empty())
    text += ", parameters sha256 " + x.parameters_sha256;
  return text;
}

std::string ending_of(const job_status& x) {
  const auto early = early_end_of(x);
  auto text = fmt::format("job {} {} is {}", x.id, x.name, x.state);
  if (x.kind != "serve")
    text +=
        fmt::format("{} at step {}/{}, loss {}", early.empty() ? "" : early + ",", x.steps_done, x.steps, loss_of(x));
  if (x.evaluated_steps >= 0)
    text += fmt::format(", validation loss {:.4f}", x.validation_loss);
  text += fmt::format("\n  {}: {} intra-stage, {} inter-stage, {} pipeline, {} in place; {} replayed",
                      counted(x.change_count, "change"), x.migrations.intra_stage, x.migrations.inter_stage,
                      x.migrations.pipeline, x.migrations.none, counted(x.replayed_steps, "step"));
  for (const auto& place : x.checkpoint_folders)
    text += fmt::format("\n  checkpoint of step {} with {}: {}", x.checkpoint_steps, place.keeper, place.folder);
  if (!x.parameters_sha256.empty())
    text += "\n  parameters sha256 " + x.parameters_sha256;
  if (x.state == "done")
    text += fmt::format("\n  next: `parcae export {} --output model.safetensors`", x.id);
  return text;
}

std::string log_of(const status_reply& given, const moment& now) {
  const auto x = printable(given);
  const job_status* job = nullptr;
  for (const auto& j : x.jobs)
    if (j.detailed || x.jobs.size() == 1)
      job = &j;
  auto events = events_of(x, job);
  if (job)
    for (const auto& e : job->events)
      if (e.level == "information")
        events.push_back({watch_event::source::journal, e.number, e.at_us, e.level, e.text});
  std::ranges::stable_sort(events, {}, &watch_event::at_us);
  std::string result;
  for (const auto& e : events)
    result +=
        fmt::format("{} {}{}\n", time_of_day(now, e.at_us), e.level == "information" ? "" : e.level + ": ", e.text);
  for (const auto& f : x.failures) {
    if (f.job != 0 && (!job || f.job != job->id))
      continue;
    result += fmt::format("{} the log of {} up to \"{}\":\n", time_of_day(now, f.at_us), f.instance, f.what);
    for (const auto& line : f.lines)
      result += "  " + line + "\n";
  }
  return result;
}

std::vector<watch_event> plain_watch::new_events(const status_reply& x, const job_status* job, const moment& now) {
  auto events = events_of(x, job);
  if (const auto since_us = std::exchange(away_since_us_, {})) {
    next_.clear();
    std::erase_if(events, [&](const auto& e) {
      next_[e.from] = std::max(next_[e.from], e.number + 1);
      return now.wall_us - now.us + e.at_us <= *since_us;
    });
    return events;
  }
  if (!std::exchange(began_, true) && events.size() > events_before)
    for (std::size_t i = 0; i < events.size() - events_before; ++i)
      next_[events[i].from] = std::max(next_[events[i].from], events[i].number + 1);
  std::erase_if(events, [&](const auto& e) { return e.number < next_[e.from]; });
  for (const auto& e : events)
    next_[e.from] = std::max(next_[e.from], e.number + 1);
  return events;
}

std::string plain_watch::away(const moment& now, const std::string& why) {
  away_since_us_ = heard_us_;
  return time_of_day(now, now.us) + " warning: " + why;
}

std::vector<std::string> plain_watch::lines_of(const status_reply& x, std::uint64_t id, const moment& now) {
  const auto* job = find_job(x, id);
  std::vector<std::string> result;
  if (away_since_us_)
    result.push_back(time_of_day(now, now.us) + " the manager answers again");
  heard_us_ = now.wall_us;
  for (const auto& e : new_events(x, job, now))
    result.push_back(
        fmt::format("{} {}{}", time_of_day(now, e.at_us), e.level == "information" ? "" : e.level + ": ", e.text));
  if (!job) {
    if (x.jobs.empty() && !std::exchange(waits_, true))
      result.push_back(time_of_day(now, now.us) + " no job yet; waits for one: `parcae submit JOB.toml`");
    return result;
  }
  auto line = summary_of(*job);
  const auto over = job->state != "running" && job->state != "queued";
  if (line == shown_ || (!over && !shown_.empty() && now.us - shown_at_us_ < progress_us))
    return result;
  result.push_back(time_of_day(now, now.us) + " " + line);
  shown_ = std::move(line);
  shown_at_us_ = now.us;
  return result;
}

} // namespace parcae
