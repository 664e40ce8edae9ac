#include "runtime/lab/demo_run.hpp"

#include <algorithm>
#include <csignal>
#include <thread>

namespace parcae {

namespace {

using namespace std::chrono_literals;

constexpr auto look_interval = 20ms;
constexpr auto aiming_interval = 1ms; // while waiting for a change to begin, which may take only 50 ms
constexpr auto standstill_limit = 120s;
constexpr auto settle_time = 150ms;
constexpr auto change_limit = 2s;
constexpr int attempts = 10; // at a kill during a change
constexpr int max_more = 30; // preemptions for the sake of the kinds of migration
constexpr std::uint64_t each_kind = 3;
constexpr std::uint64_t notice_ms = 2000;
constexpr double trace_hours = 48; // longer than any demo at its speed

// What happens in each thousand steps. Together they make 17 preemptions, 12 of them without notice; with 6 instances
// training goes 3×2, 2×2, 1×3 and back.
constexpr std::uint64_t round_steps = 1000;
constexpr aim aims[] = {aim::pair,          aim::one,         aim::one_noticed, aim::pair,
                        aim::during_change, aim::one_noticed, aim::whole_stage, aim::pair,
                        aim::one,           aim::one_noticed, aim::one_noticed};

// The demo's instances are named "w1", …; their slots "w1/0".
std::string instance_of(const std::string& slot) {
  return slot.substr(0, slot.find('/'));
}

// Of the machine's monotonic clock, as in a status.
std::int64_t microseconds(std::chrono::steady_clock::time_point x) {
  return std::chrono::duration_cast<std::chrono::microseconds>(x.time_since_epoch()).count();
}

} // namespace

demo_run::demo_run(local_cluster& cluster, const demo_options& options, std::uint64_t slot_bytes,
                   std::function<void(const demo_progress&)> show) :
    cluster_(cluster),
    options_(options), slot_bytes_(slot_bytes), show_(std::move(show)), random_(options.seed) {
  trace_ = options.trace.empty() ? made_up_trace(options.instances, trace_hours, options.seed)
                                 : scaled(read_trace(options.trace), options.instances);
  for (auto& x : trace_)
    x.at = std::chrono::milliseconds(static_cast<std::int64_t>(static_cast<double>(x.at.count()) / options.speed));
}

job_status demo_run::run(const job_specification& job) {
  start_ = clock::now();
  progress_at_ = stir_at_ = start_;
  cluster_.start_keeper();
  while (next_change_ < trace_.size() && trace_[next_change_].at <= 0ms) {
    for (int i = 0; i < trace_[next_change_].delta; ++i)
      start_worker();
    ++next_change_;
  }
  tally_.joins = 0;
  id_ = cluster_.client().submit(job);
  meter_.sample(clock::now(), {0, 0}, 0);
  activity_ = "starting";
  wait_until_settled();
  if (options_.trace.empty()) {
    const auto rounds = std::max<std::uint64_t>(1, job.steps / round_steps);
    const auto count = rounds * std::size(aims);
    for (std::uint64_t i = 0; i < count; ++i) {
      idle_until((i + 1) * job.steps / (count + 2));
      refill();
      carry_out(aims[i % std::size(aims)]);
      wait_until_settled();
    }
    // Each kind of migration three times, whatever the planner made of the above.
    for (int more = 0; more < max_more && !over(); ++more) {
      const auto& done = job_.migrations;
      if (std::min({done.intra_stage, done.inter_stage, done.pipeline}) >= each_kind)
        break;
      refill();
      carry_out(done.inter_stage < each_kind ? aim::pair
                : done.pipeline < each_kind  ? aim::whole_stage
                                             : aim::one_noticed);
      wait_until_settled();
    }
  }
  // The last step is not the end: the keeper must hold what it made.
  idle_until(UINT64_MAX);
  if (!options_.trace.empty())
    tally_.trace_left = trace_.size() - next_change_;
  tally_.losses_during_change = losses_during_change();
  return job_of(ask({.job = id_}), id_);
}

status_reply demo_run::ask(const status_request& wanted) {
  for (const auto give_up = clock::now() + standstill_limit;;) {
    try {
      return cluster_.client().status(wanted);
    } catch (const client_error&) {
      if (cluster_.manager().poll() || clock::now() > give_up)
        throw;
    }
  }
}

const job_status& demo_run::look(std::chrono::milliseconds after) {
  std::this_thread::sleep_for(after);
  status_ = ask({.job = id_, .changes_from = UINT64_MAX, .events_from = UINT64_MAX, .decisions_from = UINT64_MAX});
  auto now = clock::now();
  job_ = job_of(status_, id_);
  if (job_.state == "failed" || job_.state == "cancelled")
    throw cluster_error("the job " + job_.state + ": " + job_.problem);
  if (job_.steps_done > best_step_) {
    best_step_ = job_.steps_done;
    progress_at_ = now;
  }
  if (now - progress_at_ > standstill_limit)
    throw cluster_error("no step was made for long, in phase " + job_.phase + ": " + job_.problem);
  auto state = std::to_string(job_.generation) + job_.phase + std::to_string(living(status_, "worker"));
  if (state != stirred_) {
    stirred_ = state;
    stir_at_ = now;
  }
  for (const auto& x : status_.instances) {
    auto i = killed_.find(x.name);
    if (i == killed_.end() || x.lost_at_us < 0)
      continue;
    losses_.push_back({microseconds(i->second), x.lost_at_us});
    tally_.detect_ms.push_back(static_cast<double>(x.lost_at_us - losses_.back().killed_us) / 1000);
    killed_.erase(i);
  }
  auto steady = job_.phase == "running" && now - stir_at_ > 1s;
  meter_.sample(now, {job_.width, job_.depth}, steady ? job_.step_ms : 0);
  show_({activity_, job_, living(status_, "worker")});
  return job_;
}

void demo_run::start_worker() {
  std::vector<std::string> arguments;
  if (slot_bytes_ > 0)
    arguments = {"--slot-memory", std::to_string(slot_bytes_)};
  cluster_.start_node("w" + std::to_string(++next_name_), arguments);
  ++expected_workers_;
  ++tally_.joins;
}

void demo_run::refill() {
  if (over() || expected_workers_ >= static_cast<std::size_t>(options_.instances))
    return;
  activity_ = "joins";
  while (expected_workers_ < static_cast<std::size_t>(options_.instances))
    start_worker();
  wait_until_settled();
}

// Training, on all instances that should be there, and nothing has happened for a moment.
void demo_run::wait_until_settled() {
  while (!over()) {
    const auto& job = look(look_interval);
    if (job.phase == "running" && !job.chain.empty() && job.steps_done > job.chain.back().base &&
        living(status_, "worker") == expected_workers_ && clock::now() - stir_at_ > settle_time)
      return;
    // Too few instances to train on: nothing to wait for but what the trace brings.
    if (job.phase == "waiting" && living(status_, "worker") == expected_workers_ &&
        clock::now() - stir_at_ > settle_time)
      return;
  }
}

void demo_run::idle_until(std::uint64_t step) {
  activity_ = "training";
  while (!over() && job_.steps_done < step) {
    look(look_interval);
    follow_trace();
  }
}

void demo_run::follow_trace() {
  if (next_change_ >= trace_.size() || clock::now() - start_ < trace_[next_change_].at)
    return;
  auto delta = trace_[next_change_++].delta;
  activity_ = "the trace";
  for (int i = 0; i < delta; ++i)
    if (!options_.trace.empty() || expected_workers_ < static_cast<std::size_t>(options_.instances))
      start_worker();
  auto present = workers(false);
  std::vector<std::string> at_once;
  for (int i = 0; i > delta && !present.empty(); --i) {
    auto victim = present.begin() + static_cast<std::ptrdiff_t>(random_() % present.size());
    if (random_() % 2 == 0)
      notice(*victim);
    else
      at_once.push_back(*victim);
    present.erase(victim);
  }
  kill(at_once);
}

void demo_run::carry_out(aim what) {
  if (over())
    return;
  look(look_interval);
  // Without a grid there is nothing to aim at.
  if (job_.grid.empty())
    return;
  switch (what) {
  case aim::one:
    activity_ = "one place lost";
    kill({some_place()});
    break;
  case aim::one_noticed:
    activity_ = "notice to one place";
    notice(some_place());
    break;
  case aim::pair: {
    activity_ = "two replicas of a stage lost";
    auto names = replicas_of_some_stage();
    names.resize(std::min<std::size_t>(names.size(), 2));
    kill(names);
    break;
  }
  case aim::whole_stage:
    activity_ = "all replicas of a stage lost";
    kill(replicas_of_some_stage());
    break;
  case aim::during_change:
    kill_during_change();
    break;
  }
}

// A change takes some 50 ms: the kill may come too late, or the change be over before it was seen.
void demo_run::kill_during_change() {
  const auto before = losses_during_change();
  for (int i = 0; i < attempts && !over() && !job_.grid.empty() && losses_during_change() == before; ++i) {
    activity_ = "loss during a change";
    auto first = some_place();
    auto second = some_place(first);
    notice(first);
    auto deadline = clock::now() + change_limit;
    while (!over() && look(aiming_interval).phase == "running" && clock::now() < deadline)
      continue;
    if (job_.phase != "running")
      kill({second});
    wait_until_settled();
    refill();
  }
}

std::uint64_t demo_run::losses_during_change() {
  const auto all = ask({.job = id_, .events_from = UINT64_MAX, .decisions_from = UINT64_MAX});
  const auto& changes = job_of(all, id_).changes;
  return static_cast<std::uint64_t>(std::count_if(losses_.begin(), losses_.end(), [&](const loss& x) {
    return std::any_of(changes.begin(), changes.end(), [&](const change_status& c) {
      return c.at_us < x.killed_us && static_cast<double>(x.lost_us - c.at_us) < c.active_ms * 1000;
    });
  }));
}

void demo_run::kill(const std::vector<std::string>& names) {
  if (names.empty())
    return;
  for (const auto& name : names) {
    killed_[name] = clock::now();
    cluster_.node(name).signal(SIGKILL);
  }
  auto count = names.size();
  tally_.preemptions += count;
  tally_.preemptions_without_notice += count;
  tally_.simultaneous_losses += count >= 2 ? 1 : 0;
  for (std::uint32_t stage = 0; stage < job_.depth && job_.depth >= 2; ++stage) {
    bool all = true;
    for (std::uint32_t d = 0; d < job_.width; ++d)
      all = all && std::find(names.begin(), names.end(), instance_of(job_.grid[d * job_.depth + stage])) != names.end();
    tally_.stage_losses += all ? 1 : 0;
  }
  expected_workers_ -= std::min(expected_workers_, count);
}

void demo_run::notice(const std::string& name) {
  cluster_.client().preempt({.names = {name}, .any = 0, .seed = 0, .notice_ms = notice_ms});
  ++tally_.preemptions;
  expected_workers_ -= std::min<std::size_t>(expected_workers_, 1);
}

std::vector<std::string> demo_run::workers(bool with_leaving) const {
  std::vector<std::string> result;
  for (const auto& x : status_.instances)
    if (x.role == "worker" && (x.state == "alive" || (with_leaving && x.state == "leaving")) &&
        !killed_.contains(x.name))
      result.push_back(x.name);
  return result;
}

std::vector<std::string> demo_run::replicas_of_some_stage() {
  std::vector<std::string> result;
  auto stage = static_cast<std::uint32_t>(random_() % job_.depth);
  for (std::uint32_t d = 0; d < job_.width; ++d)
    result.push_back(instance_of(job_.grid[d * job_.depth + stage]));
  return result;
}

std::string demo_run::some_place(const std::string& but) {
  std::vector<std::string> names;
  for (const auto& slot : job_.grid)
    if (auto name = instance_of(slot); name != but)
      names.push_back(name);
  return names.empty() ? but : names[random_() % names.size()];
}

} // namespace parcae
