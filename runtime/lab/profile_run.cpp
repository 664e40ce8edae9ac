#include "runtime/lab/profile_run.hpp"

#include "runtime/lab/local_cluster.hpp"

#include <algorithm>
#include <csignal>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>

namespace parcae {

namespace {

using clock = std::chrono::steady_clock;

constexpr std::chrono::minutes limit{10};
constexpr std::uint64_t notice_ms = 4'000;      // longer than a change takes
constexpr const char* naps = "1ms";             // about what ranks of small models wait for each other
constexpr std::chrono::seconds others_load{20}; // the first slot is planned with while others load the job
constexpr std::uint64_t day_ms = 86'400'000;    // no planning in between

double ms_since(clock::time_point from) {
  return std::chrono::duration<double, std::milli>(clock::now() - from).count();
}

/// A cluster with one job.
class rig {
public:
  rig(const std::filesystem::path& logs, job_specification job, std::string device) :
      job_(std::move(job)), device_(std::move(device)), cluster_(sibling_program(""), logs) {}

  void start_keeper() { cluster_.start_keeper(); }

  /// Returns when it is a member; milliseconds.
  double start_worker(std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.end(), {"--device", device_});
    const auto began = clock::now();
    const auto name = "n" + std::to_string(++nodes_);
    cluster_.start_node(name, arguments);
    slot_bytes_ = wait_for_state(name, "alive").slot_bytes;
    return ms_since(began);
  }

  std::uint64_t slot_bytes() const { return slot_bytes_; } ///< of memory, that the newest worker's slots promise

  void submit() { id_ = cluster_.client().submit(job_); }

  /// Until the condition holds of the job.
  job_status wait_for(const std::string& what, const std::function<bool(const job_status&)>& condition) {
    const auto x =
        cluster_.wait_for(what, limit,
                          [&](const status_reply& reply) {
                            const auto& job = job_of(reply, id_);
                            if (job.state == "failed" || job.state == "done")
                              throw cluster_error("the job ended (" + job.state + "): " + job.problem);
                            if (job.state == "queued" && job.problem.find("fits their memory") != std::string::npos)
                              throw cluster_error("the job cannot be measured here: " + job.problem);
                            const bool waits = job.state == "running" && job.generation == 0 &&
                                               !job.decisions.empty() &&
                                               job.decisions.back().chosen.configuration == "waiting";
                            if (!waits)
                              waits_since_.reset();
                            else if (!waits_since_)
                              waits_since_ = clock::now();
                            else if (clock::now() - *waits_since_ > others_load)
                              throw cluster_error("the job cannot be measured here: " + job.problem);
                            return condition(job);
                          },
                          {.job = id_, .events_from = UINT64_MAX});
    return job_of(x, id_);
  }

  /// Until a later generation than `before` has made a step.
  job_status settled(std::uint64_t before) {
    return wait_for("a change of generation", [&](const job_status& x) {
      return x.generation > before && x.phase == "running" && !x.chain.empty() && x.steps_done > x.chain.back().base &&
             !x.changes.empty() && x.changes.back().to == x.generation;
    });
  }

  void kill(const std::string& slot) {
    const auto name = instance_of(slot);
    cluster_.node(name).signal(SIGKILL);
    wait_for_state(name, "lost");
  }

  void preempt(const std::string& slot) {
    cluster_.client().preempt({.names = {instance_of(slot)}, .any = 0, .seed = 0, .notice_ms = notice_ms});
  }

  void checkpoint() { cluster_.client().checkpoint(id_); }

private:
  instance_status wait_for_state(const std::string& name, const std::string& state) {
    const auto is_meant = [&](const instance_status& i) { return i.name == name && i.state == state; };
    const auto x = cluster_.wait_for(name + " to be " + state, limit,
                                     [&](const status_reply& x) { return std::ranges::any_of(x.instances, is_meant); });
    return *std::ranges::find_if(x.instances, is_meant);
  }

  static std::string instance_of(const std::string& slot) { return slot.substr(0, slot.find('/')); }

  job_specification job_;
  std::string device_;
  local_cluster cluster_;
  std::uint64_t id_ = 0;
  int nodes_ = 0;
  std::uint64_t slot_bytes_ = 0;
  std::optional<clock::time_point> waits_since_;
};

/// Of the configuration it is in.
const configuration_status* measured_row(const job_status& x) {
  for (const auto& c : x.configurations)
    if (c.width == x.width && c.depth == x.depth && c.measured_steps > 0)
      return &c;
  return nullptr;
}

/// Statuses of jobs at 1×1, after as many of them trained side by side for a while.
std::vector<job_status> steps_side_by_side(const job_specification& job, const profile_options& options,
                                           std::uint32_t jobs, job_measurements* first = nullptr,
                                           const std::vector<std::string>& node_arguments = {}) {
  const scratch_folder logs("parcae-profile");
  std::vector<std::unique_ptr<rig>> rigs;
  for (std::uint32_t i = 0; i < jobs; ++i) {
    const auto folder = logs.path() / std::to_string(i);
    std::filesystem::create_directory(folder);
    rigs.push_back(std::make_unique<rig>(folder, endless_job_of(job, 1, 1), options.device));
    rigs.back()->start_keeper(); // snapshots take their time too
    rigs.back()->start_worker(node_arguments);
  }
  const auto submitted = clock::now();
  for (auto& x : rigs)
    x->submit();
  for (auto& x : rigs)
    x->wait_for("a step", [](const job_status& s) { return s.steps_done > 0; });
  if (first) {
    first->first_step_ms = ms_since(submitted);
    first->slot_bytes = rigs.front()->slot_bytes();
  }
  const auto began = clock::now();
  std::vector<job_status> result;
  for (auto& x : rigs)
    result.push_back(x->wait_for(
        "steps", [&](const job_status& s) { return measured_row(s) && clock::now() - began > options.duration; }));
  return result;
}

void measure_steps(job_measurements& to, const job_specification& job, const profile_options& options,
                   const std::function<void(const std::string&)>& show) {
  show("steps on one slot");
  const auto alone = steps_side_by_side(job, options, 1, &to).front();
  to.layers = alone.layer_costs;
  show("steps on one slot that waits now and then");
  const auto waiting = steps_side_by_side(job, options, 1, nullptr, {"--naps", naps}).front();
  for (std::size_t i = 0; i < to.layers.size(); ++i)
    to.layers[i].waking = waiting.layer_costs.at(i).waking;
  to.step_ms = job.global_batch * 1000.0 / measured_row(alone)->samples_per_s;
  to.platform.step_ms = std::max(0.0, to.step_ms - layers_ms(job, to.layers));
  to.memory = alone.memory.at(0);
  const auto cores = options.device != "cpu" ? 1
                     : options.cores > 0     ? options.cores
                                             : std::max(1u, std::thread::hardware_concurrency());
  // Not by the clock: side by side, each job has a manager and a keeper of its own to wait for.
  std::map<std::uint32_t, double> beside_ms; // by number
  for (std::uint32_t jobs = 1; jobs < cores;) {
    jobs = std::min(2 * jobs, cores);
    show("steps on " + std::to_string(jobs) + " slots side by side");
    for (const auto& x : steps_side_by_side(job, options, jobs))
      beside_ms[jobs] += layers_ms(job, x.layer_costs) / jobs;
  }
  to.platform.crowding = {1};
  if (beside_ms.empty())
    return;
  // Alone before and after, as speeds of shared machines drift; and without naps, which leave caches cold.
  show("steps on one slot again");
  const auto again = steps_side_by_side(job, options, 1).front();
  const double alone_ms = (layers_ms(job, alone.layer_costs) + layers_ms(job, again.layer_costs)) / 2;
  for (const auto& [jobs, ms] : beside_ms) { // between the numbers measured it grows evenly
    const auto known = static_cast<std::uint32_t>(to.platform.crowding.size());
    const double last = to.platform.crowding.back(), now = std::max(last, ms / alone_ms);
    for (auto k = known + 1; k <= jobs; ++k)
      to.platform.crowding.push_back(last + (now - last) * (k - known) / (jobs - known));
  }
}

/// Losses without notice and with one, in turn; a spare takes over each time. Two slots are used: two stages, where the
/// model has two layers.
void measure_changes(job_measurements& to, const job_specification& job, const profile_options& options,
                     const std::function<void(const std::string&)>& show) {
  const scratch_folder logs("parcae-profile");
  const bool deep = to.layers.size() > 1;
  auto small = endless_job_of(job, deep ? 1 : 2, deep ? 2 : 1);
  small.min_width = small.max_width;
  small.min_depth = small.max_depth;
  rig x(logs.path(), small, options.device);
  x.start_keeper();
  std::vector<double> starts{x.start_worker(), x.start_worker()};
  x.submit();
  auto now = x.settled(0);
  x.wait_for("a snapshot", [](const job_status& s) { return s.protected_steps > 0; });
  for (std::uint32_t i = 0; i < options.changes; ++i) {
    show("changes of generation: " + std::to_string(i) + " of " + std::to_string(options.changes));
    starts.push_back(x.start_worker());
    const auto before = now.generation;
    const auto victim = now.grid.at(i / 2 % now.grid.size());
    if (i % 2 == 0)
      x.kill(victim);
    else
      x.preempt(victim);
    now = x.settled(before);
  }
  show("a checkpoint");
  const auto began = clock::now();
  x.checkpoint();
  x.wait_for("a checkpoint", [](const job_status& s) { return s.checkpoint_steps > 0; });
  to.checkpoint_ms = ms_since(began);
  std::nth_element(starts.begin(), starts.begin() + static_cast<std::ptrdiff_t>(starts.size() / 2), starts.end());
  to.node_start_ms = starts[starts.size() / 2];
  now = x.wait_for("figures", [](const job_status&) { return true; });
  to.changes = now.change_figures;
  to.record = now.changes;
}

} // namespace

job_specification endless_job_of(job_specification job, std::uint32_t width, std::uint32_t depth) {
  job.steps = std::max<std::uint64_t>(job.steps, 1'000'000'000);
  job.max_width = width;
  job.max_depth = depth;
  job.min_width = job.min_depth = 1;
  job.policy = "throughput";
  job.planning_interval_ms = day_ms;
  job.evaluate_every = 0;
  job.patience = 0;
  job.min_delta = 0;
  job.checkpoint_every = job.checkpoint_every_ms = 0;
  job.resume = {};
  return job;
}

configuration_run run_configuration(const job_specification& job, std::uint32_t width, std::uint32_t depth,
                                    std::chrono::milliseconds duration) {
  const scratch_folder logs("parcae-profile");
  auto fixed = endless_job_of(job, width, depth);
  fixed.min_width = width;
  fixed.min_depth = depth;
  rig x(logs.path(), fixed, "cpu");
  x.start_keeper();
  for (std::uint32_t i = 0; i < width * depth; ++i)
    x.start_worker();
  x.submit();
  auto now = x.settled(0);
  if (depth > 1) { // the first stages were cut by estimates: one more generation
    now = x.wait_for("steps", [](const job_status& s) { return measured_row(s); });
    x.start_worker();
    x.preempt(now.grid.at(0));
    now = x.settled(now.generation);
  }
  const auto generation = now.generation;
  // From the moment that some steps are heard of to another one, so that no part of a step is counted.
  const auto next_news = [&](std::chrono::milliseconds after) {
    const auto from = clock::now();
    auto heard = UINT64_MAX;
    return x.wait_for("steps", [&](const job_status& s) {
      if (s.generation != generation || !measured_row(s) || clock::now() - from < after)
        return false;
      heard = std::min(heard, s.steps_done);
      return s.steps_done > heard;
    });
  };
  const auto before = next_news(std::chrono::milliseconds(0));
  const auto began = clock::now();
  configuration_run result{next_news(duration), 0};
  const std::chrono::duration<double> elapsed = clock::now() - began;
  result.samples_per_s =
      static_cast<double>((result.status.steps_done - before.steps_done) * job.global_batch) / elapsed.count();
  return result;
}

job_measurements profile_job(const job_specification& job, const profile_options& options,
                             const std::function<void(const std::string&)>& show) {
  job_measurements result;
  measure_steps(result, job, options, show);
  show("the link");
  result.link = measure_link();
  result.platform.latency_ms = result.link.latency_ms;
  result.platform.bytes_per_ms = result.link.bytes_per_ms;
  result.platform.message_ms = result.link.message_ms;
  result.platform.message_ms_per_byte = result.link.message_ms_per_byte;
  result.platform.reduce_ms_per_byte = result.link.reduce_ms_per_byte;
  if (options.changes > 0)
    measure_changes(result, job, options, show);
  return result;
}

} // namespace parcae
