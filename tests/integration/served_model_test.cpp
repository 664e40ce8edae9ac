// A served model with real processes: clients' answers are those of an undisturbed service, whatever happens to workers
// and managers while they come.

#include "tests/support/serving_cluster.hpp"

#include <gmock/gmock.h>

namespace parcae {
namespace {

using namespace std::chrono_literals;

struct served_model : serving_cluster {};

// given: a service that grows, loses a worker by a kill, one by a notice, one by a notice that is over at once, one
// while its manager is away, all of them, its manager, and gets others, while 24 requests run / expected: all answers
// are those of one request after the other on one worker
TEST_F(served_model, answers_as_if_nothing_happened) {
  start_gateway();
  cluster->start_node("w1");
  const auto id = submit(file);
  wait_for_service();
  ask_undisturbed();
  {
    SCOPED_TRACE("1x1");
    expect_undisturbed(ask_all());
  }
  {
    SCOPED_TRACE("a worker joins");
    expect_undisturbed(ask_all([&] { cluster->start_node("w2"); }));
    wait_for_shape(id, 2, 1);
  }
  {
    SCOPED_TRACE("one of two is killed");
    expect_undisturbed(ask_all([&] { kill_node("w1"); }));
    cluster->start_node("w3");
    wait_for_shape(id, 2, 1);
  }
  {
    SCOPED_TRACE("the manager is killed");
    const auto before = wait_for_figures(id, 4 * requests);
    const auto all = ask_all([&] {
      kill_manager();
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      cluster->restart_manager();
    });
    expect_undisturbed(all);
    for (const auto& x : all)
      EXPECT_LT(x.longest_gap, std::chrono::seconds(1));
    const auto after = wait_for_figures(id, before.requests.answered + requests);
    EXPECT_EQ(after.generation, before.generation);
    EXPECT_EQ(after.requests.broken, before.requests.broken);
    EXPECT_EQ(after.requests.recomputed, before.requests.recomputed);
  }
  {
    SCOPED_TRACE("a notice");
    expect_undisturbed(ask_all([&] { cluster->node("w2").signal(SIGTERM); }));
    cluster->start_node("w4", {"--grace", "100ms"});
    wait_for_shape(id, 2, 1);
  }
  {
    SCOPED_TRACE("a notice of 0.1 s, which is a loss");
    expect_undisturbed(ask_all([&] { cluster->node("w4").signal(SIGTERM); }));
    cluster->start_node("w7");
    wait_for_shape(id, 2, 1);
  }
  {
    SCOPED_TRACE("the manager is killed, then a worker: the other pipeline has nothing to do with that");
    const auto before = wait_for_figures(id, 7 * requests);
    expect_undisturbed(ask_all([&] {
      kill_manager();
      kill_node("w7");
      cluster->restart_manager();
    }));
    const auto after = wait_for_figures(id, before.requests.answered + requests);
    EXPECT_EQ(after.requests.broken, before.requests.broken + 1);
    wait_for_shape(id, 1, 1);
    cluster->start_node("w8");
    wait_for_shape(id, 2, 1);
  }
  {
    SCOPED_TRACE("all workers are killed");
    expect_undisturbed(ask_all([&] {
      kill_node("w3");
      kill_node("w8");
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      cluster->start_node("w5");
      cluster->start_node("w6");
    }));
  }
}

// given: notices of 5 s while requests run: one of two pipelines goes, another comes; then one of two stages, with a
// spare / expected: the answers of one worker, and no position is computed twice
TEST_F(served_model, computes_nothing_twice_after_a_notice) {
  const auto start_worker = [&](const std::string& name) { cluster->start_node(name, {"--grace", "5s"}); };
  start_gateway();
  start_worker("w1");
  auto id = submit(file);
  wait_for_service();
  ask_undisturbed();
  start_worker("w2");
  std::uint64_t answered = requests;
  const auto expect_nothing_twice = [&](const std::function<void()>& disturb) {
    wait_for_service();
    const auto before = wait_for_figures(id, answered);
    expect_undisturbed(ask_all(disturb));
    const auto after = wait_for_figures(id, answered += requests);
    EXPECT_EQ(after.requests.recomputed, before.requests.recomputed);
    EXPECT_GT(after.generation, before.generation);
  };
  {
    SCOPED_TRACE("one of two pipelines goes");
    wait_for_shape(id, 2, 1);
    expect_nothing_twice([&] { cluster->node("w2").signal(SIGTERM); });
  }
  {
    SCOPED_TRACE("another comes, and the first goes");
    wait_for_shape(id, 1, 1);
    expect_nothing_twice([&] {
      start_worker("w3");
      wait_for_shape(id, 2, 1);
      cluster->node("w1").signal(SIGTERM);
    });
  }
  EXPECT_EQ(run({"cancel", std::to_string(id)}).status, 0);
  wait_for_end(id);
  id = submit(file, {"--set", "parallel.min_depth=2"});
  answered = 0;
  start_worker("w4");
  wait_for_shape(id, 1, 2);
  start_worker("w5");
  {
    SCOPED_TRACE("one of two stages goes");
    wait_for_service();
    expect_nothing_twice([&] { cluster->node("w4").signal(SIGTERM); });
    wait_for_shape(id, 1, 2);
  }
}

// given: the gateway stands still for 10 s, then one of two workers for nearly as long as it may before it is lost,
// then for longer, while requests run / expected: the answers of one worker
TEST_F(served_model, answers_after_a_standstill) {
  start_gateway();
  cluster->start_node("w1");
  const auto id = submit(file);
  wait_for_service();
  ask_undisturbed();
  cluster->start_node("w2");
  for (const auto& [stands, time] : {std::pair("gate", 10'000ms), {"w1", 1'900ms}, {"w2", 10'000ms}}) {
    SCOPED_TRACE(stands);
    wait_for_shape(id, 2, 1);
    wait_for_service();
    expect_undisturbed(ask_all([&] {
      cluster->node(stands).signal(SIGSTOP);
      std::this_thread::sleep_for(time);
      cluster->node(stands).signal(SIGCONT);
    }));
  }
}

// given: SIGTERM to the gateway while requests run / expected: nothing new is taken; what runs has its whole answer,
// and then the gateway ends well
TEST_F(served_model, a_gateway_under_notice_answers_what_it_has) {
  start_gateway();
  cluster->start_node("w1");
  submit(file);
  wait_for_service();
  ask_undisturbed();
  expect_undisturbed(ask_all([&] {
    cluster->node("gate").signal(SIGTERM);
    for (int tries = 0; tries < 200 && ask_whole(port, wish_of(0)).status != 503; ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(ask_whole(port, wish_of(0)).status, 503u);
  }));
  EXPECT_EQ(cluster->node("gate").wait(limit), 0);
}

// given: OpenAI's own client, of PyPI / expected: it understands answers, streams, chats and refusals
TEST_F(served_model, is_understood_by_openais_client) {
  if (!std::filesystem::exists(PARCAE_PYTHON_OPENAI))
    GTEST_SKIP() << "OpenAI's client is not at " PARCAE_PYTHON_OPENAI "; run deploy/setup";
  start_gateway();
  cluster->start_node("w1");
  submit(file);
  wait_for_service();
  const auto x = run_program({"/usr/bin/env", "PYTHONPATH=" PARCAE_PYTHON_OPENAI, "PYTHONDONTWRITEBYTECODE=1",
                              "python3", PARCAE_PYTHON_TESTS "/openai_client.py", std::to_string(port), "served"});
  EXPECT_EQ(x.status, 0) << x.error;
}

// given: gateways without a place to answer at, open to the world, and with a file that has no key / expected: refused,
// saying what to do
TEST_F(served_model, a_gateway_is_not_open_by_accident) {
  const auto refusal = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {sibling_program("parcae-node"), "--manager", to_string(cluster->where()), "--role", "gateway"});
    const auto x = run_program(std::move(arguments));
    EXPECT_NE(x.status, 0);
    return x.error;
  };
  EXPECT_THAT(refusal({}), testing::HasSubstr("--http HOST:PORT"));
  EXPECT_THAT(refusal({"--http", "0.0.0.0:0"}), testing::HasSubstr("--http-certificate, --http-key and --api-keys"));
  EXPECT_THAT(refusal({"--http", "127.0.0.1:0", "--api-keys", write("keys", "# none\n")}),
              testing::HasSubstr("there is no key in"));
}

// given: pipelines of two stages, of which each is killed in turn while requests run; another gateway after the first
// was killed / expected: the answers of one worker
TEST_F(served_model, answers_with_several_stages) {
  start_gateway();
  cluster->start_node("w1");
  const auto first = submit(file);
  wait_for_service();
  ask_undisturbed();
  EXPECT_EQ(run({"cancel", std::to_string(first)}).status, 0);
  wait_for_end(first);
  cluster->start_node("w2");
  const auto id = submit(file, {"--set", "parallel.min_depth=2"});
  wait_for_shape(id, 1, 2);
  wait_for_service();
  {
    SCOPED_TRACE("1x2");
    expect_undisturbed(ask_all());
  }
  for (const std::string dies : {"w1", "w2"}) {
    SCOPED_TRACE(dies + " is killed");
    expect_undisturbed(ask_all([&] {
      kill_node(dies);
      cluster->start_node(dies + "b");
    }));
    wait_for_shape(id, 1, 2);
  }
  {
    SCOPED_TRACE("2x2");
    cluster->start_node("w3");
    cluster->start_node("w4");
    wait_for_shape(id, 2, 2);
    expect_undisturbed(ask_all([&] { kill_node("w1b"); }));
  }
  kill_node("gate");
  start_gateway("gate2");
  wait_for_service();
  {
    SCOPED_TRACE("another gateway");
    expect_undisturbed(ask_all());
  }
}

// given: three workers, plans each second, requests one after the other / expected: plans by what was measured, with
// what they expect of requests; they stay with the pipelines that there are, while all answers are as before
TEST_F(served_model, is_planned_by_what_was_measured) {
  start_gateway();
  for (const auto* name : {"w1", "w2", "w3"})
    cluster->start_node(name);
  const auto id = submit(file, {"--set", "planning.interval=\"1s\"", "--set", "job.min_instances=3"});
  wait_for_shape(id, 3, 1);
  wait_for_service();
  ask_undisturbed();
  const auto is_measured = [](const decision& x) { return x.p99_ms > 0 && x.requests_per_s > 0; };
  const auto planned = wait_for_job(id, "a plan by what was measured", [&](const job_status& j) {
    return j.decisions.size() > 2 && std::all_of(j.decisions.end() - 3, j.decisions.end(), is_measured);
  });
  const auto& last = planned.decisions.back();
  EXPECT_EQ(last.policy, "serve");
  EXPECT_EQ(last.chosen.configuration, "3×1");
  EXPECT_THAT(last.reason, testing::HasSubstr("3 pipelines of 1 stage: p99 "));
  expect_undisturbed(ask_all());
  EXPECT_EQ(wait_for_figures(id, 2 * requests).generation, planned.generation) << last.reason;
}

} // namespace
} // namespace parcae
