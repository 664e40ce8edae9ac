// Plain parts of the programs: addresses, limits, faults, traces, reports.

#include "protocols/type_ids.hpp"
#include "runtime/address.hpp"
#include "runtime/availability.hpp"
#include "runtime/demo_report.hpp"
#include "runtime/faults.hpp"
#include "runtime/guardian.hpp"
#include "runtime/process.hpp"
#include "runtime/status_text.hpp"
#include "runtime/system.hpp"

#include <boost/json.hpp>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <numeric>

namespace parcae {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

// given / expected: HOST:PORT, or an error
TEST(address, parses) {
  auto x = parse_address("somewhere:4242");
  EXPECT_EQ(x.host, "somewhere");
  EXPECT_EQ(x.port, 4242);
  for (auto bad : {"", "a", ":1", "a:", "a:x", "a:1x", "a:65536", "a:-1"})
    EXPECT_THROW(parse_address(bad), std::invalid_argument) << bad;
}

// given: addresses to listen on / expected: loopback only
TEST(address, listens_on_loopback_only) {
  EXPECT_EQ(parse_listen_address("localhost:1").host, "127.0.0.1");
  EXPECT_EQ(parse_listen_address("127.0.0.1:0").port, 0);
  EXPECT_EQ(parse_listen_address("127.1.2.3:5").host, "127.1.2.3");
  for (auto bad : {"0.0.0.0:1", "10.0.0.1:1", "example.org:1"})
    EXPECT_THROW(parse_listen_address(bad), std::invalid_argument) << bad;
}

// given: the configuration as made, and with one thing wrong / expected: no problem, a problem
TEST(system_config, is_validated) {
  EXPECT_EQ(system_config().problem(), "");
  system_config no_heartbeats;
  no_heartbeats.set("middleman.heartbeat-interval", caf::timespan{0});
  EXPECT_THAT(no_heartbeats.problem(), HasSubstr("heartbeats"));
  system_config stealing;
  stealing.set("scheduler.policy", caf::atom("stealing"));
  EXPECT_THAT(stealing.problem(), HasSubstr("policy"));
  system_config slow;
  slow.set("middleman.connection-timeout", caf::timespan(10s));
  EXPECT_THAT(slow.problem(), HasSubstr("lease"));
  liveness_limits limits;
  EXPECT_EQ(problem_of(limits), "");
  limits.prepare = limits.control_request;
  EXPECT_THAT(problem_of(limits), HasSubstr("PREPARE"));
}

// given / expected: phase, step, index, action, or an error
TEST(faults, parse) {
  auto x = parse_fault("apply@12:3=kill");
  EXPECT_EQ(x.phase, "apply");
  EXPECT_EQ(x.step, 12u);
  EXPECT_EQ(x.index, 3u);
  EXPECT_EQ(x.action, fault_action::kill);
  auto any = parse_fault("prepare@*=throw");
  EXPECT_EQ(any.step, std::nullopt);
  EXPECT_EQ(any.index, std::nullopt);
  EXPECT_EQ(any.action, fault_action::throw_error);
  EXPECT_EQ(parse_fault("a@1=stop").action, fault_action::stop);
  for (auto bad : {"", "a", "a@1", "@1=kill", "a@x=kill", "a@1:=kill", "a@1=die"})
    EXPECT_THROW(parse_fault(bad), std::invalid_argument) << bad;
}

// given: a fault / expected: carried out at the first moment that matches, once
TEST(faults, happen_once) {
  fault_injector inject({parse_fault("forward@2:1=throw")});
  inject({"forward", {1}, 1, 1});
  inject({"backward", {1}, 2, 1});
  inject({"forward", {1}, 2, 0});
  EXPECT_THROW(inject({"forward", {1}, 2, 1}), std::runtime_error);
  inject({"forward", {2}, 2, 1});
}

// given: a trace of 12 instances for a cluster of 6 / expected: half of each count, rounded up, no empty changes
TEST(availability, is_scaled_to_the_cluster) {
  std::vector<availability_change> trace{{0ms, 12}, {10ms, -1}, {20ms, -1}, {30ms, -4}, {40ms, 6}};
  EXPECT_THAT(scaled(trace, 6), ElementsAre(availability_change{0ms, 6}, availability_change{20ms, -1},
                                            availability_change{30ms, -2}, availability_change{40ms, 3}));
  EXPECT_EQ(scaled(trace, 12), trace);
  EXPECT_EQ(scaled(trace, 100), trace);
}

// given: made-up traces / expected: never below zero or above the cluster, losses in it, same seed same trace
TEST(availability, is_made_up_by_seed) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    auto trace = made_up_trace(6, 48, seed);
    EXPECT_EQ(trace, made_up_trace(6, 48, seed));
    int present = 0;
    int groups = 0;
    for (const auto& x : trace) {
      present += x.delta;
      groups += x.delta < 0 ? 1 : 0;
      EXPECT_GE(present, 0);
      EXPECT_LE(present, 6);
      EXPECT_NE(x.delta, 0);
    }
    EXPECT_GT(groups, 20);
  }
  EXPECT_NE(made_up_trace(6, 48, 1), made_up_trace(6, 48, 2));
}

// given: a trace file, and broken ones / expected: what happens at one moment is one change; one line on what is wrong
TEST(availability, is_read_from_a_file) {
  scratch_folder folder("parcae-test");
  auto file = folder.path() / "trace.csv";
  std::ofstream(file) << "0,add,a\n0,add,b\n100,remove,a\n100,add,c\n200,remove,b\n";
  EXPECT_THAT(read_trace(file), ElementsAre(availability_change{0ms, 2}, availability_change{200ms, -1}));
  std::ofstream(file) << "0,add,a\nnonsense\n";
  EXPECT_THROW(read_trace(file), std::runtime_error);
  EXPECT_THROW(read_trace(folder.path() / "missing"), std::runtime_error);
}

// given / expected: nearest-rank percentiles
TEST(demo_report, percentiles) {
  EXPECT_EQ(percentile({}, 0.5), 0);
  EXPECT_EQ(percentile({3}, 0.99), 3);
  EXPECT_EQ(percentile({4, 1, 3, 2}, 0.5), 2);
  EXPECT_EQ(percentile({4, 1, 3, 2}, 1), 4);
  std::vector<double> hundred(100);
  std::iota(hundred.begin(), hundred.end(), 1);
  EXPECT_EQ(percentile(hundred, 0.99), 99);
}

// given: 1 s in 2×1 at 100 ms per step, then 1 s of stall / expected: 20 steps were possible
TEST(demo_report, possible_steps) {
  rate_meter meter;
  auto start = std::chrono::steady_clock::time_point(1h);
  meter.sample(start, {2, 1}, 100);
  meter.sample(start + 1s, {2, 1}, 100);
  meter.sample(start + 2s, {2, 1}, 0);
  EXPECT_DOUBLE_EQ(meter.possible_steps(), 20);
}

// given: a result / expected: every key that others rely on
TEST(demo_report, has_all_keys) {
  demo_result x;
  x.disturbed.parameters_sha256 = x.undisturbed.parameters_sha256 = "ab";
  x.disturbed.steps_by_depth = {{1, 10}, {2, 30}};
  x.disturbed.changes.resize(2);
  x.disturbed.changes[0].stall_ms = 5;
  auto json = boost::json::parse(json_of(x)).as_object();
  for (auto key :
       {"steps", "samples", "preemptions", "preemptions_without_notice", "simultaneous_losses", "losses_during_change",
        "stage_losses", "joins", "generation_changes", "share_of_steps_pipelined", "goodput", "stall_ms", "detect_ms",
        "lost_steps", "migrations", "final_loss", "parameters_sha256", "undisturbed_parameters_sha256", "identical"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_TRUE(json.at("identical").as_bool());
  EXPECT_DOUBLE_EQ(json.at("share_of_steps_pipelined").to_number<double>(), 0.75);
  EXPECT_DOUBLE_EQ(json.at("stall_ms").at("max").to_number<double>(), 5);
  x.disturbed.parameters_sha256 = x.undisturbed.parameters_sha256 = "";
  EXPECT_FALSE(x.identical()) << "no parameters are not identical parameters";
}

// given: a status / expected: JSON of one line with the grid by pipeline, and text that names what matters
TEST(status_text, shows_everything) {
  status_reply x;
  job_status j;
  j.id = 3;
  j.state = "running";
  j.phase = "readying";
  j.generation = 2;
  j.width = 2;
  j.depth = 1;
  j.grid = {"a/0", "b/0"};
  j.chain = {{{2}, 5, UINT64_MAX}};
  x.jobs.push_back(j);
  instance_status i;
  i.name = "a";
  i.incarnation = UINT64_MAX;
  i.state = "leaving";
  i.expires_in_ms = 1500;
  x.instances.push_back(i);
  auto json = boost::json::parse(json_of(x));
  EXPECT_EQ(json.at("jobs").at(0).at("grid").at(1).at(0).as_string(), "b/0");
  EXPECT_TRUE(json.at("jobs").at(0).at("chain").at(0).at("last").is_null());
  EXPECT_EQ(json.at("instances").at(0).at("incarnation").as_string(), "ffffffffffffffff");
  auto text = text_of(x);
  EXPECT_THAT(text, HasSubstr("pipeline 1: b/0"));
  EXPECT_THAT(text, HasSubstr("not protected"));
  EXPECT_THAT(text, HasSubstr("leaving in 2 s"));
}

// given: children that end, are killed, are dropped / expected: their status; nothing is left
TEST(child_process, is_waited_for_and_cleaned_up) {
  scratch_folder folder("parcae-test");
  auto out = folder.path() / "out";
  EXPECT_EQ(child_process({{"/bin/sh", "-c", "exit 3"}, out, out}).wait(10s), 3);
  EXPECT_EQ(child_process({{"/no/such/program"}, out, out}).wait(10s), 127);
  pid_t pid = 0;
  {
    child_process child({{"/bin/sleep", "1000"}, out, out});
    pid = child.pid();
    EXPECT_EQ(child.wait(10ms), std::nullopt);
    child.signal(SIGSTOP);
  }
  EXPECT_EQ(kill(pid, 0), -1) << "the stopped child is gone";
  child_process child({{"/bin/sleep", "1000"}, out, out});
  child.signal(SIGKILL);
  EXPECT_EQ(child.wait(10s), 128 + SIGKILL);
}

/// A child process with a guardian and a connection to this one. Its descriptor is also held by another process, which
/// would keep the connection open.
struct guarded_child {
  explicit guarded_child(const std::function<void()>& body) {
    const int listening = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof where;
    auto* address = reinterpret_cast<sockaddr*>(&where);
    EXPECT_EQ(bind(listening, address, size), 0);
    EXPECT_EQ(listen(listening, 1), 0);
    EXPECT_EQ(getsockname(listening, address, &size), 0);
    const int own = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(own, address, size), 0);
    theirs = accept(listening, nullptr, nullptr);
    close(listening);
    timeval limit{10, 0};
    setsockopt(theirs, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    holder = fork();
    if (holder == 0)
      for (;;)
        pause();
    pid = fork();
    if (pid == 0) {
      close(theirs);
      {
        guardian guard;
        if (write(own, "+", 1) == 1)
          body();
      }
      _exit(write(own, "-", 1) == 1 ? 0 : 1);
    }
    close(own);
  }

  ~guarded_child() {
    for (auto child : {pid, holder}) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
    close(theirs);
  }

  /// The next byte; 0 at the end of the connection, -1 if nothing comes.
  int read_byte() const {
    char x = 0;
    const auto n = read(theirs, &x, 1);
    return n == 1 ? x : static_cast<int>(n);
  }

  int theirs = -1;
  pid_t pid = -1, holder = -1;
};

// given: a guarded process with a connection that another one holds too, killed / expected: the connection ends
// given: one that ends its guardian itself / expected: the connection goes on
TEST(guardian, ends_the_connections_of_a_killed_process) {
  guarded_child killed([] { pause(); });
  EXPECT_EQ(killed.read_byte(), '+');
  kill(killed.pid, SIGKILL);
  EXPECT_EQ(killed.read_byte(), 0);
  guarded_child leaves([] {});
  EXPECT_EQ(leaves.read_byte(), '+');
  EXPECT_EQ(leaves.read_byte(), '-');
}

} // namespace
} // namespace parcae
