// How long training stands still while a stage moves to another node: real processes in a network of their own, whose
// link has a rate; 1×3, a model of 101 M parameters, one of whose stages, 400 MB or more of state, moves at each
// notice. Without layers that go ahead (parallel.feed) parameters come before anybody computes, and moments behind the
// first step; with them, by turns, gradients make of what came before what is there at the stop. Then with a link that
// is too slow for that. Prints its figures; fails if one is beyond its bound, status 77 where there can be no such
// network.
//
// move_bench [MOVES [MBIT]]   of each, default 20; the link's rate, default 10,000

#include "runtime/child/process.hpp"
#include "runtime/lab/local_cluster.hpp"
#include "tests/bench/bare_sockets.hpp"
#include "tests/bench/figures.hpp"
#include "tests/bench/measure.hpp"
#include "tests/support/host_network.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace parcae {
namespace {

using namespace std::chrono_literals;

constexpr int cannot_run_here = 77;
constexpr std::uint32_t stages = 3;
constexpr auto patience = 300s;
constexpr std::chrono::milliseconds notice = 20s; // who has it is gone as soon as its state is
constexpr double least_bytes = 400e6;
constexpr int moves_in_a_row = 5; // the machine's speed drifts
constexpr int slow_mbit = 1'000, slow_moves = 3;
constexpr std::uint32_t usual_batch = 16, small_batch = 2;

/// No keeper: after each change a snapshot would take the link. One micro-batch a step, so that one rank computes at a
/// time: two cores stand for four machines, and what a feed takes of the machine it comes from, or goes to, it would
/// else take from a rank on another one.
job_specification wide_mlp(bool feed, std::uint32_t batch) {
  job_specification job;
  job.feed = feed;
  job.name = "move";
  job.steps = 1'000'000;
  job.model = {"mlp", 8, 4096, 4, 4, 256, 0, false};
  job.data = {.kind = "synthetic"};
  job.global_batch = job.micro_batch = batch;
  job.virtual_replicas = 1;
  job.min_depth = job.max_depth = stages;
  job.max_width = 1;
  job.keeper_every = 1'000'000;
  job.policy = "throughput"; // a forecast would see a machine lost each minute
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

/// Processor time of a process's threads.
class thread_times {
public:
  explicit thread_times(pid_t process) : threads_("/proc/" + std::to_string(process) + "/task") {}

  /// Of the thread that has taken most since this was called before.
  double take_ms() {
    double most = 0;
    std::map<std::string, double> now;
    for (const auto& x : std::filesystem::directory_iterator(threads_)) {
      double ns = 0;
      std::ifstream(x.path() / "schedstat") >> ns;
      const auto thread = x.path().filename();
      now[thread] = ns / 1e6;
      if (const auto known = before_.find(thread); known != before_.end())
        most = std::max(most, now[thread] - known->second);
    }
    before_ = std::move(now);
    return most;
  }

private:
  std::filesystem::path threads_;
  std::map<std::string, double> before_;
};

/// What steps take, by the clock and of the processor of who has the stage that moves: of those within one phase.
class step_watch {
public:
  struct step {
    double ms, source_ms;
  };

  void follow(pid_t source) {
    source_.emplace(source);
    last_.reset();
  }

  /// What is usual was seen: who leaves was told.
  void end_usual() { is_told_ = true; }
  void end() { source_.reset(); }

  void look(const job_status& job) {
    const bool feeds = job.phase == "warming" || job.phase == "stopping";
    if (!source_ || (!feeds && (is_told_ || job.phase != "running")))
      return last_.reset();
    if (last_ && last_->steps == job.steps_done)
      return;
    const seen now{steady::now(), job.steps_done, job.generation, feeds};
    const double source_ms = source_->take_ms();
    if (last_ && last_->generation == now.generation && last_->feeds == feeds) {
      const auto count = static_cast<double>(now.steps - last_->steps);
      const std::chrono::duration<double, std::milli> took = now.at - last_->at;
      (feeds ? while_warming : usual).push_back({took.count() / count, source_ms / count});
    }
    last_ = now;
  }

  std::vector<step> usual, while_warming;

private:
  struct seen {
    steady::time_point at;
    std::uint64_t steps, generation;
    bool feeds;
  };

  std::optional<thread_times> source_;
  std::optional<seen> last_;
  bool is_told_ = false;
};

struct moved {
  change_status change{};
  double step_ms = 0; ///< a usual one
  bool is_warm = false;
  step_watch steps{};
};

class moved_job {
public:
  moved_job(const std::filesystem::path& logs, bool feed, std::uint32_t batch) :
      cluster_(sibling_program("parcae").parent_path(), logs) {
    for (std::uint32_t i = 0; i < stages + 1; ++i)
      start();
    id_ = cluster_.client().submit(wide_mlp(feed, batch));
    settle();
  }

  /// A node with a stage is told to leave; the one without takes it. Then another one comes.
  moved move() {
    steps_ = {};
    const auto& slot = now_.grid.at(random_() % now_.grid.size());
    const auto name = slot.substr(0, slot.find('/'));
    steps_.follow(cluster_.node(name).pid());
    settle();
    const auto before = now_;
    moved result{.step_ms = before.step_ms};
    steps_.end_usual();
    cluster_.client().preempt({.names = {name}, .notice_ms = static_cast<std::uint64_t>(notice.count())});
    wait_for("it to leave", [&](const auto& s) { return living(s, "worker") == stages; });
    steps_.end();
    settle();
    for (const auto& x : now_.changes)
      if (x.number >= before.change_count && x.trigger.starts_with("notice"))
        result.change = x;
    const auto said = "generation " + std::to_string(result.change.to) + " is warm";
    result.is_warm = std::ranges::any_of(now_.events, [&](const auto& x) { return x.text == said; });
    result.steps = steps_;
    start();
    settle();
    return result;
  }

private:
  void start() {
    cluster_.start_node("n" + std::to_string(started_++));
    const auto all = std::min(started_, stages + 1);
    wait_for("it to join", [&](const auto& s) { return living(s, "worker") == all; });
  }

  status_reply wait_for(const std::string& what, const std::function<bool(const status_reply&)>& condition) {
    return cluster_.wait_for(what, patience, [&](const status_reply& s) {
      if (id_ > 0)
        steps_.look(job_of(s, id_));
      return condition(s);
    });
  }

  /// Until steps are as long as usual.
  void settle() {
    std::uint64_t generation = UINT64_MAX, steps = 0;
    const auto x = wait_for("training to go on", [&](const auto& s) {
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
  step_watch steps_;
  std::mt19937_64 random_{1};
};

struct measured {
  std::vector<double> stall_over_allowed, to_commit_over_allowed, to_commit_ms, stall_ms, wait_ms, bytes, step_ms;
  std::vector<double> step_over_usual, source_over_usual; ///< while layers go ahead
  int moves = 0, warm = 0;

  void add(const moved& x, double bytes_per_ms) {
    ++moves;
    warm += x.is_warm ? 1 : 0;
    const auto moved_bytes = static_cast<double>(x.change.bytes);
    const double allowed = 0.45 * moved_bytes / bytes_per_ms + 40;
    bytes.push_back(moved_bytes);
    step_ms.push_back(x.step_ms);
    stall_ms.push_back(x.change.stall_ms);
    wait_ms.push_back(std::max(x.change.state_wait_ms, 0.0));
    stall_over_allowed.push_back(x.change.stall_ms / allowed);
    to_commit_ms.push_back(x.change.first_commit_ms - x.change.stopped_ms - x.step_ms);
    to_commit_over_allowed.push_back(to_commit_ms.back() / allowed);
    std::vector<double> usual, usual_source;
    for (const auto& step : x.steps.usual) {
      usual.push_back(step.ms);
      usual_source.push_back(step.source_ms);
    }
    for (const auto& step : x.steps.while_warming) {
      step_over_usual.push_back(step.ms / median(usual));
      source_over_usual.push_back(step.source_ms / median(usual_source));
    }
    std::cerr << moved_bytes / 1e6 << " MB, stall " << x.change.stall_ms << " ms of " << allowed << ", then waited "
              << x.change.state_wait_ms << " ms; STOPPED to first commit, less a step of " << x.step_ms << " ms, "
              << to_commit_ms.back() << " ms; " << (x.is_warm ? "warm, " : "") << x.steps.while_warming.size()
              << " steps meanwhile";
    for (const auto& step : x.steps.while_warming)
      std::cerr << ", " << step.ms << " (" << step.source_ms << ") ms";
    std::cerr << "; usually " << median(usual) << " (" << median(usual_source) << ")\n";
  }
};

void measure(measured& into, int moves, double bytes_per_ms, bool feed, std::uint32_t batch = usual_batch) {
  const scratch_folder logs("move-bench");
  moved_job job(logs.path(), feed, batch);
  for (int i = 0; i < moves; ++i) {
    std::cerr << (feed ? "fed, move " : "move ") << into.moves + 1 << ": ";
    into.add(job.move(), bytes_per_ms);
  }
}

void show(figures& out, const measured& x, double rate) {
  const double bytes = percentile(x.bytes, 0.5);
  out.only_shown("the link, Gb/s, as bare sockets see it", rate * 8e-6);
  out.at_least("bytes moved, p50, MB", bytes / 1e6, least_bytes / 1e6);
  out.only_shown("bare transfer of as much, ms", bytes / rate);
  out.only_shown("a step, p50, ms", percentile(x.step_ms, 0.5));
  out.only_shown("stall, p50, ms", percentile(x.stall_ms, 0.5));
  out.at_most("stall over 0.45 of a bare transfer and 40 ms, p50", percentile(x.stall_over_allowed, 0.5), 1);
  out.at_most("STOPPED to first commit, less a step, over the same, p50", percentile(x.to_commit_over_allowed, 0.5), 1);
  out.only_shown("STOPPED to first commit, less a step, p50, ms", percentile(x.to_commit_ms, 0.5));
  const double late_ms = bytes * 2 / 3 / rate;
  if (late_ms <= percentile(x.step_ms, 0.5) / 2)
    out.at_most("first step's wait for moments, p50, ms", percentile(x.wait_ms, 0.5), 5);
  else
    out.only_shown("first step's wait for moments, p50, ms", percentile(x.wait_ms, 0.5));
}

void show_fed(figures& out, const measured& fed, const measured& without) {
  const auto over = [](const std::vector<double>& x, const std::vector<double>& y) {
    return percentile(x, 0.5) / percentile(y, 0.5);
  };
  out.at_least("layers go ahead: of these changes", static_cast<double>(fed.warm) / fed.moves, 0.9);
  out.at_most("layers go ahead: stall, p50, ms", percentile(fed.stall_ms, 0.5), 60);
  out.at_most("layers go ahead: stall over that without, p50", over(fed.stall_ms, without.stall_ms), 0.3);
  out.at_most("layers go ahead: STOPPED to first commit, less a step, p50, ms", percentile(fed.to_commit_ms, 0.5), 80);
  // Who follows, and what sends, use cores and caches of ranks that they would not disturb on machines of their own.
  out.at_most("layers go ahead: a step meanwhile over a usual one, p50", percentile(fed.step_over_usual, 0.5), 1.15);
  out.at_most("layers go ahead: processor time of who sends, in such a step, p50",
              percentile(fed.source_over_usual, 0.5), 1.05);
}

} // namespace
} // namespace parcae

int main(int count, char** arguments) {
  using namespace parcae;
  const int moves = count > 1 ? std::atoi(arguments[1]) : 20;
  const int mbit = count > 2 ? std::atoi(arguments[2]) : 10'000;
  host_network network(1);
  if (!network.problem().empty()) {
    std::cerr << network.problem() << "\n";
    return cannot_run_here;
  }
  network.enter(0);
  network.set_loopback_rate(0, mbit);
  const double rate = bare_rate();
  measured x, fed, slow;
  while (x.moves < moves) {
    const int more = std::min(moves_in_a_row, moves - x.moves);
    measure(x, more, rate, false);
    measure(fed, more, rate, true);
  }
  network.set_loopback_rate(0, slow_mbit);
  measure(slow, slow_moves, slow_mbit * 125.0, true, small_batch);
  network.enter(-1);

  figures out;
  show(out, x, rate);
  show_fed(out, fed, x);
  out.only_shown("1 Gb/s: layers go ahead of these changes", static_cast<double>(slow.warm) / slow.moves);
  out.at_most("1 Gb/s: stall over 0.45 of a bare transfer and 40 ms, p50", percentile(slow.stall_over_allowed, 0.5),
              1.25);
  return out.status();
}
