// How long training stands still: real processes on this machine, SIGKILL, GPT of 10.0 M parameters. Prints one JSON
// object for six and for two nodes, and its figures; fails if one is beyond its bound. Arguments:
// [kills at six nodes = 100] [kills at two nodes = 20].

#include "runtime/lab/local_cluster.hpp"
#include "tests/bench/figures.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <random>

namespace parcae {
namespace {

using namespace std::chrono_literals;

double percentile(std::vector<double> x, double p) {
  if (x.empty())
    return std::nan("");
  std::ranges::sort(x);
  return x[std::min(x.size() - 1, static_cast<std::size_t>(p * static_cast<double>(x.size())))];
}

boost::json::object summary(const std::vector<double>& x) {
  if (x.empty())
    return {{"n", 0}};
  return {{"n", x.size()}, {"p50", percentile(x, 0.5)}, {"p99", percentile(x, 0.99)}, {"max", percentile(x, 1)}};
}

std::int64_t monotonic_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

job_specification ten_million() {
  job_specification job;
  job.name = "recovery";
  job.steps = 1'000'000;
  job.model = {"gpt", 6, 368, 8, 128, 256, 0, true};
  job.data = {"text", "/usr/share/common-licenses"};
  job.global_batch = 16;
  job.micro_batch = 4;
  job.virtual_replicas = 4;
  job.optimizer.clip_norm = 1;
  job.keeper_every = 10;
  return job;
}

struct measured {
  std::vector<double> detect_ms, stall_ms, to_commit_ms, beyond_one_step_ms, join_ms;
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
}

/// Trains on `nodes` workers, kills one at random that has a place in the grid, and replaces it, `kills` times.
measured measure(int nodes, int kills, std::uint64_t seed) {
  const scratch_folder logs("recovery-bench");
  local_cluster cluster(sibling_program("parcae").parent_path(), logs.path());
  cluster.start_keeper();
  std::vector<std::string> names;
  int started = 0;
  auto start = [&] {
    names.push_back("n" + std::to_string(started++));
    cluster.start_node(names.back());
  };
  for (int i = 0; i < nodes; ++i)
    start();
  cluster.wait_for("all nodes to join", 30s,
                   [&](const auto& x) { return living(x, "worker") == static_cast<std::size_t>(nodes); });
  const auto id = cluster.client().submit(ten_million());
  // A change is done with its first commit; the generation must have committed once more before the next event.
  auto settled = [&](std::size_t workers) {
    std::uint64_t generation = 0, steps = 0;
    return cluster.wait_for("training to go on", 300s, [&](const auto& x) {
      const auto& job = job_of(x, id);
      if (job.generation != generation) {
        generation = job.generation;
        steps = job.steps_done;
      }
      return living(x, "worker") == workers && job.phase == "running" && job.steps_done >= steps + 2;
    });
  };
  measured out;
  std::mt19937_64 random(seed);
  auto before = settled(static_cast<std::size_t>(nodes));
  for (int k = 0; k < kills; ++k) {
    const auto& grid = job_of(before, id).grid;
    const auto& slot = grid.at(random() % grid.size());
    const auto name = slot.substr(0, slot.find('/'));
    const auto seen = job_of(before, id).change_count;
    const auto killed_us = monotonic_us();
    cluster.node(name).signal(SIGKILL);
    std::erase(names, name);
    const auto after = settled(names.size());
    double detect = 0;
    for (const auto& x : after.instances)
      if (x.name == name && x.lost_at_us >= 0)
        out.detect_ms.push_back(detect = static_cast<double>(x.lost_at_us - killed_us) / 1e3);
    const auto& job = job_of(after, id);
    for (const auto& change : job.changes)
      if (change.number >= seen && change.trigger.starts_with("loss")) {
        out.stall_ms.push_back(change.stall_ms);
        out.to_commit_ms.push_back(detect + change.first_commit_ms);
        out.beyond_one_step_ms.push_back(detect + change.first_commit_ms - job.step_ms);
        add_phases(out.phases, change);
      }
    const auto joined_from = job.change_count;
    start();
    before = settled(names.size());
    for (const auto& change : job_of(before, id).changes)
      if (change.number >= joined_from && change.trigger.starts_with("join")) {
        out.join_ms.push_back(change.stall_ms);
        add_phases(out.join_phases, change);
      }
    std::cerr << "kill " << k + 1 << " of " << kills << ": stall " << percentile(out.stall_ms, 0.5) << " ms (median)\n";
  }
  return out;
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

} // namespace
} // namespace parcae

int main(int argc, char** argv) {
  using namespace parcae;
  const auto kills_at_six = argc > 1 ? std::atoi(argv[1]) : 100;
  const auto kills_at_two = argc > 2 ? std::atoi(argv[2]) : 20;
  figures out;
  if (kills_at_two > 0) {
    const auto x = measure(2, kills_at_two, 2);
    std::cout << boost::json::serialize(boost::json::object{{"two nodes", json_of(x)}}) << std::endl;
    out.at_most("two nodes: kill to next commit, less one step, p50, ms", percentile(x.beyond_one_step_ms, 0.5), 250);
    out.only_shown("two nodes: nobody steps when one joins, p50, ms", percentile(x.join_ms, 0.5));
  }
  if (kills_at_six > 0) {
    const auto x = measure(6, kills_at_six, 6);
    std::cout << boost::json::serialize(boost::json::object{{"six nodes", json_of(x)}}) << std::endl;
    out.only_shown("six nodes: kill to its detection, p50, ms", percentile(x.detect_ms, 0.5));
    out.at_most("six nodes: stall, p50, ms", percentile(x.stall_ms, 0.5), 250);
    out.at_most("six nodes: stall, p99, ms", percentile(x.stall_ms, 0.99), 1500);
  }
  return out.status();
}
