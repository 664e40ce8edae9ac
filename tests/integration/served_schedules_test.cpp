// What may happen to a served model at a chosen moment, with real processes: clients' answers are those of an
// undisturbed service.

#include "tests/support/serving_cluster.hpp"
#include "tests/support/standby_cluster.hpp"

#include <gtest/gtest.h>

namespace parcae {
namespace {

using namespace std::chrono_literals;

/// Prompts are read in several passes.
struct served_schedules : serving_cluster {
  std::uint64_t begin(const std::vector<std::string>& workers, const std::vector<std::string>& settings = {}) {
    start_gateway();
    for (const auto& name : workers)
      cluster->start_node(name);
    std::vector<std::string> all{"--set", "serve.chunk=8"};
    all.insert(all.end(), settings.begin(), settings.end());
    const auto id = submit(file, all);
    wait_for_service();
    ask_undisturbed();
    return id;
  }

  void start_worker(const std::string& name, const std::string& fault) {
    cluster->start_node(name, {"--fault", fault});
  }

  /// The gateway too knows it: requests are divided.
  void wait_until_both_serve(std::uint64_t id) {
    wait_for_shape(id, 2, 1);
    wait_for_service();
    expect_undisturbed(ask_all());
  }

  /// It stopped itself, by a fault.
  void wait_until_stopped(const std::string& name) {
    const auto file = "/proc/" + std::to_string(cluster->node(name).pid()) + "/stat";
    EXPECT_TRUE(eventually([&] { return content(file).find(") T ") != std::string::npos; }, limit));
  }
};

// given: who leaves is killed while it sends caches; who they go to is killed then; a second notice and a loss then /
// expected: the answers of one worker
TEST_F(served_schedules, caches_move_and_their_ends_die) {
  const auto id = begin({"w1"}, {"--set", "model.layers=8"}); // as small ones have answered before anybody leaves
  const auto ask_early = [&](const std::function<void()>& disturb) { expect_undisturbed(ask_all(disturb, 1)); };
  {
    SCOPED_TRACE("the source dies");
    start_worker("w2", "cache_send@*=kill");
    wait_until_both_serve(id);
    ask_early([&] { cluster->node("w2").signal(SIGTERM); });
    EXPECT_EQ(cluster->node("w2").wait(limit), 128 + SIGKILL);
  }
  {
    SCOPED_TRACE("the destination dies");
    start_worker("w3", "cache_send@*=stop");
    wait_until_both_serve(id);
    ask_early([&] {
      cluster->node("w3").signal(SIGTERM);
      wait_until_stopped("w3");
      kill_node("w1");
      cluster->start_node("w4");
      cluster->node("w3").signal(SIGCONT);
    });
  }
  {
    SCOPED_TRACE("another notice, and a loss");
    start_worker("w5", "cache_send@*=stop");
    wait_until_both_serve(id);
    cluster->start_node("w6"); // for whom there is nothing to do yet
    wait_for_workers(3);
    ask_early([&] {
      cluster->node("w5").signal(SIGTERM);
      wait_until_stopped("w5");
      cluster->node("w6").signal(SIGTERM);
      kill_node("w4");
      cluster->start_node("w7");
      cluster->node("w5").signal(SIGCONT);
    });
  }
}

// given: two pipelines of two stages; a stage of each is killed at once, in the middle of prompts / expected: the
// answers of one worker
TEST_F(served_schedules, all_pipelines_break_at_once) {
  const auto id = begin({"w1", "w2", "w3", "w4"}, {"--set", "parallel.min_depth=2"});
  wait_for_shape(id, 2, 2);
  const auto grid = job_of(cluster->client().status({.job = id}), id).grid;
  ASSERT_EQ(grid.size(), 4u);
  const auto instance = [&](std::size_t rank) { return grid[rank].substr(0, grid[rank].find('/')); };
  expect_undisturbed(ask_all(
      [&] {
        for (const auto& name : {instance(0), instance(3)})
          cluster->node(name).signal(SIGKILL);
        cluster->start_node("w5");
        cluster->start_node("w6");
      },
      1));
  wait_for_shape(id, 2, 2);
}

// given: twelve layers; workers with less and less memory come, and go again, while requests run / expected: one, two,
// three stages, and one again; caches are divided anew, nothing is computed twice, the answers are those of one worker
TEST_F(served_schedules, stages_become_more_and_fewer) {
  const auto id = begin({"w1"}, {"--set", "model.layers=12", "--set", "parallel.max_width=1"});
  const auto before = wait_for_figures(id, requests);
  const auto disturbed_to = [&](std::uint32_t depth, const std::function<void()>& disturb) {
    SCOPED_TRACE(depth);
    expect_undisturbed(ask_all(disturb));
    wait_for_shape(id, 1, depth);
  };
  // All layers take 28 MB and a half besides their caches, six 19, four 15; half of that are caches that arrive.
  disturbed_to(2, [&] { cluster->start_node("w2", {"--slot-memory", "31MiB"}); });
  disturbed_to(3, [&] { cluster->start_node("w3", {"--slot-memory", "26MiB"}); });
  disturbed_to(1, [&] {
    for (const auto* name : {"w2", "w3"})
      cluster->node(name).signal(SIGTERM);
  });
  EXPECT_EQ(wait_for_figures(id, 4 * requests).requests.recomputed, before.requests.recomputed);
}

// given: room for the caches of a few requests in each of two pipelines, and one of them goes / expected: the answers
// of one worker, though not all caches have a place
TEST_F(served_schedules, caches_have_no_room) {
  const auto id = begin({"w1", "w2"}, {"--set", "serve.cache=\"4MiB\"", "--set", "model.layers=6"});
  wait_until_both_serve(id);
  const auto before = wait_for_figures(id, 2 * requests);
  expect_undisturbed(ask_all([&] { cluster->node("w2").signal(SIGTERM); }, 1));
  EXPECT_GT(wait_for_figures(id, 3 * requests).requests.recomputed, before.requests.recomputed);
}

// given: a manager that is told to end, one that is away for long while a worker is killed, and one that stands still /
// expected: the answers of one worker
TEST_F(served_schedules, managers_come_and_go) {
  const auto id = begin({"w1", "w2"});
  wait_for_shape(id, 2, 1);
  {
    SCOPED_TRACE("told to end");
    expect_undisturbed(ask_all([&] {
      cluster->manager().signal(SIGTERM);
      EXPECT_EQ(cluster->manager().wait(limit), 0);
    }));
    expect_undisturbed(ask_all());
    cluster->restart_manager();
    wait_for_shape(id, 2, 1);
  }
  {
    SCOPED_TRACE("away while a worker dies");
    const auto before = job_of(cluster->client().status({.job = id}), id).generation;
    kill_manager();
    expect_undisturbed(ask_all([&] { kill_node("w1"); }));
    std::this_thread::sleep_for(10s);
    expect_undisturbed(ask_all());
    cluster->restart_manager();
    cluster->start_node("w3");
    wait_for_job(id, "w3 in place of w1",
                 [&](const job_status& j) { return j.phase == "running" && j.width == 2 && j.generation > before; });
  }
  for (const auto time : {3s, 20s}) {
    SCOPED_TRACE(time.count());
    expect_undisturbed(ask_all([&] { cluster->manager().signal(SIGSTOP); }));
    std::this_thread::sleep_for(time);
    expect_undisturbed(ask_all([&] { cluster->manager().signal(SIGCONT); }));
    wait_for_shape(id, 2, 1);
  }
}

// given: clients that hang up at every moment, that read a byte now and then, or nothing at all / expected: the others'
// answers are those of one worker, and nothing of them is left
TEST_F(served_schedules, clients_are_as_they_are) {
  const auto id = begin({"w1", "w2"});
  wait_for_shape(id, 2, 1);
  std::vector<web_client> slow;
  for (int i = 0; i < 10; ++i) {
    slow.emplace_back(port, "127.0.0.1", 1);
    slow.back().send(web_question{"POST", "/v1/completions", {}, wish_of(i).body(i % 2 == 0)}.text(port));
  }
  expect_undisturbed(ask_all([&] {
    for (int i = 0; i < 40; ++i) {
      web_client leaves(port);
      const auto text = web_question{"POST", "/v1/completions", {}, wish_of(i % requests).body(i % 3 != 0)}.text(port);
      leaves.send(text.substr(0, i % 4 == 0 ? text.size() / 2 : text.size()));
      std::this_thread::sleep_for(std::chrono::milliseconds(3 * (i % 7)));
    }
  }));
  slow.clear();
  wait_for_figures(id, 2 * requests);
}

// given: a job that is cancelled while its requests run, while it waits for workers, and while caches move / expected:
// all clients hear of it, the next job answers as one worker does
TEST_F(served_schedules, cancelled_at_any_time) {
  const std::vector<std::string> larger{"--set", "model.layers=8"};
  auto id = begin({"w1"}, larger);
  const auto cancel = [&] { EXPECT_EQ(run({"cancel", std::to_string(id)}).status, 0); };
  const auto submit_next = [&] {
    wait_for_end(id);
    EXPECT_TRUE(eventually([&] { return health() == 503; }, limit));
    id = submit(file, larger);
  };
  const auto expect_ended = [&](const std::function<void()>& disturb) {
    std::size_t cut = 0;
    for (const auto& x : ask_all(disturb, 1))
      cut += x.status == 200 ? 0 : 1;
    EXPECT_GT(cut, 0u);
  };
  {
    SCOPED_TRACE("while requests run");
    expect_ended(cancel);
    submit_next();
    wait_for_service();
    expect_undisturbed(ask_all());
  }
  {
    SCOPED_TRACE("while it waits for workers");
    expect_ended([&] {
      kill_node("w1");
      wait_for_job(id, "nobody", [](const job_status& j) { return j.phase != "running"; });
      cancel();
    });
    submit_next();
    cluster->start_node("w2");
    start_worker("w3", "cache_send@*=stop");
    wait_until_both_serve(id);
  }
  {
    SCOPED_TRACE("while caches move");
    expect_ended([&] {
      cluster->node("w3").signal(SIGTERM);
      wait_until_stopped("w3");
      cancel();
      cluster->node("w3").signal(SIGCONT);
    });
    submit_next();
    wait_for_service();
    expect_undisturbed(ask_all());
  }
}

// given: two workers, of which one serves; the fifth pass throws on either, which a long request computes alone; others
// come / expected: that one ends and says so, the others are as with one worker
TEST_F(served_schedules, a_request_makes_passes_throw) {
  const auto id = begin({"w1"}, {"--set", "parallel.max_width=1"});
  for (const auto* name : {"w2", "w3"})
    start_worker(name, "forward@5=throw");
  wait_for_workers(3);
  kill_node("w1");
  wait_for_job(id, "the others", [](const job_status& j) { return j.phase == "running" && j.generation > 1; });
  auto harms = std::async(std::launch::async, [&] { return ask_whole(port, {"served", 200, 20, 7}); });
  const auto has_thrown = [&](const std::string& name) {
    return content(folder.path() / "first" / (name + ".log")).find("injected fault") != std::string::npos;
  };
  EXPECT_TRUE(eventually([&] { return has_thrown("w2") || has_thrown("w3"); }, limit));
  expect_undisturbed(ask_all());
  EXPECT_EQ(harms.get().status, 500u);
}

// given: a cache that is smaller than one longest request / expected: the job waits and says what it needs
TEST_F(served_schedules, no_room_for_one_request) {
  start_gateway();
  cluster->start_node("w1");
  const auto id = submit(file, {"--set", "serve.cache=\"1MiB\""});
  wait_for_job(id, "what it needs", [](const job_status& j) {
    const auto what = j.problem + j.idle;
    return j.width == 0 && what.find("room for 256 positions") != what.npos &&
           what.find("a request may have 320; give more") != what.npos;
  });
  EXPECT_TRUE(eventually([&] { return health() == 503; }, limit));
}

/// Two managers, of which one leads.
struct served_by_standby : standby_cluster, served_clients {};

// given: the manager that leads is killed while requests run; another stands still, wakes up when the first one leads
// again / expected: the answers of one worker, nothing is computed twice
TEST_F(served_by_standby, answers_whoever_leads) {
  start_node("gate", gateway_arguments());
  const auto id =
      std::stoull(run_well({"submit", write("served.toml", served_job_file), "--manager", both()}, false).output);
  const auto wait_for_two = [&] {
    wait_for_leader_with(id, limit, "2x1", [](const job_status& j) { return j.phase == "running" && j.width == 2; });
  };
  wait_for_two();
  wait_for_service();
  ask_undisturbed();
  const auto first = leader();
  expect_undisturbed(ask_all([&] { processes.at(first).signal(SIGKILL); }));
  wait_for_two();
  start_manager(first);
  const std::string second = first == "m0" ? "m1" : "m0";
  expect_undisturbed(ask_all([&] { processes.at(second).signal(SIGSTOP); }));
  wait_for_two();
  expect_undisturbed(ask_all([&] { processes.at(second).signal(SIGCONT); }));
  wait_for_two();
  const auto last = wait_for_leader_with(id, limit, "figures", [](const job_status& j) {
    return j.requests.running + j.requests.queued == 0 && j.requests.answered >= 4 * requests;
  });
  EXPECT_EQ(last.requests.broken, 0u);
  EXPECT_EQ(last.requests.recomputed, 0u);
}

} // namespace
} // namespace parcae
