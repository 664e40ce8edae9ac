// What is left of a process that ends: its guardian's last act, its last lines.

#include "protocols/base/crash_stack.hpp"
#include "protocols/values/log_context.hpp"
#include "runtime/node/black_box.hpp"
#include "runtime/node/black_box_sink.hpp"
#include "runtime/node/guardian.hpp"
#include "tests/support/names.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <thread>

namespace parcae {
namespace {

/// A child process with a guardian and two connections to this one: one that it was started with, as from a launcher,
/// and one that it made. Their descriptors are also held by another process, which would keep them open.
struct guarded_child {
  explicit guarded_child(const std::function<void()>& body) {
    const int listening = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof where;
    auto* address = reinterpret_cast<sockaddr*>(&where);
    EXPECT_EQ(bind(listening, address, size), 0);
    EXPECT_EQ(listen(listening, 2), 0);
    EXPECT_EQ(getsockname(listening, address, &size), 0);
    const auto dial = [&] {
      const int result = socket(AF_INET, SOCK_STREAM, 0);
      return connect(result, address, size) == 0 ? result : -1;
    };
    inherited = dial();
    launchers = accept(listening, nullptr, nullptr);
    EXPECT_EQ(pipe(life), 0);
    pid = fork();
    if (pid == 0)
      live(dial, body);
    theirs = accept(listening, nullptr, nullptr);
    close(listening);
    close(life[0]);
    const timeval limit{10, 0};
    for (auto x : {launchers, theirs})
      setsockopt(x, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }

  ~guarded_child() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    for (auto x : {life[1], inherited, launchers, theirs})
      close(x);
  }

  [[noreturn]] void live(const std::function<int()>& dial, const std::function<void()>& body) {
    close(life[1]);
    int own = -1;
    {
      guardian guard;
      own = dial();
      if (fork() == 0) { // the other process that holds them
        char none = 0;
        while (read(life[0], &none, 1) > 0)
          continue;
        _exit(0);
      }
      if (write(own, "+", 1) == 1)
        body();
    }
    _exit(write(own, "-", 1) == 1 ? 0 : 1);
  }

  /// The next byte at an end; 0 at the end of the connection, -1 if nothing comes.
  static int read_byte(int end) {
    char x = 0;
    const auto n = read(end, &x, 1);
    return n == 1 ? x : static_cast<int>(n);
  }

  int theirs = -1;        ///< this process's end of the connection that the child made
  int inherited = -1;     ///< that the child was started with, also held here
  int launchers = -1;     ///< the other end of it
  int life[2] = {-1, -1}; ///< the other process lives until it is closed here
  pid_t pid = -1;
};

// given: a guarded process with a connection that another one holds too, killed / expected: the connection ends; one
// that it was started with goes on for those who gave it
// given: one that ends its guardian itself / expected: the connection goes on
TEST(guardian, ends_the_connections_of_a_killed_process) {
  guarded_child killed([] { pause(); });
  EXPECT_EQ(guarded_child::read_byte(killed.theirs), '+');
  kill(killed.pid, SIGKILL);
  EXPECT_EQ(guarded_child::read_byte(killed.theirs), 0);
  waitpid(killed.pid, nullptr, 0);
  EXPECT_EQ(send(killed.inherited, "!", 1, MSG_NOSIGNAL), 1);
  EXPECT_EQ(guarded_child::read_byte(killed.launchers), '!');
  guarded_child leaves([] {});
  EXPECT_EQ(guarded_child::read_byte(leaves.theirs), '+');
  EXPECT_EQ(guarded_child::read_byte(leaves.theirs), '-');
}

// given: lines, more than there is room for, one too long, the end told twice, of two jobs / expected: the newest, cut
// off between characters; the first end and its job; the same through the descriptor
TEST(black_box, keeps_the_newest_lines) {
  black_box box;
  EXPECT_EQ(box.end(), "");
  EXPECT_TRUE(box.lines().empty());
  for (std::size_t i = 0; i < black_box::max_lines + 2; ++i)
    box.write("line " + std::to_string(i));
  std::string wide;
  while (wide.size() < black_box::line_bytes)
    wide += "×";
  box.write(wide);
  EXPECT_EQ(box.job(), 0u);
  set_log_context({7}, {});
  box.note_end("first");
  set_log_context({8}, {});
  box.note_end("second");
  const black_box other(dup(box.descriptor()));
  for (const auto* x : std::initializer_list<const black_box*>{&box, &other}) {
    const auto lines = x->lines();
    ASSERT_EQ(lines.size(), black_box::max_lines);
    EXPECT_EQ(lines.front(), "line 3");
    EXPECT_EQ(lines.back(), wide.substr(0, black_box::line_bytes - 2));
    EXPECT_EQ(x->end(), "first");
    EXPECT_EQ(x->job(), 7u);
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

} // namespace
} // namespace parcae
