// Plain parts of the programs: addresses, limits, faults, logs, children.

#include "protocols/values/log_context.hpp"
#include "protocols/wire/type_ids.hpp"
#include "runtime/child/process.hpp"
#include "runtime/node/black_box.hpp"
#include "runtime/node/black_box_sink.hpp"
#include "runtime/node/faults.hpp"
#include "runtime/node/machine.hpp"
#include "runtime/process/address.hpp"
#include "runtime/process/logging.hpp"
#include "runtime/process/system.hpp"
#include "runtime/process/termination.hpp"
#include "tests/support/names.hpp"
#include "tests/support/thrown_by.hpp"

#include <boost/json.hpp>

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

namespace parcae {
namespace {

// given / expected: HOST:PORT, or an error
TEST(address, parses) {
  auto x = parse_address("somewhere:4242");
  EXPECT_EQ(x.host, "somewhere");
  EXPECT_EQ(x.port, 4242);
  x = parse_address("[fd00::7]:4242");
  EXPECT_EQ(x.host, "fd00::7");
  EXPECT_EQ(to_string(x), "[fd00::7]:4242");
  for (auto bad : {"", "a", ":1", "a:", "a:x", "a:1x", "a:65536", "a:-1", "fd00::7:4242", "[fd00::7]", "[fd00::7",
                   "[]:1", "[a]b:1", "[a]1"})
    EXPECT_THROW(parse_address(bad), std::invalid_argument) << bad;
}

// given: where a node is to listen, with a bundle and without / expected: HOST or HOST:PORT; without, on loopback
TEST(address, of_a_data_port) {
  EXPECT_EQ(to_string(parse_place("10.0.0.7", "x.pem")), "10.0.0.7:0");
  EXPECT_EQ(to_string(parse_place("spot-7.example:7000", "x.pem")), "spot-7.example:7000");
  EXPECT_EQ(to_string(parse_place("[fd00::7]", "x.pem")), "[fd00::7]:0");
  EXPECT_EQ(to_string(parse_place("[fd00::7]:7", "x.pem")), "[fd00::7]:7");
  EXPECT_EQ(to_string(parse_place("localhost", "")), "127.0.0.1:0");
  EXPECT_EQ(to_string(parse_place("[::1]:7", "")), "[::1]:7");
  for (auto bad : {"10.0.0.7", "0.0.0.0", "[::]", "spot-7.example"})
    EXPECT_THROW(parse_place(bad, ""), std::invalid_argument) << bad;
  for (auto bad : {"", "fd00::7", "a:", "a:65536", "[fd00::7", "[]"})
    EXPECT_THROW(parse_place(bad, "x.pem"), std::invalid_argument) << bad;
}

// given: addresses of this machine, others, and what stands for all / expected: where the way begins; known as such
TEST(address, of_this_machine) {
  EXPECT_EQ(address_towards({{"127.0.0.1", 1}}), "127.0.0.1");
  EXPECT_EQ(address_towards({{"nowhere.invalid", 1}, {"127.0.0.1", 1}}), "127.0.0.1");
  const std::vector<address> nowhere{{"nowhere.invalid", 1}};
  EXPECT_THAT(thrown_by([&] { address_towards(nowhere); }), HasSubstr("check --manager, or say it with --listen"));
  EXPECT_TRUE(is_everywhere("0.0.0.0") && is_everywhere("::"));
  EXPECT_FALSE(is_everywhere("10.0.0.7") || is_everywhere("a.example") || is_everywhere(""));
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

// given: bytes of addresses, of a thread's stack, cores / expected: whether that does; more cores are more threads
TEST(system_config, addresses_are_enough) {
  constexpr std::uint64_t mib = 1 << 20, stack = 8 * mib;
  EXPECT_EQ(problem_of_addresses(640 * mib, stack, 2), "");
  EXPECT_EQ(problem_of_addresses(639 * mib, stack, 2),
            "only 639 MiB of addresses are allowed, and threads take 640 MiB: raise `ulimit -v`");
  EXPECT_NE(problem_of_addresses(640 * mib, stack, 64), "");
}

// given / expected: phase, step, index, action, or an error
TEST(faults, parse) {
  auto x = parse_fault("apply@12:3=kill");
  EXPECT_EQ(x.phase, "apply");
  EXPECT_EQ(x.step, 12u);
  EXPECT_EQ(x.index, 3u);
  EXPECT_EQ(x.action, process_fault::kill);
  auto any = parse_fault("prepare@*=throw");
  EXPECT_EQ(any.step, std::nullopt);
  EXPECT_EQ(any.index, std::nullopt);
  EXPECT_EQ(any.action, process_fault::throw_error);
  EXPECT_EQ(parse_fault("a@1=stop").action, process_fault::stop);
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

/// What a process writes to stderr that logs this, so often, while steps go on, and ends.
std::string logged(log_format format, const std::shared_ptr<black_box>& box, const std::string& job, int times = 1) {
  int errors[2];
  if (pipe(errors) != 0)
    throw std::runtime_error("no pipe");
  const auto pid = fork();
  if (pid == 0) {
    dup2(errors[1], STDERR_FILENO);
    log_to_stderr("a", format, std::make_shared<black_box_sink>(box));
    if (times > 1)
      std::thread([] {
        for (std::uint64_t step = 0;; ++step)
          set_log_context({1}, {step, {1}});
      }).detach();
    while (times > 1 && current_log_context().job == 0)
      std::this_thread::yield();
    for (int i = 0; i < times; ++i)
      spdlog::warn("job {} starts", job);
    spdlog::default_logger()->flush();
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

// given: lines that are logged while steps go on / expected: who keeps the last ones keeps what stderr shows
TEST(logging, says_the_same_step_everywhere) {
  const auto box = std::make_shared<black_box>();
  const auto seen = logged(log_format::text, box, "x", 200);
  ASSERT_FALSE(box->lines().empty());
  for (const auto& line : box->lines())
    EXPECT_TRUE(seen.find(line) != seen.npos) << line;
}

// given: a process whose stderr nobody reads, such as that of a terminal that was stopped, and which logs more than the
// pipe holds / expected: it goes on; once somebody reads, there are the newest lines, and how many are not
TEST(logging, waits_for_no_reader) {
  int errors[2], signs[2];
  ASSERT_EQ(pipe(errors) + pipe(signs), 0);
  const auto pid = fork();
  if (pid == 0) {
    dup2(errors[1], STDERR_FILENO);
    close(errors[0]);
    close(errors[1]);
    log_to_stderr("a");
    for (int i = 0; i < 20'000; ++i)
      spdlog::info("line {} {}", i, std::string(100, 'x'));
    [[maybe_unused]] const auto told = write(signs[1], "!", 1);
    for (int i = 0; i < 20; ++i) // a second each at most, if the reader is slow
      spdlog::default_logger()->flush();
    _exit(0);
  }
  close(errors[1]);
  pollfd went_on{signs[0], POLLIN, 0};
  const auto signs_of_life = poll(&went_on, 1, 20'000);
  EXPECT_EQ(signs_of_life, 1) << "it waits for who reads its log";
  if (signs_of_life != 1)
    kill(pid, SIGKILL);
  std::string seen(1 << 22, '\0');
  std::size_t size = 0;
  for (ssize_t n = 0; (n = read(errors[0], seen.data() + size, seen.size() - size)) > 0;)
    size += static_cast<std::size_t>(n);
  seen.resize(size);
  for (int file : {errors[0], signs[0], signs[1]})
    close(file);
  waitpid(pid, nullptr, 0);
  for (const auto* text : {" lines left out here, as nobody read them\n", ": line 0 x", ": line 19999 x"})
    EXPECT_NE(seen.find(text), seen.npos) << text;
  EXPECT_LT(seen.size(), 2u << 20);
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
