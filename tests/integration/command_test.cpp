// The commands as a person uses them.

#include "tests/support/cluster.hpp"
#include "tests/support/resident_memory.hpp"

#include <boost/json.hpp>

#include <csignal>
#include <sstream>

namespace parcae {
namespace {

struct command : cluster_test {
  std::filesystem::path job_file(const std::string& text) {
    return write("job" + std::to_string(++files) + ".toml", text);
  }

  int files = 0;
};

const std::string small_file = R"(
[job]
steps = 20
[model]
kind = "mlp"
layers = 1
width = 16
sequence = 16
[data]
path = "/usr/share/common-licenses/GPL-3"
[batch]
global = 4
micro = 1
[optimizer]
kind = "sgd"
learning_rate = 0.1
)";

// given: submit --wait on a cluster / expected: the job's number on stdout, status 0 at its end, and status tells
TEST_F(command, submit_waits_and_status_tells) {
  start_nodes({"a"});
  auto x = run_well({"submit", job_file(small_file), "--wait"});
  EXPECT_EQ(x.output, "1\n");
  auto text = run({"status"});
  EXPECT_THAT(text.output, HasSubstr("done, step 20/20"));
  auto json = run({"status", "1", "--json"});
  EXPECT_THAT(json.output, HasSubstr("\"parameters_sha256\":\""));
  EXPECT_THAT(json.output, HasSubstr("\"incarnation\":\""));
}

// given: a cluster with a worker / expected: --version, job-keys without a manager; --check says that a job could run,
// without queueing it, and that there is no keeper, until there is one, and what it could not find out; submit tells
// what to do next and, of a second job, why it waits, and that nothing of it will be on disk; --set counts; status has
// a line per job, logs the events
TEST_F(command, tell_what_is_and_what_to_do) {
  EXPECT_THAT(run({"--version"}, false).output,
              testing::MatchesRegex("parcae [0-9.]+ \\(build [0-9a-z]+, protocol [0-9]+, "
                                    "LibTorch [0-9.]+\\)\n"));
  const auto keys = run({"job-keys"}, false);
  EXPECT_EQ(keys.status, 0);
  EXPECT_THAT(keys.output, HasSubstr("learning_rate"));
  cluster->start_node("a");
  wait_for_workers(1);
  const auto file = job_file(small_file);
  EXPECT_THAT(run({"submit", file, "--check"}).error,
              HasSubstr("warning: there is no keeper: what all workers hold is lost if they all go, and nothing is "
                        "written to disk; start one with `parcae-node --role keeper`\n"));
  cluster->start_keeper();
  cluster->wait_for("a keeper", limit, [](const status_reply& x) { return living(x, "keeper") == 1; });
  auto check = run_well({"submit", file, "--check"});
  EXPECT_THAT(check.output, HasSubstr("can run here, at once"));
  EXPECT_EQ(check.error, "");
  EXPECT_THAT(run({"submit", file, "--check", "--set", "job.checkpoint_every=0"}).error,
              HasSubstr("warning: job.checkpoint_every is 0: nothing is on disk before the job ends\n"));
  check = run({"submit", file, "--check", "--set", "checkpoint.to=" + (folder.path() / "to-come").string()});
  EXPECT_EQ(check.status, 0) << check.error;
  EXPECT_THAT(check.error, AllOf(HasSubstr("not found out: keeper keeper: "), HasSubstr("with the first checkpoint")));
  check = run_well({"submit", file, "--check", "--set", "job.gradient_sums=bfloat16"});
  EXPECT_THAT(check.error, HasSubstr("gradients are summed in bfloat16: the bits are others than with "));
  check = run({"submit", file, "--check", "--set", "data.path=/nowhere/x"});
  EXPECT_EQ(check.status, 1);
  EXPECT_THAT(check.error, HasSubstr("worker a: /nowhere/x is not there\n"));
  EXPECT_THAT(check.error, HasSubstr("is well formed, but a node does not find what it needs"));
  EXPECT_THAT(cluster->client().status().jobs, IsEmpty());
  auto first = run({"submit", file, "--set", "job.steps=1000000", "--set", "job.name=long"});
  EXPECT_EQ(first.output, "1\n");
  EXPECT_THAT(first.error, HasSubstr("next: `parcae watch 1` follows it, `parcae cancel 1` ends it"));
  auto second = run({"submit", file, "--set", "job.checkpoint_every=0"});
  EXPECT_EQ(second.output, "2\n");
  EXPECT_THAT(second.error, HasSubstr("warning: job.checkpoint_every is 0: nothing is on disk before the job ends\n"));
  EXPECT_THAT(second.error, HasSubstr("job 2 waits for job 1 (long), which runs\n"));
  auto third = run({"submit", file, "--priority", "5"});
  check = run({"submit", file, "--check"});
  EXPECT_THAT(check.output, HasSubstr("after job 1 (long), which runs, job 3 (job1), job 2 (job1)"));
  wait_for_training(1, 1);
  const auto status = run({"status"}).output;
  EXPECT_THAT(status, HasSubstr("job 1 long: running"));
  EXPECT_THAT(status, HasSubstr("/1000000"));
  EXPECT_THAT(status, Not(HasSubstr("pipeline 0")));
  EXPECT_THAT(run({"status", "1"}).output, HasSubstr("pipeline 0: a/0"));
  EXPECT_THAT(run({"logs", "1"}).output, HasSubstr("generation 1: 1×1 after"));
  const auto curve = folder.path() / "curve.csv";
  EXPECT_EQ(run({"export", "1", "--curve", curve}).status, 0);
  EXPECT_THAT(content(curve), HasSubstr("step,loss,validation_loss,gradient_norm,"));
  run({"cancel", "1"});
  EXPECT_EQ(wait_for_end(3).state, "done");
  EXPECT_EQ(wait_for_end(2).state, "done");
  EXPECT_THAT(run({"status"}).output, HasSubstr("2 jobs more that have ended"));
  EXPECT_THAT(run({"status", "--all"}).output, HasSubstr("job 1 long: cancelled"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) // whose allocators keep what is freed
// given: a node with two slots, which train when their job is cancelled / expected: what it took of memory, 200 MiB or
// more, goes back to the system
TEST_F(command, memory_of_a_cancelled_job_goes_back) {
  start_nodes({"a"}, {"--slots", "2"});
  const auto node = cluster->node("a").pid();
  auto job = small_job(1'000'000);
  job.model.layers = 4;
  job.model.width = 384;
  const auto before = resident_kib(node);
  const auto id = cluster->client().submit(job);
  wait_for_training(id, 2);
  const auto taken = resident_kib(node) - before;
  ASSERT_GE(taken, 200 << 10);
  run_well({"cancel", std::to_string(id)});
  cluster->wait_for("memory that is free", limit,
                    [&](const status_reply&) { return resident_kib(node) - before < taken / 4; });
}
#endif

// given: a job file with an unknown key / expected: status 1, one line with the file, and the manager is not bothered
TEST_F(command, malformed_job_files_are_refused) {
  auto x = run({"submit", job_file(small_file + "\n[parallel]\nwidht = 2\n")});
  EXPECT_EQ(x.status, 1);
  EXPECT_THAT(x.output, IsEmpty());
  EXPECT_THAT(x.error, HasSubstr("widht"));
  EXPECT_EQ(std::count(x.error.begin(), x.error.end(), '\n'), 1);
  EXPECT_THAT(cluster->client().status().jobs, IsEmpty());
}

// given: a job whose loss and gradients do not stay finite / expected: it says so, trains to its end, and the nodes
// live
TEST_F(command, a_job_may_diverge) {
  start_nodes({"a"});
  auto job = small_job(20);
  job.model = {"mlp", 3, 32, 4, 32, 256, 0, true};
  job.optimizer = {};
  job.optimizer.kind = "sgd";
  job.optimizer.learning_rate = 99'999;
  job.on_not_finite = "go_on";
  const auto id = cluster->client().submit(job);
  EXPECT_EQ(wait_for_end(id).state, "done");
  EXPECT_THAT(run({"status", std::to_string(id)}).output, HasSubstr("loss not finite"));
  const auto json = run({"status", std::to_string(id), "--json"}).output;
  EXPECT_THAT(json, HasSubstr("\"loss\":null"));
  EXPECT_THAT(json, HasSubstr("\"gradient_norm\":null"));
  EXPECT_EQ(living(cluster->client().status(), "worker"), 1u);
  EXPECT_EQ(living(cluster->client().status(), "keeper"), 1u);
}

// given: synthetic preemptions / expected: the process ends by SIGKILL, at once or when the notice is over
TEST_F(command, preempt_is_real) {
  cluster->start_node("a");
  cluster->start_node("b");
  wait_for_workers(2);
  auto x = run_well({"preempt", "a"});
  EXPECT_EQ(x.output, "a\n");
  EXPECT_EQ(cluster->node("a").wait(limit), 128 + SIGKILL);
  wait_for_workers(1);
  EXPECT_EQ(run({"preempt", "--any", "1", "--notice", "1s"}).output, "b\n");
  EXPECT_EQ(cluster->node("b").wait(limit), 128 + SIGKILL);
  EXPECT_EQ(run({"preempt", "c"}).status, 1);
}

// given: a job that is done, and one whose data is nowhere / expected: what the worker says of that is told with the
// second, and not with the first
TEST_F(command, logs_tell_what_failed_of_the_job_that_it_failed) {
  start_nodes({"a"});
  run_well({"submit", job_file(small_file), "--wait"});
  const std::string missing = "no such file or folder";
  EXPECT_THAT(run({"submit", job_file(small_file), "--set", "data.path=/nowhere/data.txt", "--wait"}).error,
              HasSubstr(missing));
  EXPECT_THAT(run({"logs", "1"}).output, Not(HasSubstr(missing)));
  EXPECT_THAT(run({"status", "1"}).output, Not(HasSubstr(missing)));
  EXPECT_THAT(run({"logs", "2"}).output,
              HasSubstr("error a [job 2, generation 0, step 0]: a/0: data /nowhere/data.txt: " + missing));
}

// given: --log-format json / expected: every line of manager and node is an object that says when, how grave, who and
// what, and once the job runs of which job, generation and step
TEST_F(command, logs_are_structured) {
  const auto log = folder.path() / "json.log", manager_log = folder.path() / "manager.json.log";
  const auto manager_out = folder.path() / "manager.out";
  child_process manager({{sibling_program("parcae"), "manager", "--listen", "127.0.0.1:0", "--state",
                          (folder.path() / "manager").string(), "--log-format", "json"},
                         manager_out,
                         manager_log});
  std::string where;
  for (auto until = std::chrono::steady_clock::now() + limit; std::chrono::steady_clock::now() < until;) {
    where = content(manager_out);
    if (where.ends_with('\n') || manager.wait(10ms))
      break;
  }
  where = where.substr(where.rfind(' ') + 1);
  where.pop_back();
  child_process keeper(
      {{sibling_program("parcae-node"), "--manager", where, "--role", "keeper", "--state", folder.path() / "state"},
       folder.path() / "keeper.log",
       folder.path() / "keeper.log"});
  child_process node(
      {{sibling_program("parcae-node"), "--manager", where, "--name", "a", "--log-format", "json"}, log, log});
  auto done = run({"submit", job_file(small_file), "--wait", "--manager", where}, false);
  ASSERT_EQ(done.status, 0) << done.error;
  bool begun = false, finished = false;
  for (const auto& [path, who] : {std::pair(log, "a"), std::pair(manager_log, "manager")}) {
    std::istringstream lines(content(path));
    for (std::string line; std::getline(lines, line);) {
      SCOPED_TRACE(line);
      const auto x = boost::json::parse(line).as_object();
      EXPECT_EQ(x.at("who").as_string(), who);
      EXPECT_EQ(x.at("at").as_string().size(), std::string("2026-01-01T00:00:00.000Z").size());
      EXPECT_TRUE(x.contains("level"));
      const auto text = std::string(x.at("text").as_string());
      if (text.find("generation 1 begins at step 0") != std::string::npos) {
        begun = true;
        EXPECT_EQ(x.at("job"), 1);
        EXPECT_EQ(x.at("generation"), 1);
      }
      if (text.find("stopped at step 20") != std::string::npos) {
        finished = true;
        EXPECT_EQ(x.at("step"), 20);
      }
    }
  }
  EXPECT_TRUE(begun);
  EXPECT_TRUE(finished);
}

// given: a node and a command that are started without standard streams / expected: no connection and no file of theirs
// has the number of one, into which the log would go; the command says by its status that its output is lost
TEST_F(command, started_without_standard_streams_they_take_nothing_for_them) {
  const auto closed = folder.path() / "closed";
  child_process node({{"/bin/sh", "-c", "exec \"$0\" \"$@\" <&- >&- 2>&-", sibling_program("parcae-node"), "--manager",
                       to_string(cluster->where()), "--name", "a"},
                      closed,
                      closed});
  cluster->start_keeper();
  EXPECT_EQ(run({"submit", job_file(small_file), "--wait"}).status, 0);
  const auto open = std::filesystem::path("/proc") / std::to_string(node.pid()) / "fd";
  for (const auto* number : {"0", "1", "2"})
    EXPECT_EQ(std::filesystem::read_symlink(open / number), "/dev/null") << number;
  const auto lost = run_program({"/bin/sh", "-c", "exec \"$0\" \"$@\" >&-", sibling_program("parcae"), "submit",
                                 job_file(small_file), "--manager", to_string(cluster->where())});
  EXPECT_EQ(lost.status, 1);
  EXPECT_THAT(lost.error, HasSubstr("parcae: what was to be printed could not be written"));
  EXPECT_EQ(wait_for_end(2).state, "done");
}

// given: wrong usage, no manager, an address beyond loopback / expected: the status and one line that say so
TEST_F(command, wrong_usage_is_told) {
  EXPECT_EQ(run({"preempt"}).status, 2);
  EXPECT_EQ(run({"status", "--manager", "nowhere"}, false).status, 2);
  EXPECT_EQ(run({"fly"}, false).status, 2);
  EXPECT_EQ(run({"-h"}, false).status, 0);
  auto far = run({"manager", "--listen", "0.0.0.0:0"}, false);
  EXPECT_EQ(far.status, 2);
  EXPECT_THAT(far.error, HasSubstr("loopback"));
  cluster->manager().signal(SIGTERM);
  ASSERT_EQ(cluster->manager().wait(10s), 0);
  auto nobody = run({"status"});
  EXPECT_EQ(nobody.status, 1);
  EXPECT_THAT(nobody.error, HasSubstr("no manager at"));
}

} // namespace
} // namespace parcae
