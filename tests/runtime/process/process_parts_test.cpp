// Plain parts of the programs: addresses, limits, faults, traces, reports.

#include "protocols/base/crash_stack.hpp"
#include "protocols/wire/type_ids.hpp"
#include "runtime/child/process.hpp"
#include "runtime/lab/availability.hpp"
#include "runtime/lab/demo_report.hpp"
#include "runtime/node/black_box.hpp"
#include "runtime/node/black_box_sink.hpp"
#include "runtime/node/faults.hpp"
#include "runtime/node/guardian.hpp"
#include "runtime/node/machine.hpp"
#include "runtime/process/address.hpp"
#include "runtime/process/logging.hpp"
#include "runtime/process/system.hpp"
#include "runtime/process/termination.hpp"
#include "runtime/view/status_json.hpp"
#include "runtime/view/status_text.hpp"

#include <boost/json.hpp>

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <functional>
#include <numeric>
#include <thread>

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
TEST(address, of_a_manager_is_on_loopback) {
  EXPECT_EQ(parse_local_address("localhost:1").host, "127.0.0.1");
  EXPECT_EQ(parse_local_address("127.0.0.1:0").port, 0);
  EXPECT_EQ(parse_local_address("127.1.2.3:5").host, "127.1.2.3");
  for (auto bad : {"0.0.0.0:1", "10.0.0.1:1", "example.org:1"})
    EXPECT_THROW(parse_local_address(bad), std::invalid_argument) << bad;
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

// given: 2 s until something runs, 1 s in 2×1 at 100 ms per step, 1 s waiting, 4 s in 1×1 that is never seen at its
// speed / expected: 8 s at 10 steps/s
TEST(demo_report, possible_steps_of_all_time) {
  rate_meter meter;
  const auto start = std::chrono::steady_clock::time_point(1h);
  meter.sample(start, {0, 0}, 0);
  EXPECT_EQ(meter.possible_steps(), 0);
  meter.sample(start + 2s, {0, 0}, 0);
  meter.sample(start + 3s, {2, 1}, 100);
  meter.sample(start + 4s, {0, 0}, 0);
  EXPECT_DOUBLE_EQ(meter.possible_steps(), 40);
  meter.sample(start + 8s, {1, 1}, 0);
  EXPECT_DOUBLE_EQ(meter.possible_steps(), 80);
}

// given: changes of several kinds, some in which nothing had run before, that were planned again, or that waited for
// instances / expected: the median over those that stalled and went as planned
TEST(demo_report, prediction_ratio) {
  job_status x;
  auto add = [&](const char* kind, double predicted_ms, double stall_ms) {
    x.changes.emplace_back();
    x.changes.back().kind = kind;
    x.changes.back().predicted_ms = predicted_ms;
    x.changes.back().stall_ms = stall_ms;
    x.changes.back().plans = 1;
  };
  EXPECT_EQ(prediction_ratio(x, "pipeline"), (std::pair<double, std::size_t>(0, 0)));
  add("pipeline", 0, 0);
  add("pipeline", 10, 5);
  add("pipeline", 10, 10);
  add("pipeline", 10, 20);
  add("pipeline", 10, 100);
  x.changes.back().plans = 2;
  add("pipeline", 10, 1000);
  x.changes.back().waited = true;
  add("intra_stage", 7, 1);
  EXPECT_EQ(prediction_ratio(x, "pipeline"), (std::pair<double, std::size_t>(1, 3)));
  EXPECT_EQ(prediction_ratio(x, "intra_stage"), (std::pair<double, std::size_t>(7, 1)));
}

// given: a result / expected: every key that others rely on
TEST(demo_report, has_all_keys) {
  demo_result x;
  x.disturbed.parameters_sha256 = x.undisturbed.parameters_sha256 = "ab";
  x.disturbed.steps_by_depth = {{1, 10}, {2, 30}};
  x.disturbed.changes.resize(2);
  x.disturbed.changes[0].stall_ms = 5;
  x.disturbed.changes[0].predicted_ms = 4;
  x.disturbed.changes[0].plans = 1;
  x.disturbed.changes[0].kind = "pipeline";
  auto json = boost::json::parse(json_of(x)).as_object();
  for (auto key : {"steps",
                   "samples",
                   "preemptions",
                   "preemptions_without_notice",
                   "simultaneous_losses",
                   "losses_during_change",
                   "stage_losses",
                   "joins",
                   "generation_changes",
                   "share_of_steps_pipelined",
                   "goodput",
                   "stall_ms",
                   "detect_ms",
                   "lost_steps",
                   "migrations",
                   "final_loss",
                   "parameters_sha256",
                   "undisturbed_parameters_sha256",
                   "identical",
                   "policy",
                   "changes",
                   "predicted_over_measured"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_DOUBLE_EQ(json.at("predicted_over_measured").at("pipeline").to_number<double>(), 0.8);
  EXPECT_EQ(json.at("changes").at(0).at("kind").as_string(), "pipeline");
  EXPECT_EQ(json.at("changes").at(0).at("predicted_ms").to_number<double>(), 4);
  EXPECT_EQ(json.at("changes").at(0).at("measured_ms").to_number<double>(), 5);
  EXPECT_TRUE(json.at("identical").as_bool());
  EXPECT_DOUBLE_EQ(json.at("share_of_steps_pipelined").to_number<double>(), 0.75);
  EXPECT_DOUBLE_EQ(json.at("stall_ms").at("max").to_number<double>(), 5);
  x.disturbed.parameters_sha256 = x.undisturbed.parameters_sha256 = "";
  EXPECT_FALSE(x.identical()) << "no parameters are not identical parameters";
}

// given: a status / expected: JSON of one line with the grid by pipeline, and text that names what matters
// given: a status with commands for terminals, line breaks and marks of direction in every text / expected: the same
// lines as with harmless texts, and none of it; JSON has it, escaped
TEST(status_text, foreign_text_is_made_printable) {
  const auto filled_with = [](const std::string& text) {
    status_reply x;
    x.instances.push_back({text, 1, text, "alive", 1, text, 1, text, 1, -1, -1});
    job_status j;
    j.id = 1;
    j.name = j.phase = j.problem = j.parameters_sha256 = j.checkpoint_problem = text;
    j.state = "running";
    j.grid = {text};
    j.grid_incarnations = {{1}};
    j.width = j.depth = 1;
    j.detailed = true;
    change_status change;
    change.trigger = change.configuration = change.kind = text;
    j.changes = {change};
    j.events = {{0, 0, "warning", text}};
    j.checkpoint_steps = 1;
    j.checkpoint_folders = {{text, text}};
    decision d;
    d.trigger = d.policy = d.reason = d.chosen.configuration = text;
    d.runners_up = {{text, 1}};
    j.decisions = {d};
    j.keepers = {{text, 1, 1}};
    j.memory = {{text, 1, 1}};
    x.jobs.push_back(j);
    x.news = {{0, 0, text, text}};
    x.failures = {{0, 0, text, text, {text, text}, 1}};
    return x;
  };
  const auto plain = text_of(filled_with("a name of twelve"));
  const auto foreign = filled_with("a\x1b[2J\xc2\x9b\xe2\x80\xae\n\r\xff_of12");
  const auto shown = text_of(foreign);
  EXPECT_EQ(std::ranges::count(shown, '\n'), std::ranges::count(plain, '\n'));
  for (const auto* part : {"\x1b", "\xc2\x9b", "\xe2\x80\xae", "\r", "\xff"})
    EXPECT_THAT(shown, testing::Not(HasSubstr(part)));
  EXPECT_THAT(json_of(foreign), HasSubstr("a\\u001"));
}

/// What a process writes to stderr that logs this and ends.
std::string logged(log_format format, const std::shared_ptr<black_box>& box, const std::string& job) {
  int errors[2];
  if (pipe(errors) != 0)
    throw std::runtime_error("no pipe");
  const auto pid = fork();
  if (pid == 0) {
    dup2(errors[1], STDERR_FILENO);
    log_to_stderr("a", format, std::make_shared<black_box_sink>(box));
    spdlog::warn("job {} starts", job);
    _exit(0);
  }
  close(errors[1]);
  std::string seen;
  for (char c; read(errors[0], &c, 1) == 1;)
    seen += c;
  close(errors[0]);
  waitpid(pid, nullptr, 0);
  return seen;
}

const std::string hostile = "x\x1b[2J\nmanager: job y is done\xe2\x80\xae" + std::string(100'000, 'x');

// given: a log line with all that / expected: one line on stderr and in the black box, without it
TEST(logging, foreign_text_is_made_printable) {
  const auto box = std::make_shared<black_box>();
  const auto seen = logged(log_format::text, box, hostile);
  EXPECT_THAT(seen, HasSubstr("job x?[2J manager: job y is done?xxx"));
  EXPECT_EQ(std::ranges::count(seen, '\n'), 1);
  EXPECT_LT(seen.size(), 10'000u);
  ASSERT_EQ(box->lines().size(), 1u);
  EXPECT_THAT(box->lines()[0], HasSubstr("job x?[2J manager: job y is done?xxx"));
}

// given: the same as JSON, and what is no UTF-8 / expected: the same text
TEST(logging, foreign_text_is_made_printable_in_json_too) {
  const auto seen = logged(log_format::json, std::make_shared<black_box>(), "\xff" + hostile);
  EXPECT_EQ(std::ranges::count(seen, '\n'), 1);
  EXPECT_LT(seen.size(), 10'000u);
  EXPECT_THAT(std::string(boost::json::parse(seen).at("text").as_string()),
              testing::StartsWith("job ?x?[2J manager: job y is done?xxx"));
}

// given: signals that pipes, terminals, timers and people send to a process that waits / expected: it goes on; its
// shutdown is bounded all the same
TEST(termination, stray_signals_are_ignored) {
  const auto pid = fork();
  if (pid == 0) {
    const termination end;
    for (const auto stray : {SIGPIPE, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM})
      raise(stray);
    limit_shutdown(1);
    for (;;)
      pause();
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) << status;
}

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
  decision d;
  d.trigger = "join of a/0";
  d.reason = "liveput: 2x1";
  d.expected_ms = 12;
  d.realised_ms = 9;
  d.forecast = {{1.5, 1, 2}};
  d.chosen = {"2×1", 10};
  j.decisions.push_back(d);
  x.jobs.push_back(j);
  instance_status i;
  i.name = "a";
  i.incarnation = {UINT64_MAX};
  i.state = "leaving";
  i.expires_in_ms = 1500;
  x.instances.push_back(i);
  auto json = boost::json::parse(json_of(x));
  EXPECT_EQ(json.at("jobs").at(0).at("grid").at(1).at(0).as_string(), "b/0");
  EXPECT_TRUE(json.at("jobs").at(0).at("chain").at(0).at("last").is_null());
  EXPECT_EQ(json.at("instances").at(0).at("incarnation").as_string(), "ffffffffffffffff");
  auto text = text_of(x);
  EXPECT_THAT(text, HasSubstr("pipeline 1: b/0"));
  EXPECT_THAT(text, HasSubstr("join of a/0: liveput: 2x1; 12ms stall expected, 9ms measured"));
  const auto& shown = json.at("jobs").at(0).at("decisions").at(0);
  EXPECT_EQ(shown.at("chosen").at("configuration").as_string(), "2×1");
  EXPECT_EQ(shown.at("forecast").at(0).at("mean").to_number<double>(), 1.5);
  EXPECT_THAT(text, HasSubstr("not protected"));
  EXPECT_THAT(text, HasSubstr("leaving in 1s"));
}

// given: what a status has for those who watch / expected: all of it in the JSON, and no NaN; last words in the text
TEST(status_text, shows_the_course_and_last_words) {
  status_reply x;
  x.now_us = 5'000'000;
  job_status j;
  j.id = 1;
  j.detailed = true;
  j.state = "running";
  j.steps = 100;
  j.width = j.depth = 1;
  j.grid = {"a/0"};
  j.grid_incarnations = {{10}};
  j.loss = std::nan("");
  j.losses = {{10, 4.5}, {20, 4.25}};
  j.validation_losses = {{20, 4.75}};
  j.time_left_ms = 65'000;
  j.keepers = {{"k", 20, 3}};
  j.layers = 4;
  j.changes.push_back({.number = 0, .to = 1, .trigger = "start", .configuration = "1×1", .kind = "none", .at_us = 77});
  x.jobs.push_back(j);
  x.news_count = 3;
  x.news.push_back({2, 4'000'000, "warning", "instance b is lost"});
  x.failure_count = 1;
  x.failures.push_back({0, 3'000'000, "b", "ended by SIGSEGV", {"first line", "last line"}, 1});
  x.failures.push_back({1, 3'000'000, "c", "of another job", {}, 7});
  x.failures.push_back({2, 3'000'000, "d", "of none", {}, 0});
  const auto json = boost::json::parse(json_of(x));
  const auto& job = json.at("jobs").at(0);
  EXPECT_EQ(job.at("grid_incarnations").at(0).at(0).as_string(), "000000000000000a");
  EXPECT_TRUE(job.at("loss").is_null());
  EXPECT_EQ(job.at("losses").at(1).at("steps").to_number<int>(), 20);
  EXPECT_EQ(job.at("losses").at(1).at("loss").to_number<double>(), 4.25);
  EXPECT_EQ(job.at("validation_losses").at(0).at("loss").to_number<double>(), 4.75);
  EXPECT_EQ(job.at("time_left_ms").to_number<double>(), 65'000);
  EXPECT_EQ(job.at("keepers").at(0).at("keeper").as_string(), "k");
  EXPECT_EQ(job.at("keepers").at(0).at("steps").to_number<int>(), 20);
  EXPECT_EQ(job.at("keepers").at(0).at("layers").to_number<int>(), 3);
  EXPECT_EQ(job.at("layers").to_number<int>(), 4);
  EXPECT_EQ(job.at("changes").at(0).at("at_us").to_number<int>(), 77);
  EXPECT_EQ(json.at("news_count").to_number<int>(), 3);
  EXPECT_EQ(json.at("news").at(0).at("text").as_string(), "instance b is lost");
  EXPECT_EQ(json.at("failures").at(0).at("lines").at(1).as_string(), "last line");
  const auto text = text_of(x);
  EXPECT_THAT(text, HasSubstr("1m05s left"));
  EXPECT_THAT(text, HasSubstr("k: step 20, 3 of 4 layers"));
  EXPECT_THAT(text, HasSubstr("instance b failed 2s ago: ended by SIGSEGV\n  first line\n  last line\n"));
  EXPECT_THAT(text, Not(HasSubstr("of another job")));
  EXPECT_THAT(text, HasSubstr("of none"));
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

// given: lines, more than there is room for, one too long, the end told twice / expected: the newest, cut off between
// characters; the first end; the same through the descriptor
TEST(black_box, keeps_the_newest_lines) {
  black_box box;
  EXPECT_EQ(box.end(), "");
  EXPECT_TRUE(box.lines().empty());
  for (std::size_t i = 0; i < black_box::most_lines + 2; ++i)
    box.write("line " + std::to_string(i));
  std::string wide;
  while (wide.size() < black_box::line_bytes)
    wide += "×";
  box.write(wide);
  box.note_end("first");
  box.note_end("second");
  const black_box other(dup(box.descriptor()));
  for (const auto* x : std::initializer_list<const black_box*>{&box, &other}) {
    const auto lines = x->lines();
    ASSERT_EQ(lines.size(), black_box::most_lines);
    EXPECT_EQ(lines.front(), "line 3");
    EXPECT_EQ(lines.back(), wide.substr(0, black_box::line_bytes - 2));
    EXPECT_EQ(x->end(), "first");
  }
  EXPECT_THROW(black_box(open("/dev/null", O_RDONLY)), std::system_error);
}

// given: a log with a black box, an error / expected: all lines in it, the error and those up to it told to whoever
// asked
TEST(black_box, holds_the_log) {
  const auto box = std::make_shared<black_box>();
  const auto sink = std::make_shared<black_box_sink>(box);
  spdlog::logger log("a", sink);
  log.set_pattern("%l: %v");
  log.error("told to nobody");
  std::vector<std::string> errors;
  std::vector<std::string> lines;
  sink->on_error([&](const std::string& what, std::vector<std::string> up_to_it) {
    errors.push_back(what);
    lines = std::move(up_to_it);
  });
  log.info("one");
  log.error("two");
  log.info("three");
  EXPECT_THAT(lines, ElementsAre("error: told to nobody", "info: one", "error: two"));
  EXPECT_THAT(errors, ElementsAre("two"));
  EXPECT_THAT(box->lines(), ElementsAre("error: told to nobody", "info: one", "error: two", "info: three"));
}

// Until the stack is full.
[[gnu::noinline]] int overflow(const volatile char* before) {
  volatile char here[4096];
  here[0] = before ? *before : 1;
  return here[0] == 0 ? 0 : overflow(here) + here[0];
}

// given: processes that crash, whose stack overflows on the main thread or another, that throw where nobody catches,
// that end well / expected: their end in the box, also the line of the exception; the guardian's last act sees it; they
// end by the signal
TEST(black_box, tells_how_a_process_ended) {
  struct {
    std::function<void()> body;
    int signal;
    std::string end;
  } cases[] = {
      {[] { raise(SIGSEGV); }, SIGSEGV, "ended by SIGSEGV"},
      {[] { std::abort(); }, SIGABRT, "ended by SIGABRT"},
#ifndef __SANITIZE_ADDRESS__
      {[] { overflow(nullptr); }, SIGSEGV, "ended by SIGSEGV"},
      {[] {
         std::thread([] {
           use_crash_stack();
           overflow(nullptr);
         }).join();
       },
       SIGSEGV, "ended by SIGSEGV"},
#endif
      {[] { std::thread([] { throw std::runtime_error("broken"); }).join(); }, SIGABRT, "uncaught exception: broken"},
      {[] {}, 0, ""}};
  for (const auto& x : cases) {
    const auto box = std::make_shared<black_box>();
    int acted[2];
    ASSERT_EQ(pipe(acted), 0);
    const auto pid = fork();
    if (pid == 0) {
      {
        const guardian guard([&] {
          const auto end = box->end() + "\n";
          if (write(acted[1], end.data(), end.size()) < 0)
            _exit(1);
        });
        note_crashes(box);
        x.body();
      }
      _exit(0);
    }
    close(acted[1]);
    std::string seen;
    for (char c; read(acted[0], &c, 1) == 1 && c != '\n';)
      seen += c;
    close(acted[0]);
    EXPECT_EQ(seen, x.end);
    EXPECT_EQ(box->end(), x.end);
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(WIFSIGNALED(status) ? WTERMSIG(status) : 0, x.signal);
  }
}

// given: this process, then one that may use a single core / expected: all of the machine share it; the other has one
// of its own, on what counts as another machine
TEST(identity, of_the_machine) {
  const auto all = this_machine();
  EXPECT_EQ(this_machine(), all);
  EXPECT_FALSE(all.id.empty());
  EXPECT_LE(all.id.size(), machine_facts::longest_id);
  EXPECT_GE(all.cores, 1u);
  EXPECT_EQ(all.bytes, machine_bytes());
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  if (CPU_COUNT(&before) < 2)
    GTEST_SKIP() << "one core";
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before))
      CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const auto restricted = this_machine();
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(restricted.cores, 1u);
  EXPECT_NE(restricted.id, all.id);
}

} // namespace
} // namespace parcae
