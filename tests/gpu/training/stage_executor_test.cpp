// Single executors, driven by hand: orders of commands and failures that the conductor rarely or never brings about,
// but which an executor must bear.

#include "gpu/training/progress_pace.hpp"
#include "tests/gpu/training/stage_executor_fixture.hpp"

#include <ATen/Parallel.h>

#include <atomic>
#include <future>
#include <thread>

namespace parcae::rig {
namespace {

// given: an executor that naps now and then / expected: reports in which each layer has forward and backward passes of
// both sorts, with means that fit together
TEST_F(stage_executor_test, passes_on_waking_are_timed_apart) {
  worker w("w", std::chrono::microseconds(200));
  prepare_and_start(w, plan(1, {&w}));
  std::vector<layer_time> times;
  const auto has_both = [](const layer_time& x) {
    return x.awake.forward_ms > 0 && x.waking.forward_ms != 0 && x.awake.backward_ms > 0 && x.waking.backward_ms != 0;
  };
  for (int reports = 0; reports < 20 && (times.empty() || !std::ranges::all_of(times, has_both)); ++reports)
    times = w.said.next<progress>().times;
  ASSERT_EQ(times.size(), layers());
  for (const auto& x : times)
    for (const auto ms : {&pass_times::forward_ms, &pass_times::backward_ms}) {
      EXPECT_TRUE(has_both(x)) << x.layer;
      const auto [low, high] = std::minmax({x.awake.*ms, x.awake.*ms + x.waking.*ms});
      EXPECT_GE(x.all.*ms, low * 0.999999);
      EXPECT_LE(x.all.*ms, high * 1.000001);
    }
}

// given: jobs that say how many threads compute, or 0, on a slot of three cores / expected: so many; three
TEST_F(stage_executor_test, threads_are_the_jobs_or_the_slots_cores) {
  for (const auto& [asked, expected] : {std::pair(2, 2), std::pair(0, 3)}) {
    job.threads = static_cast<std::uint32_t>(asked);
    job.reproducible = asked > 0;
    std::promise<int> threads;
    std::atomic<bool> told = false;
    worker w("w", {}, nullptr, 3);
    w.at_fault_points([&](const fault_point& x) {
      if (std::string(x.phase) == "forward" && !told.exchange(true))
        threads.set_value(at::get_num_threads());
    });
    prepare_and_start(w, plan(1, {&w}));
    auto seen = threads.get_future();
    ASSERT_EQ(seen.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    EXPECT_EQ(seen.get(), expected);
  }
}

TEST_F(stage_executor_test, stop_right_behind_activate_is_obeyed) {
  worker w("w");
  const auto x = plan(1, {&w});
  w.work->submit(x);
  w.said.next<prepared>();
  gate begin;
  w.at_fault_points([&](const fault_point& at) {
    if (std::string(at.phase) == "activate")
      begin.pass();
  });
  w.work->submit(activate{x.next, {}});
  ASSERT_TRUE(begin.wait_until_reached());
  w.work->submit(stop{x.next});
  begin.open();
  EXPECT_GT(w.said.next<stopped>().at.steps, 0u);
}

// given: an evaluation, then ACTIVATE again as over a new connection, and ABORT / expected: each time the same losses
TEST_F(stage_executor_test, evaluation_is_told_again) {
  job.data.validation = 16;
  job.evaluate_every = 1'000'000;
  worker w("w");
  const auto x = plan(1, {&w});
  prepare_and_start(w, x);
  const auto first = w.said.next<evaluated>();
  EXPECT_FALSE(first.sums.empty());
  for (const command& again : {command{activate{x.next, {}}}, command{abort_generation{x.next}}}) {
    w.work->submit(again);
    const auto told = w.said.next<evaluated>();
    EXPECT_EQ(told.at, first.at);
    EXPECT_EQ(told.sums, first.sums);
  }
}

TEST_F(stage_executor_test, who_failed_is_not_stopped) {
  // given: a computation that throws, then STOP. expected: no STOPPED, as peers may have applied; what it said is said
  // again.
  worker w("w");
  w.at_fault_points([](const fault_point& at) {
    if (std::string(at.phase) == "forward" && at.step == 2)
      throw std::runtime_error("stumbled");
  });
  prepare_and_start(w, plan(1, {&w}));
  EXPECT_EQ(w.said.next<failed>().kind, failure::computation);
  w.work->submit(stop{{1}});
  w.work->submit(abort_generation{{9}}); // of nothing; answered in turn
  ASSERT_TRUE(std::holds_alternative<failed>(w.said.next_word()));
  const auto word = w.said.next_word();
  ASSERT_TRUE(std::holds_alternative<aborted>(word));
  EXPECT_EQ(std::get<aborted>(word).current, generation{9});
  w.work->submit(abort_generation{{1}});
  EXPECT_EQ(w.said.next<aborted>().at, (version{2, {1}}));
}

TEST_F(stage_executor_test, what_a_command_throws_is_reported) {
  worker w("w");
  w.at_fault_points([](const fault_point& at) {
    if (std::string(at.phase) == "activate")
      throw std::runtime_error("stumbled");
  });
  const auto x = plan(1, {&w});
  w.work->submit(x);
  w.said.next<prepared>();
  w.work->submit(activate{x.next, {}});
  const auto answer = w.said.next<failed>();
  EXPECT_EQ(answer.current, x.next);
  EXPECT_EQ(answer.kind, failure::computation);
  EXPECT_EQ(answer.what, "stumbled");
  EXPECT_EQ(answer.held.size(), layers());
}

TEST_F(stage_executor_test, model_that_cannot_be_built_is_reported) {
  worker w("w");
  auto x = plan(1, {&w});
  x.specification.model.kind = "unheard of";
  w.work->submit(x);
  EXPECT_EQ(w.said.next<failed>().current, x.next);
}

TEST_F(stage_executor_test, activate_may_be_repeated) {
  worker a("a"), b("b");
  const auto at = run_and_stop(a, plan(1, {&a}));
  const auto x = move_all(plan(2, {&b, &a}));
  a.work->submit(x);
  b.work->submit(x);
  a.said.next<prepared>();
  b.said.next<prepared>();
  for (int i = 0; i < 2; ++i) {
    a.work->submit(activate{x.next, at});
    b.work->submit(activate{x.next, at});
    EXPECT_GT(b.said.next<active>().early_bytes, 0u) << i;
  }
}

TEST_F(stage_executor_test, a_newer_generation_ends_one_that_trains) {
  // given: a rank that was cut off when its generation was ended trains on, alone; a newer one brings other state.
  // expected: nothing of the old one touches that.
  worker a("a");
  prepare_and_start(a, plan(1, {&a}));
  a.said.next<progress>();
  a.work->submit(plan(2, {&a}));
  a.said.next<prepared>();
  a.work->submit(activate{{2}, {}});
  EXPECT_EQ(a.said.next<active>().current, generation{2});
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(a.said.next<progress>().current, generation{2});
}

TEST_F(stage_executor_test, source_without_the_layer_ends_the_transfer_for_all) {
  // given: a plan that thinks `a` holds what it does not. expected: a refuses, b hears of it from the connection's end.
  worker a("a"), b("b");
  const auto x = move_all(plan(1, {&b, &a}));
  a.work->submit(x);
  b.work->submit(x);
  a.said.next<prepared>();
  b.said.next<prepared>();
  b.work->submit(activate{x.next, {5, {1}}});
  a.work->submit(activate{x.next, {5, {1}}});
  EXPECT_EQ(a.said.next<failed>().kind, failure::refused);
  EXPECT_EQ(b.said.next<failed>().kind, failure::communication);
  b.work->submit(abort_generation{x.next});
  EXPECT_TRUE(b.said.next<aborted>().held.empty());
}

TEST_F(stage_executor_test, fault_hook_does_not_make_a_source_wait) {
  // given: a source with a fault hook, shards that sockets' buffers do not take, a destination that does not read yet.
  // expected: as without a hook, all are posted, and the hook sees it; then all arrive.
  job.model.width = 256;
  job.global_batch = job.virtual_replicas = 2;
  job.micro_batch = 1;
  worker a("a"), b("b");
  const auto at = run_and_stop(a, plan(1, {&a}));
  gate last;
  a.at_fault_points([&](const fault_point& x) {
    if (std::string(x.phase) == "transfer_send" && x.index == layers())
      last.pass();
  });
  const auto x = move_all(plan(2, {&b, &a}));
  a.work->submit(x);
  b.work->submit(x);
  a.said.next<prepared>();
  b.said.next<prepared>();
  a.work->submit(activate{x.next, at});
  EXPECT_TRUE(last.wait_until_reached());
  last.open();
  b.work->submit(activate{x.next, at});
  EXPECT_EQ(b.said.next<active>().current, x.next);
}

TEST_F(stage_executor_test, abort_is_answered_between_two_layers) {
  // given: layers that take 300 ms each, of which a pass over all micro-batches has 32. expected: ABORT is answered
  // when the layer in progress is done.
  constexpr std::chrono::milliseconds slow(300);
  for (const std::string phase : {"forward", "backward"}) {
    worker w("w");
    gate reached;
    reached.open();
    w.at_fault_points([&](const fault_point& x) {
      if (x.phase != phase)
        return;
      reached.pass();
      std::this_thread::sleep_for(slow);
    });
    prepare_and_start(w, plan(1, {&w}));
    ASSERT_TRUE(reached.wait_until_reached());
    const auto began = std::chrono::steady_clock::now();
    w.work->submit(abort_generation{{1}});
    EXPECT_EQ(w.said.next<aborted>().at, version{});
    EXPECT_LT(std::chrono::steady_clock::now() - began, 2 * slow) << phase;
  }
}

TEST_F(stage_executor_test, abort_is_answered_while_the_preparation_hangs) {
  worker w("w");
  gate loading;
  w.at_fault_points([&](const fault_point& at) {
    if (std::string(at.phase) == "prepare" && at.at == generation{1})
      loading.pass();
  });
  w.work->submit(plan(1, {&w}));
  ASSERT_TRUE(loading.wait_until_reached());
  w.work->submit(abort_generation{{1}});
  EXPECT_EQ(w.said.next<aborted>().current, generation{1});
  loading.open();
  prepare_and_start(w, plan(2, {&w}));
}

// given: PREPARE of g+1 takes long / expected: g trains on meanwhile (why `realistic` accounting charges nothing for
// it)
TEST_F(stage_executor_test, trains_while_the_next_generation_is_prepared) {
  worker w("w");
  gate loading, third_step;
  std::atomic<bool> preparing = false;
  std::atomic<int> steps = 0;
  w.at_fault_points([&](const fault_point& at) {
    const std::string phase = at.phase;
    if (phase == "prepare" && at.at == generation{2})
      loading.pass();
    else if (phase == "forward" && at.at == generation{1} && preparing && ++steps == 3)
      third_step.pass();
  });
  prepare_and_start(w, plan(1, {&w}));
  w.work->submit(plan(2, {&w}));
  ASSERT_TRUE(loading.wait_until_reached());
  preparing = true;
  EXPECT_TRUE(third_step.wait_until_reached());
  third_step.open();
  loading.open();
  EXPECT_EQ(w.said.next<prepared>().next, generation{2});
}

TEST_F(stage_executor_test, prepare_right_behind_the_abort_of_the_one_before) {
  // expected: each PREPARE is answered, however the threads run.
  worker w("w");
  for (std::uint64_t g = 1; g < 100; g += 2) {
    w.work->submit(plan(g, {&w}));
    w.work->submit(abort_generation{{g}});
    w.work->submit(plan(g + 1, {&w}));
    while (w.said.next<prepared>().next != generation{g + 1}) {
    }
  }
}

TEST_F(stage_executor_test, destruction_while_a_preparation_is_killed) {
  worker w("w");
  gate loading;
  w.at_fault_points([&](const fault_point&) {
    loading.pass();
    throw killed{};
  });
  w.work->submit(plan(1, {&w}));
  ASSERT_TRUE(loading.wait_until_reached());
  auto destroyed = std::async(std::launch::async, [&] { w.work.reset(); });
  EXPECT_EQ(destroyed.wait_for(std::chrono::milliseconds(50)),
            std::future_status::timeout); // waits for the preparation
  loading.open();
  EXPECT_EQ(destroyed.wait_for(patience), std::future_status::ready);
}

TEST_F(stage_executor_test, decision_after_a_failed_apply_changes_nothing) {
  // given: an apply that throws between two layers. expected: the stage is void, DECIDE(commit) is only answered.
  worker w("w");
  w.at_fault_points([](const fault_point& at) {
    if (std::string(at.phase) == "apply" && at.step == 2 && at.index == 1)
      throw std::runtime_error("stumbled");
  });
  prepare_and_start(w, plan(1, {&w}));
  EXPECT_TRUE(w.said.next<failed>().held.empty());
  w.work->submit(abort_generation{{1}});
  const auto last_word = w.said.next<aborted>();
  EXPECT_EQ(last_word.at, version{});
  EXPECT_EQ(last_word.complete, no_step);
  EXPECT_EQ(last_word.result.step, 2u);
  w.work->submit(decide{{1}, last_word.result});
  const auto word = w.said.next_word();
  ASSERT_TRUE(std::holds_alternative<decided>(word));
  EXPECT_TRUE(std::get<decided>(word).held.empty());
}

TEST_F(stage_executor_test, decision_may_be_repeated) {
  // given: 2×1, and b throws when its gradients of step 2 are complete. expected: the first DECIDE(commit) applies
  // them, the second changes nothing.
  worker a("a"), b("b");
  auto x = plan(1, {&a, &b});
  x.target.width = 2;
  for (auto* w : {&a, &b})
    w->work->submit(x);
  for (auto* w : {&a, &b})
    w->said.next<prepared>();
  b.at_fault_points([](const fault_point& at) {
    if (std::string(at.phase) == "reduced" && at.step == 2)
      throw std::runtime_error("stumbled");
  });
  for (auto* w : {&a, &b})
    w->work->submit(activate{x.next, {}});
  b.said.next<failed>();
  commit_result result{2, 1.0, 1.0, 1.0, 1e-3, false, false};
  b.work->submit(abort_generation{x.next});
  const auto last_word = b.said.next<aborted>();
  EXPECT_EQ(last_word.at, (version{2, {1}}));
  EXPECT_EQ(last_word.complete, 2u);
  for (int i = 0; i < 2; ++i) {
    b.work->submit(decide{x.next, result});
    const auto answer = b.said.next<decided>();
    ASSERT_EQ(answer.held.size(), layers());
    for (const auto& held : answer.held)
      EXPECT_EQ(held.at, (version{3, {1}}));
  }
}

// given: ranks / expected: at most 200 reports a second of all, unless each reports every 10 s; 5 a second of a few
TEST(progress_interval, grows_with_the_ranks) {
  EXPECT_EQ(progress_interval(1).count(), 200);
  EXPECT_EQ(progress_interval(40).count(), 200);
  EXPECT_EQ(progress_interval(1'000).count(), 5'000);
  EXPECT_EQ(progress_interval(100'000).count(), 10'000); // a third of the least limit on progress
}

} // namespace
} // namespace parcae::rig
