#pragma once

// A cluster of real processes for a test. What goes wrong prints the status and the end of every process's log.

#include "runtime/lab/local_cluster.hpp"
#include "runtime/view/status_text.hpp"
#include "tests/support/dawdle.hpp"
#include "tests/support/files.hpp"
#include "tests/support/names.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <deque>
#include <fstream>
#include <iostream>
#include <optional>
#include <utility>

namespace parcae {

/// A test may dawdle before what it does to it, and with what it was told of it. The manager may take its time for each
/// answer: a disk that others write to may keep its journal waiting for longer than a user is patient.
class tested_cluster : public local_cluster {
public:
  /// For whatever a test waits for. Generous: the machine may be busy with other tests.
  static constexpr std::chrono::seconds limit{60};

  tested_cluster(const std::filesystem::path& programs, const std::filesystem::path& logs, cluster_ground ground = {}) :
      local_cluster(programs, logs, patient(std::move(ground))) {}

  void start_node(const std::string& name, const std::vector<std::string>& arguments = {}) {
    dawdle();
    local_cluster::start_node(name, arguments);
  }

  void start_keeper(const std::string& name = "keeper", std::vector<std::string> arguments = {}) {
    dawdle();
    local_cluster::start_keeper(name, std::move(arguments));
  }

  void restart_manager() {
    dawdle();
    local_cluster::restart_manager();
  }

  /// To send it a signal, mostly.
  child_process& node(const std::string& name) {
    dawdle();
    return local_cluster::node(name);
  }

  child_process& manager() {
    dawdle();
    return local_cluster::manager();
  }

  manager_client& client() {
    dawdle();
    return local_cluster::client();
  }

  status_reply wait_for(const std::string& what, std::chrono::milliseconds within,
                        const std::function<bool(const status_reply&)>& condition, const status_request& wanted = {}) {
    const auto later = [&](const status_reply& x) {
      dawdle();
      return condition(x);
    };
    return local_cluster::wait_for(what, within, later, wanted);
  }

private:
  static cluster_ground patient(cluster_ground x) {
    x.answers_within = limit;
    return x;
  }
};

class cluster_test : public testing::Test {
protected:
  static constexpr auto limit = tested_cluster::limit;

  void SetUp() override { start("first"); }

  void TearDown() override {
    if (!HasFailure())
      return;
    print_status();
    print_logs();
  }

  /// Starts over with an empty cluster; the former one is killed.
  void start(const std::string& name) {
    cluster.reset();
    auto logs = folder.path() / name;
    std::filesystem::create_directory(logs);
    cluster.emplace(sibling_program(""), logs);
  }

  /// A small job that is still real: text, dropout, tied embeddings, clipping.
  job_specification small_job(std::uint64_t steps) {
    job_specification x;
    x.name = "small";
    x.steps = steps;
    x.seed = 5;
    x.model.layers = 2;
    x.model.width = 16;
    x.model.heads = 2;
    x.model.sequence = 16;
    x.model.dropout = 0.1;
    x.data.path = "/usr/share/common-licenses/GPL-3";
    x.global_batch = 8;
    x.micro_batch = 1;
    x.optimizer.clip_norm = 1;
    x.keeper_every = 5;
    return x;
  }

  template <class Condition>
  job_status wait_for_job(std::uint64_t id, const std::string& what, Condition condition) {
    auto x = cluster->wait_for(what, limit, [&](const status_reply& s) { return condition(job_of(s, id)); });
    return job_of(x, id);
  }

  /// The limit is for each step: how long all of them take depends on their number and on what else this machine does.
  job_status wait_for_end(std::uint64_t id) {
    const auto is_over = [](const job_status& j) { return j.state != "running" && j.state != "queued"; };
    for (std::uint64_t done = 0;;) {
      auto x = wait_for_job(id, "another step, or the end of the job",
                            [&](const job_status& j) { return is_over(j) || j.steps_done > done; });
      if (is_over(x))
        return x;
      done = x.steps_done;
    }
  }

  /// Ends it well a step behind its next checkpoint, by a job that goes on from there. For jobs that are given more
  /// steps than anybody needs: what a test does to them never comes too late, and they do not go on for long after it.
  /// `is_asked_for`: none is due.
  job_status end_behind_checkpoint(std::uint64_t id, bool is_asked_for = false) {
    const auto stood = job_of(cluster->client().status(), id);
    const auto from = is_asked_for ? stood.checkpoint_steps : stood.steps_done;
    if (is_asked_for)
      cluster->client().checkpoint(id);
    const auto there = wait_for_job(id, "a checkpoint", [&](const job_status& j) {
      return j.state != "running" || (j.checkpoint_steps > from && !j.checkpoint_folders.empty());
    });
    EXPECT_EQ(there.state, "running") << there.problem;
    const auto cancelled = run({"cancel", std::to_string(id)});
    EXPECT_EQ(cancelled.status, 0) << cancelled.error;
    const auto last = wait_for_end(id); // until then it writes others, and keeps the newest
    const auto ended = run({"submit", "--resume", last.checkpoint_folders.at(0).folder, "--set",
                            "job.steps=" + std::to_string(last.checkpoint_steps + 1)});
    EXPECT_EQ(ended.status, 0) << ended.error;
    const auto end = wait_for_done(ended.status == 0 ? std::stoull(ended.output) : 0);
    EXPECT_FALSE(end.parameters_sha256.empty());
    return end;
  }

  /// It must end well.
  job_status wait_for_done(std::uint64_t id) {
    auto x = wait_for_end(id);
    EXPECT_EQ(x.state, "done") << x.problem;
    return x;
  }

  void wait_for_workers(std::size_t count) {
    cluster->wait_for(std::to_string(count) + " workers", limit,
                      [&](const status_reply& s) { return living(s, "worker") == count; });
  }

  /// A keeper and these workers, until the manager has them all.
  void start_nodes(const std::vector<std::string>& workers, const std::vector<std::string>& arguments = {}) {
    cluster->start_keeper();
    for (const auto& name : workers)
      cluster->start_node(name, arguments);
    wait_for_workers(workers.size());
    cluster->wait_for("the keeper", limit, [](const status_reply& s) { return living(s, "keeper") == 1; });
  }

  /// On a keeper and these workers. Its number.
  std::uint64_t start_job(const job_specification& job, const std::vector<std::string>& workers) {
    start_nodes(workers);
    return cluster->client().submit(job);
  }

  void kill_node(const std::string& name) {
    cluster->node(name).signal(SIGKILL);
    ASSERT_TRUE(cluster->node(name).wait(limit));
  }

  /// Those nodes and the manager, at once.
  void kill_all(const std::vector<std::string>& nodes) {
    for (const auto& name : nodes)
      cluster->node(name).signal(SIGKILL);
    cluster->manager().signal(SIGKILL);
    for (const auto& name : nodes)
      ASSERT_TRUE(cluster->node(name).wait(limit));
    ASSERT_TRUE(cluster->manager().wait(limit));
  }

  void kill_manager() {
    cluster->manager().signal(SIGKILL);
    ASSERT_TRUE(cluster->manager().wait(limit));
  }

  /// Until it trains on that many slots, and has committed since the last change.
  job_status wait_for_training(std::uint64_t id, std::uint32_t slots) {
    return wait_for_job(id, "training on " + std::to_string(slots) + " slots", [&](const job_status& j) {
      return j.phase == "running" && j.width * j.depth == slots && j.steps_done > j.chain.back().base;
    });
  }

  /// A small job for expect_undisturbed_bits.
  job_specification endless_job() {
    auto x = small_job(1'000'000);
    x.checkpoint_every = 50;
    return x;
  }

  /// Ended behind its next checkpoint, it has the parameters of the same job undisturbed, bit for bit. How it stood.
  job_status expect_undisturbed_bits(std::uint64_t id, job_specification job) {
    const auto last = job_of(cluster->client().status({.job = id}), id);
    const auto end = end_behind_checkpoint(id, job.checkpoint_every >= job.steps);
    job.steps = end.steps_done;
    EXPECT_EQ(end.parameters_sha256, undisturbed(job).parameters_sha256);
    return last;
  }

  /// The same job on one worker that nothing disturbs.
  job_status undisturbed(const job_specification& job) {
    start("undisturbed");
    return wait_for_end(start_job(job, {"alone"}));
  }

  /// The same by its file, on one worker with these arguments, and so deep that one is enough. steps: instead of the
  /// file's.
  job_status undisturbed(const std::string& file, std::optional<std::uint64_t> steps = {},
                         const std::vector<std::string>& arguments = {}) {
    start("undisturbed");
    start_nodes({"alone"}, arguments);
    std::vector<std::string> changes{"--set", "parallel.min_depth=1"};
    if (steps)
      changes.insert(changes.end(), {"--set", "job.steps=" + std::to_string(*steps)});
    return wait_for_end(submit(file, changes));
  }

  /// Takes away a worker that has a place, every third with notice, the others without, and brings another, with these
  /// arguments; so often. `at_once`: so many at a time, if so many have a place.
  void preempt(std::uint64_t id, int times, const std::vector<std::string>& arguments = {}, std::size_t at_once = 1) {
    int next = 3;
    std::uint64_t seen = 0;
    for (int i = 0; i < times;) {
      const auto now = wait_for_job(id, "steps before the next preemption", [&](const job_status& j) {
        return j.state != "running" || (j.phase == "running" && !j.grid.empty() && j.steps_done >= seen + 2);
      });
      ASSERT_EQ(now.state, "running") << "it ended after " << i << " preemptions: " << now.problem;
      seen = now.steps_done;
      std::vector<std::string> going; // instances
      for (std::size_t k = 0; k < now.grid.size() && going.size() < at_once && std::cmp_less(going.size(), times - i);
           ++k) {
        const auto& place = now.grid[(static_cast<std::size_t>(i) + k) % now.grid.size()];
        if (auto instance = place.substr(0, place.find('/')); std::ranges::find(going, instance) == going.end())
          going.push_back(std::move(instance));
      }
      for (const auto& instance : going) {
        cluster->node(instance).signal(i++ % 3 == 2 ? SIGTERM : SIGKILL);
        cluster->start_node("w" + std::to_string(next++), arguments);
      }
    }
  }

  struct preemptions {
    std::uint64_t least_generations = 15; ///< if fewer came of them, losses fell together
    std::size_t at_once = 1;
    std::vector<std::string> with = {}; ///< arguments of all workers
  };

  /// Of the job of this file twenty workers that have a place go, every third with notice: the parameters a step behind
  /// the next checkpoint are those of a job that nothing disturbed, bit for bit. How it stood when all had gone.
  job_status expect_preempted_bits(const std::string& file, const preemptions& how) {
    const auto id = submit(file);
    preempt(id, 20, how.with, how.at_once);
    const auto last = wait_for_job(id, "a place for others", [](const job_status& j) {
      return j.state != "running" || (j.phase == "running" && !j.grid.empty());
    });
    EXPECT_GE(last.generation, how.least_generations) << "losses fell together";
    const auto end = end_behind_checkpoint(id);
    EXPECT_GT(end.steps_done, 20u);
    const auto alone = undisturbed(file, end.steps_done, how.with);
    EXPECT_EQ(end.steps_done, alone.steps_done);
    EXPECT_EQ(end.parameters_sha256, alone.parameters_sha256);
    return last;
  }

  /// How a program ended, and what it wrote.
  struct outcome {
    std::optional<int> status; ///< empty: not within the limit
    std::string output;
    std::string error;
  };

  outcome run_program(std::vector<std::string> arguments) {
    dawdle();
    ++runs_;
    auto out = folder.path() / ("out" + std::to_string(runs_));
    auto err = folder.path() / ("err" + std::to_string(runs_));
    child_process process({std::move(arguments), out, err});
    auto status = process.wait(limit);
    return {status, content(out), content(err)};
  }

  /// A command of `parcae`, told where the manager is.
  outcome run(std::vector<std::string> arguments, bool with_manager = true) {
    arguments.insert(arguments.begin(), sibling_program("parcae"));
    if (with_manager) {
      arguments.push_back("--manager");
      arguments.push_back(to_string(cluster->where()));
    }
    return run_program(std::move(arguments));
  }

  /// It must end with status 0.
  outcome run_well(std::vector<std::string> arguments, bool with_manager = true) {
    auto x = run(std::move(arguments), with_manager);
    EXPECT_EQ(x.status, 0) << x.error;
    return x;
  }

  /// By its file. Its number; 0: refused.
  std::uint64_t submit(const std::string& file, const std::vector<std::string>& more = {}) {
    std::vector<std::string> command{"submit", file};
    command.insert(command.end(), more.begin(), more.end());
    const auto x = run_well(std::move(command));
    return x.status == 0 ? std::stoull(x.output) : 0;
  }

  /// A file in the test's folder: its path.
  std::string write(const std::string& name, const std::string& text) {
    write_file(folder.path() / name, text);
    return folder.path() / name;
  }

  /// As `parcae status` has it, if there is a manager that answers.
  void print_status() {
    try {
      if (cluster)
        std::cout << "--- status\n" << to_string(cluster->client().status());
    } catch (const std::exception& e) {
      std::cout << "no status: " << e.what() << "\n";
    }
  }

  void print_logs() {
    std::vector<std::filesystem::path> logs;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
      if (entry.is_regular_file() && entry.path().extension() == ".log") // not journals and tensors
        logs.push_back(entry.path());
    std::ranges::sort(logs, {}, [](const auto& x) { return std::pair(x.stem() != "manager", x); });
    for (const auto& path : logs) {
      std::ifstream file(path);
      std::deque<std::string> last;
      for (std::string line; std::getline(file, line);) {
        last.push_back(line.substr(0, 300));
        if (last.size() > 40)
          last.pop_front();
      }
      std::cout << "--- " << path.lexically_relative(folder.path()).string() << "\n";
      for (const auto& line : last)
        std::cout << line << "\n";
    }
  }

  scratch_folder folder{"parcae-test"};
  std::optional<tested_cluster> cluster;

private:
  int runs_ = 0;
};

} // namespace parcae
