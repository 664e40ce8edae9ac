// Training through what happens to instances: the parameters at the end are those of undisturbed training.

#include "tests/support/cluster.hpp"

#include <algorithm>
#include <csignal>
#include <set>

namespace parcae {
namespace {

struct preemption : cluster_test {
  double lost_after_ms(const std::string& name, std::chrono::steady_clock::time_point since) {
    auto x = cluster->wait_for("the loss of " + name, limit, [&](const status_reply& s) {
      return std::ranges::any_of(s.instances, [&](const auto& i) { return i.name == name && i.lost_at_us >= 0; });
    });
    auto since_us = std::chrono::duration_cast<std::chrono::microseconds>(since.time_since_epoch()).count();
    for (const auto& i : x.instances)
      if (i.name == name && i.lost_at_us >= 0)
        return static_cast<double>(i.lost_at_us - since_us) / 1000;
    return -1;
  }

  void kill_one_that_trains(const job_specification& job);
};

void preemption::kill_one_that_trains(const job_specification& job) {
  auto id = start_job(job, {"a", "b", "c"});
  auto before = wait_for_training(id, 2);
  auto victim = before.grid.at(0).substr(0, before.grid[0].find('/'));
  auto& process = cluster->node(victim);
  auto killed = std::chrono::steady_clock::now();
  process.signal(SIGKILL);
  EXPECT_LT(lost_after_ms(victim, killed), 500);
  wait_for_job(id, "another generation", [&](const job_status& j) { return j.generation > before.generation; });
  wait_for_training(id, 2);
  ASSERT_TRUE(cluster->node(victim).wait(limit));
  cluster->start_node(victim);
  expect_undisturbed_bits(id, job);
}

// given: SIGKILL of a worker that has a place, later its return / expected: seen at once, training goes on, identical
// parameters
TEST_F(preemption, a_killed_worker_costs_no_bit) {
  kill_one_that_trains(endless_job());
}

// given: the same in bfloat16 / expected: likewise
TEST_F(preemption, a_killed_worker_costs_no_bit_in_bfloat16) {
  auto job = endless_job();
  job.precision = "bfloat16";
  kill_one_that_trains(job);
}

// given: the same with sums of gradients in bfloat16 / expected: likewise; status says so
TEST_F(preemption, a_killed_worker_costs_no_bit_of_sums_in_bfloat16) {
  auto job = endless_job();
  job.gradient_sums = "bfloat16";
  kill_one_that_trains(job);
  EXPECT_THAT(run({"status", "1"}).output, testing::HasSubstr("  gradients are summed in bfloat16\n"));
}

// given: all workers are killed at once / expected: the job goes on from the keeper when others come
TEST_F(preemption, the_keeper_brings_the_job_back) {
  auto job = endless_job();
  job.min_depth = 2;
  auto id = start_job(job, {"a", "b"});
  wait_for_job(id, "a snapshot", [](const job_status& j) { return j.protected_steps >= 10; });
  cluster->node("a").signal(SIGKILL);
  cluster->node("b").signal(SIGKILL);
  auto waiting = wait_for_job(id, "waiting", [](const job_status& j) { return j.phase == "waiting"; });
  EXPECT_FALSE(waiting.problem.empty());
  cluster->start_node("c");
  cluster->start_node("d");
  wait_for_training(id, 2);
  job.min_depth = 1;
  expect_undisturbed_bits(id, job);
}

// given: SIGSTOP / expected: declared lost within 3 s; the thawed process comes back with the same life; same bits
TEST_F(preemption, a_frozen_worker_is_lost_and_returns) {
  const auto job = endless_job();
  auto id = start_job(job, {"a", "b"});
  wait_for_training(id, 2);
  auto lives = [&] {
    std::set<incarnation> result;
    for (const auto& i : cluster->client().status().instances)
      if (i.name == "b" && i.state == "alive")
        result.insert(i.incarnation);
    return result;
  };
  auto first = lives();
  auto& process = cluster->node("b");
  auto frozen = std::chrono::steady_clock::now();
  process.signal(SIGSTOP);
  EXPECT_LT(lost_after_ms("b", frozen), 3000);
  wait_for_training(id, 1);
  process.signal(SIGCONT);
  wait_for_workers(2);
  EXPECT_EQ(lives(), first);
  expect_undisturbed_bits(id, job);
}

// given: SIGTERM, which is a notice / expected: no step is replayed, the node exits with status 0 well before its grace
// is over
TEST_F(preemption, leaving_costs_no_step) {
  auto id = start_job(endless_job(), {"a", "b"});
  wait_for_training(id, 2);
  cluster->node("b").signal(SIGTERM);
  EXPECT_EQ(cluster->node("b").wait(20s), 0);
  EXPECT_EQ(wait_for_training(id, 1).replayed_steps, 0u);
  end_behind_checkpoint(id);
}

// given: a liveput job on two workers, and a third / expected: it changes to three, and status says from which
// forecast, why, and what was expected and came of it; later decisions come with the interval alone
TEST_F(preemption, liveput_says_why_it_changes) {
  auto job = small_job(100'000);
  job.max_depth = 1;
  job.virtual_replicas = 8; // else three pipelines are no faster than two
  job.planning_interval_ms = 300;
  auto id = start_job(job, {"a", "b"});
  wait_for_training(id, 2);
  cluster->start_node("c");
  auto trained = wait_for_training(id, 3);
  auto decision = std::ranges::find(trained.decisions, trained.generation, &decision::generation);
  ASSERT_NE(decision, trained.decisions.end());
  EXPECT_EQ(decision->policy, "liveput");
  EXPECT_EQ(decision->chosen.configuration, "3×1");
  EXPECT_THAT(decision->reason, testing::HasSubstr("samples expected in the next 3.6s"));
  EXPECT_EQ(decision->forecast.size(), 11u);
  EXPECT_FALSE(decision->runners_up.empty());
  EXPECT_GT(decision->expected_ms, 0);
  EXPECT_GT(decision->realised_ms, 0);
  wait_for_job(id, "a decision without news", [&](const job_status& j) {
    return std::ranges::any_of(j.decisions, [&](const auto& d) {
      return d.number > decision->number && d.trigger == "the planning interval's end" && d.generation == 0;
    });
  });
}

/// What one of two workers does where in its step, and with which status it ends.
struct process_fault {
  const char* name;
  const char* what;          ///< --fault
  std::optional<int> status; ///< empty: it goes on, or stands still
};

void PrintTo(const process_fault& x, std::ostream* to) {
  *to << x.what;
}

class faulty_process : public preemption, public testing::WithParamInterface<process_fault> {};

// given: a worker that dies, stands still or throws at a moment of step 20, as the fault hook does it / expected:
// the other goes on, identical parameters
TEST_P(faulty_process, costs_no_bit) {
  auto job = small_job(60);
  cluster->start_keeper();
  cluster->start_node("a");
  cluster->start_node("b", {"--fault", GetParam().what});
  wait_for_workers(2);
  const auto id = cluster->client().submit(job);
  if (GetParam().status) {
    EXPECT_EQ(cluster->node("b").wait(limit), GetParam().status);
  }
  const auto end = wait_for_done(id);
  EXPECT_GE(end.generation, 2u) << "the fault had no effect";
  EXPECT_THAT(content(folder.path() / "first" / "b.log"), testing::HasSubstr("injected fault in "));
  EXPECT_EQ(end.parameters_sha256, undisturbed(job).parameters_sha256);
}

INSTANTIATE_TEST_SUITE_P(moments, faulty_process,
                         testing::Values(process_fault{"backward", "backward@20=kill", 128 + SIGKILL},
                                         process_fault{"gradients_complete", "reduced@20=stop", {}},
                                         process_fault{"contribution_sent", "exchange_send@20:1=kill", 128 + SIGKILL},
                                         process_fault{"before_the_apply", "exchanged@20=kill", 128 + SIGKILL},
                                         process_fault{"between_two_layers_applied", "apply@20:1=kill", 128 + SIGKILL},
                                         process_fault{"apply_throws", "apply@20:2=throw", {}},
                                         process_fault{"snapshot", "snapshot@20=kill", 128 + SIGKILL}),
                         [](const auto& x) { return std::string(x.param.name); });

// given: the only worker dies when it has handed one layer to another that joined / expected: the state comes from the
// keeper, identical parameters
TEST_F(preemption, a_fault_inside_a_transfer_costs_no_bit) {
  const auto job = endless_job();
  start_nodes({"a"}, {"--fault", "transfer_send@*:1=kill"});
  const auto id = cluster->client().submit(job);
  wait_for_job(id, "a snapshot", [](const job_status& j) { return j.protected_steps >= 10; });
  cluster->start_node("b");
  EXPECT_EQ(cluster->node("a").wait(limit), 128 + SIGKILL);
  wait_for_training(id, 1);
  expect_undisturbed_bits(id, job);
}

} // namespace
} // namespace parcae
