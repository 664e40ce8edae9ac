// How long training stands still: real processes on this machine, SIGKILL, GPT of 10.0 M parameters, six and two nodes.
// With --device: four nodes, which share it, SIGKILL and notices, and how soon the memory of who died is free. Prints
// JSON objects and its figures; fails if one is beyond its bound.

#include "gpu/device/cuda_library.hpp"
#include "runtime/lab/local_cluster.hpp"
#include "tests/bench/bench_jobs.hpp"
#include "tests/bench/figures.hpp"
#include "tests/bench/gpu_memory.hpp"
#include "tests/bench/measure.hpp"

#include <boost/json.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace parcae {
namespace {

using namespace std::chrono_literals;

boost::json::object summary(const std::vector<double>& x) {
  if (x.empty())
    return {{"n", 0}};
  return {{"n", x.size()}, {"p50", percentile(x, 0.5)}, {"p99", percentile(x, 0.99)}, {"max", percentile(x, 1)}};
}

struct measured {
  std::vector<double> detect_ms, decided_ms, stall_ms, to_commit_ms, beyond_one_step_ms, join_ms;
  std::vector<double> notice_stall_ms, notice_bytes;
  std::vector<double> watched_stall_ms; ///< of kills while `parcae web` asked the manager; the others are in stall_ms
  double freed_ms = std::nan("");       ///< until the memory of all nodes, which died at once, was free
  std::map<std::string, std::vector<double>> phases, join_phases;
};

/// From the beginning of a stall on. When one joins, decisions, plans and preparations come before it.
void add_phases(std::map<std::string, std::vector<double>>& to, const change_status& change) {
  const auto began = change.active_ms - change.stall_ms;
  const auto within = [&](double from, double until) { return std::max(0.0, until - std::max(from, began)); };
  to["decided"].push_back(within(0, change.decided_ms));
  to["planned"].push_back(within(change.decided_ms, change.planned_ms));
  to["prepared"].push_back(within(change.planned_ms, change.prepared_ms));
  to["transferred"].push_back(within(change.prepared_ms, change.ready_ms));
  to["activated"].push_back(within(change.ready_ms, change.active_ms));
  if (change.first_commit_ms >= 0)
    to["first commit"].push_back(change.first_commit_ms - change.active_ms);
}

/// Phases of a recovery in their order, as they are shown: what nobody trains in, then the first step.
constexpr std::array<std::pair<const char*, const char*>, 6> shown_phases{
    {{"decided", "ABORT and the decision"},
     {"planned", "planning"},
     {"prepared", "PREPARE"},
     {"transferred", "state on its way"},
     {"activated", "ACTIVATE"},
     {"first commit", "the first step, until its commit is heard of"}}};

struct trial {
  int nodes = 0;
  int kills = 0;
  int notices = 0;
  bool watched_by_turns = false; ///< `parcae web` is there at the second and third of four kills
  std::string device = "cpu";    ///< of all nodes
  job_specification job;
};

constexpr std::chrono::milliseconds notice = 8s; // then who had it is gone

/// Until the GPU has as much free memory as it had, but for what is rounded; ms.
double until_free(const gpu_memory& gpu, std::uint64_t bytes) {
  constexpr std::uint64_t rounded = 64 << 20;
  const auto began = monotonic_us();
  while (gpu.free_bytes() + rounded < bytes && monotonic_us() - began < 60'000'000)
    std::this_thread::sleep_for(1ms);
  return static_cast<double>(monotonic_us() - began) / 1e3;
}

/// Trains, kills one of the nodes at random that has a place in the grid, and replaces it, `kills` times; then with
/// notice, `notices` times. In the end kills all at once.
measured measure(const trial& x, std::uint64_t seed) {
  const scratch_folder logs("recovery-bench");
  local_cluster cluster(sibling_program("parcae").parent_path(), logs.path());
  std::optional<gpu_memory> gpu;
  if (const auto choice = parse_device_choice(x.device); !choice.numbers.empty())
    gpu.emplace(static_cast<int>(choice.numbers.front()));
  const auto free_before = gpu ? gpu->free_bytes() : 0;
  cluster.start_keeper();
  std::vector<std::string> names;
  int started = 0;
  auto start = [&] {
    names.push_back("n" + std::to_string(started++));
    cluster.start_node(names.back(), {"--device", x.device});
  };
  for (int i = 0; i < x.nodes; ++i)
    start();
  cluster.wait_for("all nodes to join", 120s,
                   [&](const auto& s) { return living(s, "worker") == static_cast<std::size_t>(x.nodes); });
  const auto id = cluster.client().submit(x.job);
  // A change is done with its first commit; the generation must have committed once more before the next event.
  auto settled = [&](std::size_t workers) {
    std::uint64_t generation = 0, steps = 0;
    return cluster.wait_for("training to go on", 300s, [&](const auto& s) {
      const auto& job = job_of(s, id);
      if (job.generation != generation) {
        generation = job.generation;
        steps = job.steps_done;
      }
      return living(s, "worker") == workers && job.phase == "running" && job.steps_done >= steps + 2;
    });
  };
  measured out;
  std::mt19937_64 random(seed);
  auto before = settled(static_cast<std::size_t>(x.nodes));
  const auto one_in_the_grid = [&] {
    const auto& grid = job_of(before, id).grid;
    const auto& slot = grid.at(random() % grid.size());
    return slot.substr(0, slot.find('/'));
  };
  bool watched = false;
  const auto watch_at = [&](int kill) {
    const bool before_it = std::exchange(watched, x.watched_by_turns && (kill % 4 == 1 || kill % 4 == 2));
    if (watched && !before_it)
      cluster.start_web();
    else if (!watched)
      cluster.stop_web();
  };
  for (int k = 0; k < x.kills; ++k) {
    const auto name = one_in_the_grid();
    const auto seen = job_of(before, id).change_count;
    const auto killed_us = monotonic_us();
    cluster.node(name).signal(SIGKILL);
    std::erase(names, name);
    const auto after = settled(names.size());
    for (const auto& y : after.instances)
      if (y.name == name && y.lost_at_us >= 0)
        out.detect_ms.push_back(static_cast<double>(y.lost_at_us - killed_us) / 1e3);
    const auto& job = job_of(after, id);
    // A peer that misses it may be heard before the loss is: then the first change is after that.
    constexpr auto never = std::numeric_limits<double>::infinity();
    double decided = never, committed = never;
    for (const auto& change : job.changes) {
      if (change.number < seen)
        continue;
      const auto since_kill = static_cast<double>(change.at_us - killed_us) / 1e3;
      if (change.decided_ms >= 0 && decided == never)
        decided = since_kill + change.decided_ms;
      if (change.first_commit_ms >= 0 && committed == never)
        committed = since_kill + change.first_commit_ms;
      if (change.trigger.starts_with("loss")) {
        (watched ? out.watched_stall_ms : out.stall_ms).push_back(change.stall_ms);
        add_phases(out.phases, change);
      }
    }
    out.decided_ms.push_back(decided);
    out.to_commit_ms.push_back(committed);
    out.beyond_one_step_ms.push_back(committed - job.step_ms);
    const auto joined_from = job.change_count;
    watch_at(k + 1); // it has asked often when the next one is killed
    start();
    before = settled(names.size());
    for (const auto& change : job_of(before, id).changes)
      if (change.number >= joined_from && change.trigger.starts_with("join")) {
        out.join_ms.push_back(change.stall_ms);
        add_phases(out.join_phases, change);
      }
    std::cerr << "kill " << k + 1 << " of " << x.kills << ": stall " << percentile(out.stall_ms, 0.5)
              << " ms (median)\n";
  }
  for (int k = 0; k < x.notices; ++k) {
    const auto name = one_in_the_grid();
    const auto seen = job_of(before, id).change_count;
    cluster.client().preempt({.names = {name}, .notice_ms = static_cast<std::uint64_t>(notice.count())});
    std::erase(names, name);
    const auto after = settled(names.size());
    for (const auto& change : job_of(after, id).changes)
      if (change.number >= seen && change.trigger.starts_with("notice")) {
        out.notice_stall_ms.push_back(change.stall_ms);
        out.notice_bytes.push_back(static_cast<double>(change.bytes));
      }
    start();
    before = settled(names.size());
    std::cerr << "notice " << k + 1 << " of " << x.notices << ": stall " << percentile(out.notice_stall_ms, 0.5)
              << " ms (median)\n";
  }
  if (gpu) {
    for (const auto& name : names)
      cluster.node(name).signal(SIGKILL);
    out.freed_ms = until_free(*gpu, free_before);
  }
  return out;
}

void show_phases(const std::string& where, const measured& x, figures& out) {
  out.only_shown(where + ": kill to its detection, p50, ms", percentile(x.detect_ms, 0.5));
  out.only_shown(where + ": kill to its detection, p99, ms", percentile(x.detect_ms, 0.99));
  for (const auto& [name, text] : shown_phases) {
    const auto known = x.phases.find(name);
    for (const auto& [part, label] : {std::pair(0.5, ", p50, ms"), std::pair(0.99, ", p99, ms")})
      if (known != x.phases.end())
        out.only_shown(where + ": " + text + label, percentile(known->second, part));
  }
}

boost::json::object json_of(const measured& x) {
  const auto by_phase = [](const auto& phases) {
    boost::json::object object;
    for (const auto& [name, ms] : phases)
      object[name] = summary(ms);
    return object;
  };
  return {{"detect_ms", summary(x.detect_ms)},
          {"stall_ms", summary(x.stall_ms)},
          {"stall_by_phase_ms", by_phase(x.phases)},
          {"kill_to_next_commit_ms", summary(x.to_commit_ms)},
          {"kill_to_next_commit_less_one_step_ms", summary(x.beyond_one_step_ms)},
          {"nobody_steps_when_one_joins_ms", summary(x.join_ms)},
          {"nobody_steps_when_one_joins_by_phase_ms", by_phase(x.join_phases)}};
}

job_specification job_for(const std::string& model) {
  auto job = bench_job(model);
  if (model == "gpt2") { // several share one GPU's memory
    job.global_batch = 32;
    job.micro_batch = 4;
  }
  return job;
}

struct arguments {
  int kills_at_six = 100;
  int kills_at_two = 20;
  std::string device;
  std::string model = "small";
  int kills = 8;
  int notices = 5;
  double mb_per_s = 0;
  int watched = 0;
};

void on_one_device(const arguments& x, figures& out) {
  constexpr int nodes = 4;
  const auto all = measure({.nodes = nodes, .kills = x.kills, .device = x.device, .job = job_for(x.model)}, 4);
  std::cout << boost::json::serialize(boost::json::object{{"four nodes", json_of(all)}}) << std::endl;
  out.only_shown("kill to its detection, p50, ms", percentile(all.detect_ms, 0.5));
  // All have said ABORTED when it is decided.
  out.at_most("kill to ABORTED, p50, ms", percentile(all.decided_ms, 0.5), 300);
  out.at_most("kill to ABORTED, worst, ms", percentile(all.decided_ms, 1), 2000);
  out.only_shown("kill to next commit, p50, ms", percentile(all.to_commit_ms, 0.5));
  out.at_most("kill to next commit, less one step, p50, ms", percentile(all.beyond_one_step_ms, 0.5), 1000);
  if (std::isfinite(all.freed_ms))
    out.at_most("kill of all to their memory free, ms", all.freed_ms, 2000);
  auto deep = job_for(x.model); // so that layers have to move
  deep.max_width = 1;
  const auto told = measure({.nodes = nodes, .notices = x.notices, .device = x.device, .job = deep}, 5);
  const auto bytes = percentile(told.notice_bytes, 0.5), stall = percentile(told.notice_stall_ms, 0.5);
  out.only_shown("with notice: bytes moved, p50, MB", bytes / 1e6);
  if (x.mb_per_s > 0)
    out.at_most("with notice: stall, p50, ms", stall, 1.2 * bytes / x.mb_per_s / 1e3 + 50);
  else
    out.only_shown("with notice: stall, p50, ms", stall);
}

/// By turns in one run: figures of different days say little of what a viewer costs.
void while_watched(int kills, figures& out) {
  const auto x = measure({.nodes = 2, .kills = kills, .watched_by_turns = true, .job = job_for("small")}, 7);
  const auto without = percentile(x.stall_ms, 0.5), with = percentile(x.watched_stall_ms, 0.5);
  std::cout << boost::json::serialize(boost::json::object{
                   {"two nodes, by turns",
                    {{"stall_ms", summary(x.stall_ms)}, {"watched_stall_ms", summary(x.watched_stall_ms)}}}})
            << std::endl;
  out.only_shown("two nodes: stall, p50, ms, while nobody watches", without);
  out.at_most("two nodes: stall while parcae web watches over that while nobody does, p50", with / without, 1.25);
}

} // namespace
} // namespace parcae

int main(int argc, char** argv) {
  using namespace parcae;
  arguments a;
  CLI::App app{"How long training stands still when nodes are killed.", "recovery_bench"};
  app.add_option("kills_at_six", a.kills_at_six)->capture_default_str();
  app.add_option("kills_at_two", a.kills_at_two)->capture_default_str();
  auto* device = app.add_option("--device", a.device, "four nodes share it instead: cpu, or cuda:N");
  app.add_option("--model", a.model, "there: small, gpt2, or tiny")->capture_default_str()->needs(device);
  app.add_option("--kills", a.kills, "there")->capture_default_str()->needs(device);
  app.add_option("--notices", a.notices, "there")->capture_default_str()->needs(device);
  app.add_option("--rate", a.mb_per_s, "of transfers, MB/s, that a stall with notice is held to; 0: to none")
      ->needs(device);
  app.add_option("--watched", a.watched, "kills of one of two nodes, half of them while `parcae web` watches")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  figures out;
  if (!a.device.empty()) {
    on_one_device(a, out);
    return out.status();
  }
  const auto job = job_for("small");
  if (a.kills_at_two > 0) {
    const auto x = measure({.nodes = 2, .kills = a.kills_at_two, .job = job}, 2);
    std::cout << boost::json::serialize(boost::json::object{{"two nodes", json_of(x)}}) << std::endl;
    out.at_most("two nodes: kill to next commit, less one step, p50, ms", percentile(x.beyond_one_step_ms, 0.5), 100);
    // Steadier than that, which is the small difference of two long times.
    out.at_most("two nodes: stall, p50, ms", percentile(x.stall_ms, 0.5), 60);
    out.at_most("two nodes: nobody steps when one joins, p50, ms", percentile(x.join_ms, 0.5), 150);
  }
  if (a.kills_at_six > 0) {
    const auto x = measure({.nodes = 6, .kills = a.kills_at_six, .job = job}, 6);
    std::cout << boost::json::serialize(boost::json::object{{"six nodes", json_of(x)}}) << std::endl;
    show_phases("six nodes", x, out);
    // A spare has room ready: only connections are made.
    out.at_most("six nodes: PREPARE after a kill, p50, ms", percentile(x.phases.at("prepared"), 0.5), 10);
    out.at_most("six nodes: stall, p50, ms", percentile(x.stall_ms, 0.5), 250);
    out.at_most("six nodes: stall, p99, ms", percentile(x.stall_ms, 0.99), 500);
  }
  if (a.watched > 0)
    while_watched(a.watched, out);
  return out.status();
}
