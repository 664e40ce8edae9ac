// `parcae watch` in a real terminal, and what nodes that fail leave behind.

#include "runtime/view/watch_screen.hpp"
#include "tests/support/cluster.hpp"
#include "tests/support/tmux.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <csignal>
#include <future>
#include <regex>

namespace parcae {
namespace {

struct watch : cluster_test {
  static constexpr const char* report = "\necho exited with $?\nstty -a | tr ' ' '\\n' | grep -E '^-?(icanon|echo);?$'";

  /// A script: watch with that environment, then what became of it and of the terminal.
  std::string script(const std::string& environment = "", const std::string& job = "") {
    return "trap : INT\n" + environment + " " + sibling_program("parcae").string() + " watch " + job + " --manager " +
           to_string(cluster->where()) + report;
  }

  /// Without what changes by itself: times and ages, and the spaces they leave.
  static std::string normal(const std::string& screen) {
    auto x = std::regex_replace(screen, std::regex("[0-9]{2}:[0-9]{2}:[0-9]{2}"), "TIME");
    x = std::regex_replace(x, std::regex("\\b([0-9]+d)?([0-9]+h)?([0-9]+m)?[0-9]+[smh]\\b"), "AGE");
    x = std::regex_replace(x, std::regex(" +"), " ");
    x = std::regex_replace(x, std::regex(" *\n"), "\n");
    return x.substr(0, x.find_last_not_of('\n') + 1);
  }

  /// What `watch` has to show now.
  std::string expected(std::uint64_t job, screen_size size) {
    const auto x = cluster->client().status({.job = job});
    std::string result;
    for (const auto& line : render(x, job, {x.now_us, 0}, size))
      result += to_string(line) + "\n";
    return normal(result);
  }

  void expect_screen(tmux& terminals, const std::string& name, std::uint64_t job, screen_size size) {
    std::string wanted;
    const auto shown = terminals.wait(name, [&](const std::string& x) {
      wanted = expected(job, size);
      return normal(x) == wanted;
    });
    EXPECT_EQ(normal(shown), wanted);
  }

  static std::uint64_t step_on(const std::string& screen) {
    std::smatch found;
    return std::regex_search(screen, found, std::regex("step ([0-9]+)/")) ? std::stoull(found[1]) : 0;
  }

  static void expect_drawn(const std::string& screen) {
    EXPECT_THAT(screen, HasSubstr("a/0"));
    EXPECT_THAT(screen, Not(HasSubstr("exited with")));
  }

  static void expect_restored(const std::string& screen) {
    EXPECT_THAT(screen, HasSubstr("\nicanon\n"));
    EXPECT_THAT(screen, HasSubstr("\necho\n"));
    EXPECT_THAT(screen, Not(HasSubstr("q: quit"))) << "the other screen is gone";
  }
};

// given: a job on two workers, one killed, another joins, the job cancelled; 80×24, made 200×50 meanwhile / expected:
// while it trains, step, places and evaluation are what status says before and after; while it waits the whole screen
// is what `render` makes of the status (whose words are watch_test's); the loss is seen by both within a second of the
// kill; exit status 1 and the terminal as it was
TEST_F(watch, shows_what_status_says) {
  auto job = small_job(1'000'000);
  job.min_depth = 2;
  job.data.validation = 16;
  job.evaluate_every = 10;
  const auto id = start_job(job, {"a", "b"});
  tmux terminals(folder.path());
  terminals.open("first", 80, 24, script());
  wait_for_job(id, "an evaluation and a snapshot",
               [](const job_status& j) { return j.evaluated_steps > 0 && j.protected_steps > 0; });

  // What moves is between what it was before and after.
  const auto before = wait_for_training(id, 2);
  const auto shown = terminals.wait("first", [&](const std::string& x) { // which may be half drawn
    return step_on(x) >= before.steps_done && x.find("validation  ") != std::string::npos &&
           x.find("validation  -") == std::string::npos && x.find(before.grid.back()) != std::string::npos;
  });
  const auto after = job_of(cluster->client().status(), id);
  EXPECT_GE(step_on(shown), before.steps_done);
  EXPECT_LE(step_on(shown), after.steps_done);
  EXPECT_THAT(shown, HasSubstr("1×2"));
  for (const auto& slot : after.grid)
    EXPECT_THAT(shown, HasSubstr(slot));
  EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), 24);

  const auto killed = std::chrono::steady_clock::now();
  cluster->node("b").signal(SIGKILL);
  cluster->wait_for("the loss in the status", limit, [&](const status_reply& x) {
    return std::ranges::any_of(x.instances, [](const auto& i) { return i.name == "b" && i.state == "lost"; });
  });
  EXPECT_LT(std::chrono::steady_clock::now() - killed, 1s) << "status";
  terminals.wait_for("first", "b lost");
  EXPECT_LT(std::chrono::steady_clock::now() - killed, 1s) << "watch";

  // Nothing moves while the job waits.
  wait_for_job(id, "waiting", [](const job_status& j) { return j.phase == "waiting"; });
  expect_screen(terminals, "first", id, {80, 24});
  terminals.resize("first", 200, 50);
  expect_screen(terminals, "first", id, {200, 50});
  const auto json = boost::json::parse(run({"status", std::to_string(id), "--json"}).output).at("jobs").at(0);
  const auto large = terminals.screen("first");
  EXPECT_THAT(large,
              HasSubstr("step " + std::to_string(json.at("steps_done").to_number<std::uint64_t>()) + "/1000000"));
  EXPECT_THAT(large, HasSubstr("keeper step " + std::to_string(json.at("keepers").at(0).at("steps").to_number<int>())));
  EXPECT_THAT(large, HasSubstr(std::string(json.at("problem").as_string())));

  cluster->start_node("c");
  wait_for_training(id, 2);
  EXPECT_THAT(terminals.wait_for("first", "c/0"), HasSubstr("c/0"));
  EXPECT_EQ(run({"cancel", std::to_string(id)}).status, 0);
  const auto end = terminals.wait_for("first", "echo\n");
  EXPECT_THAT(end, HasSubstr("parcae: job 1 cancelled"));
  EXPECT_THAT(end, HasSubstr("exited with 1\n"));
  expect_restored(end);
}

// given: q, Ctrl-C, Ctrl-Z and fg, SIGTERM, a job that is done, a manager that is killed, and one in its place /
// expected: the exit status that says so, the terminal as it was; colours but with NO_COLOR; ASCII where the locale
// knows no other; lines where nothing can be drawn; a manager that is away is waited for, not for ever, and q still
// leaves
TEST_F(watch, ends_and_gives_the_terminal_back) {
  const auto id = start_job(small_job(1'000'000), {"a"});
  wait_for_training(id, 1);
  tmux terminals(folder.path());
  const auto colour = std::regex("\x1b\\[[0-9;]*3[0-7]m");
  terminals.open("q", 80, 24, script());
  terminals.open("interrupt", 80, 24, script("NO_COLOR=1"));
  terminals.open("ascii", 80, 24, script("LC_ALL=C"));
  terminals.open("dumb", 80, 24, script("TERM=dumb"));
  terminals.open("stopped", 80, 24, "set -m\n" + script() + "\nread go\nclear\nfg" + report);
  for (const auto* name : {"q", "interrupt", "ascii", "stopped"})
    EXPECT_THAT(terminals.wait_for(name, "pipeline 0"), HasSubstr("a/0")) << name;
  EXPECT_TRUE(std::regex_search(terminals.screen("q", true), colour));
  EXPECT_FALSE(std::regex_search(terminals.screen("interrupt", true), colour));
  EXPECT_THAT(terminals.screen("ascii"), HasSubstr("1x1"));
  const auto lines = terminals.wait_for("dumb", "step");
  EXPECT_THAT(lines, HasSubstr("job 1 small: running"));
  EXPECT_THAT(lines, Not(HasSubstr("pipeline 0")));

  terminals.press("q", "q");
  auto end = terminals.wait_for("q", "echo\n");
  EXPECT_THAT(end, HasSubstr("exited with 0\n"));
  expect_restored(end);
  terminals.press("interrupt", "C-c");
  end = terminals.wait_for("interrupt", "echo\n");
  EXPECT_THAT(end, HasSubstr("exited with 130\n"));
  expect_restored(end);
  terminals.press("stopped", "C-z");
  end = terminals.wait_for("stopped", "echo\n");
  EXPECT_THAT(end, HasSubstr("exited with 147\n")); // by SIGSTOP
  expect_restored(end);
  terminals.press("stopped", "Enter");
  expect_drawn(terminals.wait_for("stopped", "q: quit"));
  const auto step = step_on(terminals.screen("stopped"));
  EXPECT_GT(step_on(terminals.wait("stopped", [&](const std::string& x) { return step_on(x) > step; })), step);
  terminals.press("stopped", "q");
  end = terminals.wait_for("stopped", "echo\n");
  EXPECT_THAT(end, HasSubstr("exited with 0\n"));
  expect_restored(end);

  cluster->client().cancel(id);
  wait_for_end(id);
  const auto next = cluster->client().submit(small_job(30));
  const auto plain = run_well({"watch", std::to_string(next)});
  EXPECT_THAT(plain.output, HasSubstr("done, step 30/30"));
  EXPECT_THAT(plain.output, HasSubstr(wait_for_end(next).parameters_sha256));
  EXPECT_EQ(plain.error, "");
  EXPECT_EQ(run({"watch", "77"}).status, 1);

  // Without a job that runs the last one is shown, so the one that is to see the manager's end needs another.
  cluster->client().submit(small_job(1'000'000));
  terminals.open("gone", 80, 24, script());
  EXPECT_THAT(terminals.wait_for("gone", "pipeline 0"), HasSubstr("a/0"));
  terminals.open("lines", 80, 24, script("TERM=dumb"));
  terminals.wait_for("lines", "step");
  manager_client impatient(cluster->where());
  std::promise<std::string> lost;
  impatient.follow({}, 10ms,
                   {.heard = [](const status_reply&) { return status_request{}; },
                    .away = [](const std::string&) {},
                    .lost = [&](const std::string& why) { lost.set_value(why); }},
                   100ms);
  kill_manager();
  const auto gone = "the manager at " + to_string(cluster->where()) + " is gone; waits for its return";
  EXPECT_THAT(terminals.wait_for("gone", gone), HasSubstr("pipeline 0"));
  EXPECT_THAT(terminals.wait_for("lines", "waits for its return"), HasSubstr("warning: the manager at"));
  auto why = lost.get_future();
  ASSERT_EQ(why.wait_for(limit), std::future_status::ready);
  EXPECT_THAT(why.get(), HasSubstr("no manager at " + to_string(cluster->where())));
  cluster->restart_manager();
  EXPECT_THAT(terminals.wait("gone", [&](const std::string& x) { return x.find("is gone") == std::string::npos; }),
              HasSubstr("q: quit"));
  EXPECT_THAT(terminals.wait_for("lines", "answers again"), Not(HasSubstr("exited with")));
  cluster->manager().signal(SIGKILL);
  terminals.wait_for("gone", gone);
  terminals.press("gone", "q");
  end = terminals.wait_for("gone", "echo\n");
  EXPECT_THAT(end, HasSubstr("exited with 0\n"));
  expect_restored(end);
}

// given: a worker that fails but lives, one that crashes, one that is killed / expected: the last lines of the first
// two in the status of the manager, with the name, as they are in the node's log; nothing of the third
TEST_F(watch, failing_nodes_leave_their_last_lines) {
  cluster->start_keeper();
  cluster->start_node("fails", {"--fault", "exchanged@20=throw"});
  cluster->start_node("crashes");
  cluster->start_node("killed");
  wait_for_workers(3);
  auto job = small_job(1'000'000);
  job.max_depth = 1;
  job.min_width = 3; // all three train
  cluster->client().submit(job);
  const auto failures = [&](std::size_t count) {
    return cluster
        ->wait_for(std::to_string(count) + " failures", limit,
                   [&](const status_reply& x) { return x.failures.size() >= count; })
        .failures;
  };
  ASSERT_EQ(failures(1).size(), 1u);
  cluster->node("killed").signal(SIGKILL);
  wait_for_workers(2);
  cluster->node("crashes").signal(SIGSEGV);
  EXPECT_EQ(cluster->node("crashes").wait(limit), 128 + SIGSEGV);
  const auto all = failures(2);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].instance, "fails");
  EXPECT_EQ(all[0].what, "fails/0: injected failure");
  EXPECT_EQ(all[1].instance, "crashes");
  EXPECT_EQ(all[1].what, "ended by SIGSEGV");
  for (const auto& x : all) {
    const auto log = content(folder.path() / "first" / (x.instance + ".log"));
    ASSERT_FALSE(x.lines.empty());
    for (const auto& line : x.lines)
      EXPECT_THAT(log, HasSubstr(line));
  }
  EXPECT_THAT(all[0].lines, testing::Contains(HasSubstr("error fails [job 1, generation 1, step 20]")));
  const auto text = run({"status"}).output;
  EXPECT_THAT(text, HasSubstr("instance crashes failed"));
  EXPECT_THAT(text, HasSubstr("instance fails reported")) << "it lives";
  EXPECT_THAT(text, HasSubstr(all[1].lines.back()));
  const auto json = boost::json::parse(run({"status", "--json"}).output);
  EXPECT_EQ(json.at("failures").at(1).at("instance").as_string(), "crashes");
  EXPECT_EQ(json.at("failures").at(1).at("lines").as_array().size(), all[1].lines.size());
}

} // namespace
} // namespace parcae
