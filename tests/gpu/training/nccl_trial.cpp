// Whether NCCL serves processes that share a GPU: it takes two ranks on one GPU for a mistake unless each process has
// another NCCL_HOSTID, and its authors support not even that. All are on loopback, where nodes have NCCL without
// --trust-network. Two nodes train side by side, others stand by:
// * one that trains has notice, so the state goes to another, by TCP as always, and NCCL is made anew behind that;
// * one after the other is killed, at a random moment of a step;
// and in the end the parameters must be those of an undisturbed run. Ends with a table of what held
// (nccl_findings.hpp). Status 1: wrong bits, a standstill, a crash; 3: there is no GPU.

#include "gpu/device/cuda_library.hpp"
#include "runtime/lab/local_cluster.hpp"
#include "tests/gpu/training/nccl_findings.hpp"

#include <CLI/CLI.hpp>
#include <spdlog/fmt/fmt.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>

namespace parcae {
namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

constexpr auto start_limit = 120s;
constexpr auto silence_limit = 60s;          // of the manager
constexpr auto standstill_limit = 100s;      // without a step, or another phase
constexpr auto whole_limit = 220s;           // of each of the two runs
constexpr std::uint64_t settled_steps = 20;  // by what moves tensors, once that is clear
constexpr std::uint64_t unclear_steps = 200; // until it is taken for unclear
constexpr std::size_t max_ends = 6;          // of processes that end by themselves

struct options {
  std::string device = "cuda:0";
  std::uint64_t steps = 400;
  int kills = 2;
  std::uint32_t seed = std::random_device()();
};

/// The trial cannot go on.
class trial_error : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

// On a GPU of a size that has NCCL, which goes through sockets there, move bytes for about half of a step.
job_specification trial_job(const options& x) {
  job_specification job;
  job.name = "nccl";
  job.steps = x.steps;
  job.seed = 3;
  job.transport = x.device == "cpu" ? "auto" : "nccl"; // which would wait for a GPU
  if (x.device == "cpu")
    job.model = {"gpt", 2, 32, 2, 32, 256, 0.1, true};
  else
    job.model = {"gpt", 6, 384, 8, 128, 256, 0.1, true};
  job.data = {.kind = "synthetic"};
  job.global_batch = 8;
  job.micro_batch = 2;
  job.optimizer.clip_norm = 1;
  job.max_depth = 1;
  job.max_width = 2;
  job.keeper_every = 10;
  return job;
}

bool trains_on_two(const job_status& x) {
  return x.phase == "running" && x.grid.size() == 2 && !x.chain.empty();
}

bool is_over(const job_status& x) {
  return x.state != "queued" && x.state != "running";
}

class trial {
public:
  trial(const options& x, const std::filesystem::path& logs) : options_(x), random_(x.seed), logs_(logs) {
    std::filesystem::create_directory(logs);
    cluster_ground ground;
    ground.before = [](const std::string& name) {
      if (name == "manager" || name == "keeper")
        return std::vector<std::string>();
      return std::vector<std::string>{"/usr/bin/env", "NCCL_HOSTID=parcae-" + name, "NCCL_DEBUG=WARN"};
    };
    cluster_.emplace(sibling_program(""), logs, std::move(ground));
  }

  /// Trains through all that is done to it; what was seen until then if it cannot go on.
  nccl_findings through_harm() {
    try {
      start(3 + static_cast<std::size_t>(options_.kills));
      add("two nodes train", settle("two nodes to train", 0));
      harm("notice", 1, SIGTERM);
      for (int k = 0; k < options_.kills; ++k)
        harm("SIGKILL", static_cast<std::size_t>(k) % 2, SIGKILL);
      found_.digest = end();
      if (ended_ > 0)
        found_.rows.back().more += fmt::format("; {} process(es) ended themselves", ended_);
    } catch (const std::exception& e) {
      found_.faults.emplace_back(e.what());
    }
    return found_;
  }

  /// The digest of one node's parameters; throws if it cannot go on.
  std::string undisturbed() {
    start(1);
    return end();
  }

  /// What NCCL itself said in the nodes' logs.
  std::set<std::string> warnings() const {
    std::set<std::string> result;
    const std::string mark = "NCCL WARN ";
    for (const auto& entry : std::filesystem::directory_iterator(logs_)) {
      std::ifstream file(entry.path());
      for (std::string line; entry.is_regular_file() && std::getline(file, line) && result.size() < 8;)
        if (const auto at = line.find(mark); at != std::string::npos)
          result.insert(line.substr(at + mark.size(), 200));
    }
    return result;
  }

private:
  void start_node() {
    auto name = "n" + std::to_string(++started_);
    cluster_->start_node(name, {"--device", options_.device});
    there_.insert(std::move(name));
  }

  void start(std::size_t nodes) {
    cluster_->start_keeper();
    for (std::size_t i = 0; i < nodes; ++i)
      start_node();
    const auto limit = clock::now() + start_limit;
    for (std::size_t there = 0; there < nodes; there = living(look(), "worker")) {
      tend();
      if (clock::now() > limit)
        throw trial_error(fmt::format("{} of {} nodes came", there, nodes));
      std::this_thread::sleep_for(10ms);
    }
    id_ = cluster_->client().submit(trial_job(options_));
  }

  /// The status. So many processes that load CUDA at once may keep the manager from its processor for seconds.
  status_reply look() {
    for (const auto limit = clock::now() + silence_limit;;) {
      try {
        return cluster_->client().status();
      } catch (const client_error&) {
        tend();
        if (clock::now() > limit)
          throw;
      }
    }
  }

  std::string last_line(const std::string& node) const {
    std::ifstream file(logs_ / (node + ".log"));
    std::string result;
    for (std::string line; std::getline(file, line);)
      result = line.substr(0, 300);
    return result;
  }

  /// A process whose use of NCCL could not be ended kills itself (status 137): another takes its place.
  void tend() {
    for (const auto& name : std::set<std::string>(there_))
      if (const auto status = cluster_->node(name).poll()) {
        there_.erase(name);
        if (*status != 128 + SIGKILL)
          throw trial_error(fmt::format("{} ended with status {}: {}", name, *status, last_line(name)));
        if (++ended_ > max_ends)
          throw trial_error("process after process ended itself");
        start_node();
      }
  }

  /// Looks again and again until the condition holds, as long as something goes on.
  template <class Condition>
  job_status wait_for(const std::string& what, Condition condition) {
    auto heard = clock::now();
    std::string last;
    for (;;) {
      tend();
      auto job = job_of(look(), id_);
      if (condition(job))
        return job;
      if (is_over(job))
        throw trial_error(fmt::format("waited for {}, but the job is {} after {} steps{}{}", what, job.state,
                                      job.steps_done, job.problem.empty() ? "" : ": ", job.problem));
      const auto now = clock::now();
      if (auto at = fmt::format("step {}, {}", job.steps_done, job.phase); at != last) {
        last = std::move(at);
        heard = now;
      }
      if (now - heard > standstill_limit || now - began_ > whole_limit)
        throw trial_error(
            fmt::format("waited for {} in vain: {}{}{}", what, last, job.problem.empty() ? "" : ", ", job.problem));
      std::this_thread::sleep_for(10ms);
    }
  }

  /// Two nodes train in a generation after that one, and have for a while by what its tensors are moved by.
  job_status settle(const std::string& what, std::uint64_t after) {
    std::optional<std::uint64_t> clear; // the step
    return wait_for(what, [&](const job_status& x) {
      if (!trains_on_two(x) || x.generation <= after)
        return false;
      if (!clear && (x.transport.by == "nccl" || !x.transport.reason.empty()))
        clear = x.steps_done;
      return clear ? x.steps_done >= *clear + settled_steps : x.steps_done >= x.chain.back().base + unclear_steps;
    });
  }

  void add(std::string what, const job_status& x, std::string more = {}) {
    found_.rows.push_back({std::move(what), x.transport, std::move(more)});
    std::printf("%s: %s %s\n", found_.rows.back().what.c_str(), x.transport.by.c_str(), x.transport.reason.c_str());
    std::fflush(stdout);
  }

  void harm(const std::string& what, std::size_t rank, int signal) {
    const auto before = wait_for("two nodes to train before " + what, trains_on_two);
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 200'000));
    const auto victim = before.grid.at(rank).substr(0, before.grid.at(rank).find('/'));
    there_.erase(victim);
    cluster_->node(victim).signal(signal);
    const auto after = settle("two nodes to train after " + what, before.generation);
    double stall_ms = 0, bytes = 0;
    for (const auto& change : after.changes)
      if (change.to > before.generation) {
        stall_ms += std::max(0.0, change.stall_ms);
        bytes += static_cast<double>(change.bytes);
      }
    add(fmt::format("{} of {} (rank {})", what, victim, rank), after,
        fmt::format("{:.1f} MB moved, {} change(s), {:.0f} ms stall, {} step(s) again", bytes / 1e6,
                    after.change_count - before.change_count, stall_ms, after.replayed_steps - before.replayed_steps));
  }

  std::string end() {
    const auto x = wait_for("the end of the job", is_over);
    if (x.state != "done")
      throw trial_error("the job is " + x.state + ": " + x.problem);
    return x.parameters_sha256;
  }

  const options options_;
  const clock::time_point began_ = clock::now();
  std::mt19937 random_;
  std::filesystem::path logs_;
  std::optional<local_cluster> cluster_;
  std::set<std::string> there_; ///< nodes that nothing was done to
  std::size_t started_ = 0;     ///< nodes
  std::size_t ended_ = 0;       ///< by themselves
  std::uint64_t id_ = 0;
  nccl_findings found_;
};

int run(const options& x) {
  if (const auto why = ask_driver().problem; x.device != "cpu" && !why.empty()) {
    std::fprintf(stderr, "nccl_trial: %s\n", why.c_str());
    return 3;
  }
  std::printf("seed %u\n", x.seed);
  std::fflush(stdout);
  scratch_folder logs("parcae-nccl");
  nccl_findings found;
  std::set<std::string> warnings;
  {
    trial harmed(x, logs.path() / "harmed");
    found = harmed.through_harm();
    warnings = harmed.warnings();
  }
  if (found.faults.empty()) {
    try {
      found.expected = trial(x, logs.path() / "undisturbed").undisturbed();
    } catch (const std::exception& e) {
      found.faults.emplace_back(std::string("undisturbed: ") + e.what());
    }
  }
  for (const auto& line : warnings)
    std::printf("NCCL says: %s\n", line.c_str());
  const auto verdict = verdict_of(found);
  if (verdict.status != 0) {
    logs.keep();
    std::printf("logs are in %s\n", logs.path().c_str());
  }
  std::printf("\n%s", verdict.text.c_str());
  return verdict.status;
}

} // namespace
} // namespace parcae

int main(int argc, char** argv) {
  CLI::App app{"Tries NCCL between processes that share a GPU.", "nccl_trial"};
  parcae::options x;
  app.add_option("--device", x.device, "of the nodes: cuda:N, or cpu, to try all but NCCL")->capture_default_str();
  app.add_option("--steps", x.steps, "of the job")->capture_default_str();
  app.add_option("--kills", x.kills, "one after the other")->capture_default_str();
  app.add_option("--seed", x.seed, "of the moments; default: a random one");
  CLI11_PARSE(app, argc, argv);
  return parcae::run(x);
}
