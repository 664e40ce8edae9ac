// How long training stands still while a stage moves to another node: real processes on this machine, 1×3, a model of
// 101 M parameters, one of whose stages, 400 MB or more of state, moves at each notice. Parameters come before anybody
// computes, moments behind the first step. Then the same with layers that go ahead (parallel.feed). Prints its figures;
// fails if one is beyond its bound.
//
// move_bench [MOVES]   of each, default 20

#include "runtime/child/process.hpp"
#include "runtime/lab/local_cluster.hpp"
#include "tests/bench/bare_sockets.hpp"
#include "tests/bench/figures.hpp"
#include "tests/bench/measure.hpp"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace parcae {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t stages = 3;
constexpr auto patience = 300s;
constexpr std::chrono::milliseconds notice = 20s; // who has it is gone as soon as its state is
constexpr double least_bytes = 400e6;

job_specification wide_mlp(bool feed) {
  job_specification job;
  job.feed = feed;
  job.name = "move";
  job.steps = 1'000'000;
  job.model = {"mlp", 8, 4096, 4, 4, 256, 0, false};
  job.data = {.kind = "synthetic"};
  job.global_batch = 16;
  job.micro_batch = 4;
  job.virtual_replicas = 1;
  job.min_depth = job.max_depth = stages;
  job.max_width = 1;
  job.keeper_every = 1'000'000;
  return job;
}

/// Bytes a millisecond from one thread to another, over loopback.
double bare_rate() {
  constexpr std::size_t bytes = 400'000'000;
  const std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes);
  std::vector<double> rates;
  for (int i = 0; i < 9; ++i) {
    bare_pair sockets;
    const auto began = steady::now();
    std::thread sender([&] { sockets.send(0, from); });
    sockets.receive(1, to);
    sender.join();
    rates.push_back(static_cast<double>(bytes) / since_ms(began));
  }
  return median(rates);
}

struct measured {
  std::vector<double> stall_over_allowed, to_commit_over_allowed, to_commit_ms, stall_ms, wait_ms, bytes;
  double step_ms = 0;
};

class moved_job {
public:
  moved_job(const std::filesystem::path& logs, bool feed) : cluster_(sibling_program("parcae").parent_path(), logs) {
    cluster_.start_keeper();
    for (std::uint32_t i = 0; i < stages + 1; ++i)
      start();
    id_ = cluster_.client().submit(wide_mlp(feed));
    settle();
  }

  /// A node with a stage is told to leave; the one without takes it. Then another one comes.
  change_status move() {
    const auto before = now_;
    const auto& slot = before.grid.at(random_() % before.grid.size());
    const auto name = slot.substr(0, slot.find('/'));
    cluster_.client().preempt({.names = {name}, .notice_ms = static_cast<std::uint64_t>(notice.count())});
    cluster_.wait_for("it to leave", patience, [&](const auto& s) { return living(s, "worker") == stages; });
    settle();
    change_status result;
    for (const auto& x : now_.changes)
      if (x.number >= before.change_count && x.trigger.starts_with("notice"))
        result = x;
    start();
    settle();
    return result;
  }

  double step_ms() const { return now_.step_ms; }

private:
  void start() {
    cluster_.start_node("n" + std::to_string(started_++));
    const auto all = std::min(started_, stages + 1);
    cluster_.wait_for("it to join", patience, [&](const auto& s) { return living(s, "worker") == all; });
  }

  /// Until steps are as long as usual.
  void settle() {
    std::uint64_t generation = UINT64_MAX, steps = 0;
    const auto x = cluster_.wait_for("training to go on", patience, [&](const auto& s) {
      const auto& job = job_of(s, id_);
      if (std::exchange(generation, job.generation) != job.generation)
        steps = job.steps_done;
      return job.phase == "running" && job.steps_done >= steps + 3;
    });
    now_ = job_of(x, id_);
  }

  local_cluster cluster_;
  std::uint64_t id_ = 0;
  std::uint32_t started_ = 0;
  job_status now_;
  std::mt19937_64 random_{1};
};

measured measure(int moves, double bytes_per_ms, bool feed) {
  const scratch_folder logs("move-bench");
  moved_job job(logs.path(), feed);
  measured out;
  for (int i = 0; i < moves; ++i) {
    const auto step_ms = job.step_ms();
    const auto x = job.move();
    const auto bytes = static_cast<double>(x.bytes);
    const double allowed = 0.45 * bytes / bytes_per_ms + 40;
    out.bytes.push_back(bytes);
    out.stall_ms.push_back(x.stall_ms);
    out.wait_ms.push_back(std::max(x.state_wait_ms, 0.0));
    out.stall_over_allowed.push_back(x.stall_ms / allowed);
    out.to_commit_ms.push_back(x.first_commit_ms - x.stopped_ms - step_ms);
    out.to_commit_over_allowed.push_back((x.first_commit_ms - x.stopped_ms - step_ms) / allowed);
    out.step_ms = step_ms;
    std::cerr << (feed ? "fed, move " : "move ") << i + 1 << " of " << moves << ": " << bytes / 1e6 << " MB, stall "
              << x.stall_ms << " ms, then waited " << x.state_wait_ms << " ms; " << allowed
              << " ms may be; STOPPED to first commit " << x.first_commit_ms - x.stopped_ms << " ms, a step " << step_ms
              << " ms\n";
  }
  return out;
}

} // namespace
} // namespace parcae

int main(int count, char** arguments) {
  using namespace parcae;
  const double rate = bare_rate();
  const int moves = count > 1 ? std::atoi(arguments[1]) : 20;
  const auto x = measure(moves, rate, false);
  const auto fed = measure(moves, rate, true);
  figures out;
  const double bytes = percentile(x.bytes, 0.5);
  out.at_least("bytes moved, p50, MB", bytes / 1e6, least_bytes / 1e6);
  out.only_shown("bare transfer of as much, ms", bytes / rate);
  out.only_shown("a step, ms", x.step_ms);
  out.only_shown("stall, p50, ms", percentile(x.stall_ms, 0.5));
  out.at_most("stall over 0.45 of a bare transfer and 40 ms, p50", percentile(x.stall_over_allowed, 0.5), 1.25);
  // A first step takes longer than others, also where no state is waited for: its buffers are new.
  out.at_most("STOPPED to first commit, less a step, over the same, p50", percentile(x.to_commit_over_allowed, 0.5),
              2.5);
  const double late_ms = bytes * 2 / 3 / rate;
  if (late_ms <= x.step_ms / 2)
    out.at_most("first step's wait for moments, p50, ms", percentile(x.wait_ms, 0.5), 5);
  else
    out.only_shown("first step's wait for moments, p50, ms", percentile(x.wait_ms, 0.5));
  const double stall_ms = percentile(fed.stall_ms, 0.5);
  out.only_shown("layers go ahead: stall, p50, ms", stall_ms);
  out.only_shown("the same, of what it is without", stall_ms / percentile(x.stall_ms, 0.5));
  out.only_shown("the same: STOPPED to first commit, less a step, p50, ms", percentile(fed.to_commit_ms, 0.5));
  return out.status();
}
