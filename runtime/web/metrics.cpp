#include "runtime/web/metrics.hpp"

#include "protocols/base/enum_text.hpp"
#include "protocols/choreography/build.hpp"
#include "runtime/web/history.hpp"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <utility>
#include <vector>

namespace parcae {

namespace {

using prometheus::ClientMetric;
using prometheus::MetricType;

// More changes than a manager keeps of a job.
constexpr std::size_t max_counted = 4096;

/// Whether it was not there; the oldest are forgotten.
bool is_new(std::set<std::uint64_t>& counted, std::uint64_t number) {
  if (!counted.insert(number).second)
    return false;
  if (counted.size() > max_counted)
    counted.erase(counted.begin());
  return true;
}

bool is_over(const job_status& x) {
  return x.state != "running" && x.state != "queued";
}

/// What part of the time since `began_us` the job trained: not the stalls, nor the steps that were computed again.
double goodput_of(const status_reply& in, const job_status& x, double stalled_s, std::uint64_t replayed,
                  std::int64_t began_us) {
  if (x.changes.empty())
    return 0;
  const auto& last = x.changes.back();
  const auto since_s = [&](std::int64_t at_us) { return static_cast<double>(in.now_us - at_us) / 1e6; };
  const auto all_s = since_s(began_us);
  auto lost_s = stalled_s + static_cast<double>(replayed) * x.step_ms / 1000;
  if (x.phase == "waiting" && last.stall_ms < 0)
    lost_s += since_s(last.at_us);
  return all_s > 0 ? std::clamp(1 - lost_s / all_s, 0.0, 1.0) : 0;
}

} // namespace

void time_counts::add(double seconds) {
  ++count;
  sum_s += seconds;
  for (std::size_t i = 0; i < bounds_s.size(); ++i)
    up_to[i] += seconds <= bounds_s[i] ? 1 : 0;
}

/// Metrics by name, in their order.
struct web_metrics::page {
  std::vector<prometheus::MetricFamily> all;

  ClientMetric& add(MetricType type, const char* name, const char* help, labels x) {
    auto i = std::ranges::find(all, name, &prometheus::MetricFamily::name);
    if (i == all.end())
      i = all.insert(all.end(), {name, help, type, {}});
    auto& result = i->metric.emplace_back();
    result.label = std::move(x);
    return result;
  }
  void count(const char* name, const char* help, labels x, double value) {
    add(MetricType::Counter, name, help, std::move(x)).counter.value = value;
  }
  void gauge(const char* name, const char* help, labels x, double value) {
    add(MetricType::Gauge, name, help, std::move(x)).gauge.value = value;
  }
  void times(const char* name, const char* help, labels x, const time_counts& value) {
    auto& to = add(MetricType::Histogram, name, help, std::move(x)).histogram;
    to.sample_count = value.count;
    to.sample_sum = value.sum_s;
    for (std::size_t i = 0; i < value.up_to.size(); ++i)
      to.bucket.push_back({value.up_to[i], time_counts::bounds_s[i]});
    to.bucket.push_back({value.count, std::numeric_limits<double>::infinity()});
  }
};

void web_metrics::heard(const status_reply& x) {
  if (x.manager_life != manager_life_) { // a job's number is another job's
    jobs_.clear();
    leaving_.clear();
    lost_.clear();
    manager_life_ = x.manager_life;
  }
  for (const auto& job : x.jobs)
    count_job(job);
  std::erase_if(jobs_,
                [&](const auto& y) { return std::ranges::find(x.jobs, y.first, &job_status::id) == x.jobs.end(); });
  count_losses(x);
}

void web_metrics::count_job(const job_status& x) {
  auto& job = jobs_[x.id];
  job.steps = std::max(job.steps, x.steps_done);
  if (x.checkpoint_problem != job.checkpoint_problem && !x.checkpoint_problem.empty())
    ++job.checkpoint_failures;
  job.checkpoint_problem = x.checkpoint_problem;
  if (!job.began_us && !x.changes.empty()) { // later the oldest is no longer told
    job.began_us = x.changes.front().at_us;
    job.replayed_before = x.replayed_steps;
    for (const auto& change : x.changes)
      job.replayed_before -= std::min(job.replayed_before, change.replayed_steps);
  }
  for (const auto& change : x.changes) {
    if (change.planned_ms >= 0 && is_new(job.decided, change.number))
      job.decisions.add(change.planned_ms / 1000);
    if (change.stall_ms >= 0 && is_new(job.stalled, change.number)) {
      job.stalls[change.kind].add(change.stall_ms / 1000);
      job.stalled_s += change.stall_ms / 1000;
    }
  }
}

void web_metrics::count_losses(const status_reply& x) {
  std::set<incarnation> leaving, lost;
  for (const auto& i : x.instances) {
    const bool left = i.state == "leaving" || i.expires_in_ms >= 0 || leaving_.contains(i.incarnation);
    if (left)
      leaving.insert(i.incarnation);
    if (i.state != "lost")
      continue;
    lost.insert(i.incarnation);
    if (!lost_.contains(i.incarnation))
      ++(left ? with_notice_ : without_notice_);
  }
  leaving_ = std::move(leaving);
  lost_ = std::move(lost);
}

// All that is told of a job. One that serves has no steps, so that no alert waits for them.
void web_metrics::add_job(page& to, const status_reply& in, const job_status& x) const {
  const auto& counts = jobs_.at(x.id);
  const labels who{{"job", std::to_string(x.id)}, {"name", x.name}};
  const auto with = [&](const char* name, const std::string& value) {
    auto result = who;
    result.push_back({name, value});
    return result;
  };
  const auto number = [](auto value) { return static_cast<double>(value); };
  const bool runs = x.state == "running";
  to.gauge("parcae_job_running", "Whether the job runs: not queued, not ended.", who, runs);
  add_changes(to, counts, who);
  if (x.kind == "serve")
    return add_service(to, x.requests, who);
  to.count("parcae_job_steps_total", "Steps committed; those computed again count once.", who, number(counts.steps));
  if (x.global_batch > 0) // else a manager of an older build does not tell
    to.count("parcae_job_samples_total", "Samples of these steps.", who, number(counts.steps * x.global_batch));
  to.count("parcae_job_steps_replayed_total", "Steps computed again.", who, number(x.replayed_steps));
  to.gauge("parcae_job_steps_wanted", "Steps after which the job is done.", who, number(x.steps));
  if (x.loss_steps >= 0)
    to.gauge("parcae_job_loss", "Training loss of the last step.", who, x.loss);
  if (x.evaluated_steps >= 0)
    to.gauge("parcae_job_validation_loss", "Loss on the validation samples.", who, x.validation_loss);
  to.gauge("parcae_job_samples_per_second", "Pace of the present configuration; 0 while nothing trains.", who,
           runs && x.phase == "running" ? x.samples_per_s : 0);
  if (const auto slowest = std::ranges::find(x.step_times, x.slowest_slot, &slot_times::slot);
      runs && slowest != x.step_times.end())
    for (std::size_t i = 0; i < step_part_count; ++i)
      to.gauge("parcae_job_step_seconds", "Where the time of a step goes, on the slot that waits least for others.",
               with("part", std::string(enum_name(static_cast<step_part>(i)))),
               (*slowest).*members_of_step_parts[i] / 1000);
  if (runs && x.detailed)
    to.gauge("parcae_job_goodput_ratio", "Share of the time that was neither stalled nor spent on steps done before.",
             who,
             goodput_of(in, x, counts.stalled_s, x.replayed_steps - std::min(x.replayed_steps, counts.replayed_before),
                        counts.began_us.value_or(0)));
  to.gauge("parcae_job_protected", "Whether keepers have a version from which the job could go on.", who,
           x.protected_now);
  to.gauge("parcae_protected_step", "Version that the keepers hold complete.", who, number(x.protected_steps));
  to.gauge("parcae_checkpoint_step", "Version of the newest complete checkpoint.", who, number(x.checkpoint_steps));
  to.count("parcae_checkpoint_failures_total", "Checkpoints that could not be written.", who,
           number(counts.checkpoint_failures));
}

void web_metrics::add_changes(page& to, const of_job& counts, const labels& who) {
  for (const auto& [kind, stalls] : counts.stalls) {
    auto which = who;
    which.push_back({"kind", kind});
    to.times("parcae_stall_seconds", "How long nobody trained, for a change.", std::move(which), stalls);
  }
  to.times("parcae_decision_seconds", "From a change's beginning until its plan was made.", who, counts.decisions);
}

void web_metrics::add_service(page& to, const request_figures& x, const labels& who) {
  const auto number = [](auto value) { return static_cast<double>(value); };
  const auto with = [&](const char* name, const char* value) {
    auto result = who;
    result.push_back({name, value});
    return result;
  };
  for (const auto& [state, count] : {std::pair("queued", x.queued), std::pair("running", x.running)})
    to.gauge("parcae_requests", "Requests that are not over.", with("state", state), number(count));
  for (const auto& [end, count] :
       {std::pair("answered", x.answered), std::pair("refused", x.refused), std::pair("failed", x.failed)})
    to.count("parcae_requests_total", "Requests that are over, but by their clients.", with("end", end), number(count));
  to.count("parcae_tokens_total", "New tokens.", who, number(x.tokens));
  to.count("parcae_positions_recomputed_total", "Positions computed again, as a cache was lost.", who,
           number(x.recomputed));
  const auto wait = [&](const char* name, const char* help, const wait_quantiles& y) {
    to.gauge(name, help, with("quantile", "0.5"), y.p50_ms / 1000);
    to.gauge(name, help, with("quantile", "0.99"), y.p99_ms / 1000);
  };
  wait("parcae_first_token_seconds", "From a request's arrival, in the last minute.", x.first_token);
  wait("parcae_token_seconds", "Between two tokens of an answer, in the last minute.", x.between_tokens);
}

void web_metrics::add_gpus(page& to, const instance_status& x) {
  std::set<std::string_view> told; // a series that stands twice is no page for Prometheus
  for (const auto& gpu : x.gpus) {
    if (!told.insert(gpu.place).second)
      continue;
    const labels which{{"name", x.name}, {"gpu", gpu.place}}; // "instance" is Prometheus' own: of what it asks
    const auto add = [&](const char* name, const char* help, std::int64_t value, double unit) {
      if (value >= 0) // else it is not known
        to.gauge(name, help, which, static_cast<double>(value) * unit);
    };
    add("parcae_gpu_busy_ratio", "Share of the last moments in which a kernel ran.", gpu.busy_percent, 0.01);
    add("parcae_gpu_celsius", "Temperature.", gpu.celsius, 1);
    add("parcae_gpu_memory_errors_corrected", "ECC errors since the driver was loaded.", gpu.corrected, 1);
    add("parcae_gpu_memory_errors_uncorrected", "Likewise, that could not be corrected.", gpu.uncorrected, 1);
    if (gpu.busy_percent < 0 && gpu.celsius < 0 && gpu.uncorrected < 0)
      continue; // nothing is known
    to.gauge("parcae_gpu_throttled", "Whether something lowers its clocks.", which, !gpu.throttled.empty());
    to.gauge("parcae_gpu_xid", "Last error that the driver reported; 0: none.", which, static_cast<double>(gpu.xid));
  }
}

std::string web_metrics::text(const status_reply* x, bool up, const std::string& certificate) const {
  page to;
  to.gauge("parcae_build_info", "Of parcae web.", {{"build", this_build()}}, 1);
  to.gauge("parcae_manager_up", "Whether the manager answers.", {}, up);
  to.gauge("parcae_certificate_ending", "Whether a certificate ends within 14 days, or has ended.", {{"of", "web"}},
           !certificate.empty());
  if (x) {
    to.gauge("parcae_certificate_ending", "", {{"of", "manager"}}, !x->warning.empty());
    to.count("parcae_preemptions_total", "Instances lost.", {{"notice", "yes"}}, static_cast<double>(with_notice_));
    to.count("parcae_preemptions_total", "", {{"notice", "no"}}, static_cast<double>(without_notice_));
    for (const char* role : {"worker", "keeper"})
      for (const char* state : {"alive", "leaving"})
        to.gauge("parcae_instances", "Instances that are there.", {{"role", role}, {"state", state}},
                 static_cast<double>(std::ranges::count_if(
                     x->instances, [&](const auto& i) { return i.role == role && i.state == state; })));
    if (!x->market.pools.empty())
      to.count("parcae_cost_dollars_total", "What rented instances have cost.", {}, x->market.usd);
    for (const auto& i : x->instances)
      if (i.state != "lost")
        add_gpus(to, i);
    std::uint32_t used = 0;
    for (const auto& job : x->jobs)
      if (job.state == "running")
        used += job.width * job.depth;
    const auto slots = slots_in(*x);
    to.gauge("parcae_slots", "Slots of the workers that are there.", {{"use", "training"}}, std::min(used, slots));
    to.gauge("parcae_slots", "", {{"use", "spare"}}, slots - std::min(used, slots));
    std::size_t ended = 0;
    for (auto i = x->jobs.rbegin(); i != x->jobs.rend(); ++i)
      if (!is_over(*i) || ++ended <= max_ended)
        add_job(to, *x, *i);
  }
  std::ostringstream result;
  prometheus::TextSerializer().Serialize(result, to.all);
  return result.str();
}

} // namespace parcae
