// The manager is killed, and started again with its memory.

#include "actors/manager/journal_store.hpp"
#include "runtime/journal/sqlite_journal.hpp"
#include "tests/support/cluster.hpp"

#include <csignal>
#include <random>
#include <thread>

namespace parcae {
namespace {

/// Microseconds by which a manager that reads of a moment later may be wrong.
constexpr std::int64_t clock_error = 50'000;

struct manager_death : cluster_test {
  /// Manager, node a and the keeper; manager, keeper and node b follow.
  void all_dies_and_begins_anew() {
    kill_manager();
    kill_node("a");
    kill_node("keeper");
    cluster->restart_manager();
    start_nodes({"b"});
  }

  /// What the journal has of it while the manager runs: of a copy, as nobody else may open it. Nothing: it was written
  /// meanwhile.
  recovered_job kept_of(std::uint64_t id) const {
    const auto copy = folder.path() / "copy";
    try {
      std::filesystem::remove_all(copy);
      std::filesystem::copy(folder.path() / "first" / "manager", copy);
      return recovered_from(open_journal(copy)->read()).jobs.at({id});
    } catch (const std::exception&) {
      return {};
    }
  }

  job_status state_of(std::uint64_t id) { return job_of(cluster->client().status({.job = id}), id); }

  /// Trains in a generation that has committed a step.
  job_status wait_for_step(std::uint64_t id, std::uint64_t more_than) {
    return wait_for_job(id, "progress", [&](const job_status& j) {
      return j.state == "done" || (j.phase == "running" && j.steps_done > more_than);
    });
  }
};

// given: a manager that is killed while two nodes train and a keeper holds snapshots, and is away for 2 s / expected:
// training goes on meanwhile, in the same generation, no step is lost or computed again, the same bits
TEST_F(manager_death, stops_no_training) {
  const auto job = endless_job();
  const auto id = start_job(job, {"a", "b"});
  wait_for_training(id, 2);
  job_status before;
  cluster->wait_for("how it went to be in the journal", limit, [&](const status_reply& x) {
    before = job_of(x, id);
    const auto kept = kept_of(id);
    if (before.phase != "running" || before.events.empty() || before.changes.empty() || !kept.last)
      return false;
    const auto& has = kept.last->jobs.at(0);
    return has.change_count >= before.change_count && has.decision_count >= before.decision_count &&
           has.events.size() >= before.events.size() && !has.losses.empty() &&
           has.losses.front().steps < before.steps_done;
  });
  kill_manager();
  std::this_thread::sleep_for(2s); // the fault itself
  cluster->restart_manager();
  const auto after = wait_for_step(id, before.steps_done);
  EXPECT_EQ(after.change_count, before.change_count);
  EXPECT_EQ(after.migrations, before.migrations);
  EXPECT_EQ(after.changes.back().trigger, before.changes.back().trigger);
  EXPECT_LT(std::abs(after.changes.back().at_us - before.changes.back().at_us), clock_error) << "when it was";
  EXPECT_GE(after.decision_count, before.decision_count);
  auto decision = after.decisions.front();
  EXPECT_LT(std::abs(decision.at_us - before.decisions.front().at_us), clock_error) << "when it was";
  decision.at_us = before.decisions.front().at_us;
  EXPECT_EQ(decision, before.decisions.front());
  ASSERT_GT(after.events.size(), before.events.size());
  for (std::size_t i = 0; i < before.events.size(); ++i)
    EXPECT_EQ(after.events[i].text, before.events[i].text);
  EXPECT_THAT(after.events, testing::Contains(testing::Field(&event_status::text, HasSubstr("return of the manager"))));
  EXPECT_LT(after.losses.front().steps, before.steps_done);
  EXPECT_EQ(after.generation, before.generation);
  EXPECT_GT(after.steps_done, before.steps_done + 20) << "nobody trained meanwhile";
  const auto last = expect_undisturbed_bits(id, job);
  EXPECT_EQ(last.generation, before.generation);
  EXPECT_EQ(last.replayed_steps, 0u);
}

// given: of two replicas one is killed while there is no manager / expected: the other goes on within 2 s of the
// manager's return to members, at most the step in progress is computed again, the same bits
TEST_F(manager_death, a_loss_meanwhile_is_handled_afterwards) {
  const auto job = endless_job();
  const auto id = start_job(job, {"a", "b"});
  const auto before = wait_for_training(id, 2);
  kill_manager();
  kill_node("b");
  cluster->restart_manager();
  wait_for_workers(1);
  const auto returned = std::chrono::steady_clock::now();
  wait_for_job(id, "a step of another generation", [&](const job_status& j) {
    return j.generation > before.generation && j.steps_done > j.chain.back().base;
  });
  EXPECT_LT(std::chrono::steady_clock::now() - returned, 2s);
  EXPECT_LE(expect_undisturbed_bits(id, job).replayed_steps, 1u);
}

// given: all workers die while there is no manager / expected: it goes on from what the keeper holds, the same bits
TEST_F(manager_death, all_workers_may_die_meanwhile) {
  const auto job = endless_job();
  const auto id = start_job(job, {"a"});
  wait_for_job(id, "a snapshot", [&](const job_status& j) { return j.protected_steps > 0; });
  kill_manager();
  kill_node("a");
  cluster->restart_manager();
  cluster->start_node("c");
  const auto after = wait_for_training(id, 1);
  EXPECT_GT(after.chain[0].last, 0u);
  expect_undisturbed_bits(id, job);
}

// given: no snapshot but the first; SIGTERM to the only worker while there is no manager, which returns only when the
// worker's time is over / expected: what it reached meanwhile is with the keeper, where the next one goes on; the same
// bits
TEST_F(manager_death, who_must_leave_meanwhile_leaves_its_state_to_the_keepers) {
  auto job = endless_job();
  job.keeper_every = job.checkpoint_every = job.steps;
  start_nodes({"a"}, {"--grace", "2s"});
  const auto id = cluster->client().submit(job);
  // It knows of the keeper, then.
  const auto before =
      wait_for_job(id, "the first snapshot", [&](const job_status& j) { return j.protected_steps > 0; });
  kill_manager();
  cluster->node("a").signal(SIGTERM);
  ASSERT_TRUE(cluster->node("a").wait(limit));
  cluster->restart_manager();
  cluster->start_node("b");
  const auto after = wait_for_training(id, 1);
  EXPECT_GT(after.chain.back().base, before.steps_done + 20);
  expect_undisturbed_bits(id, job);
}

// given: a manager that is started with an old copy of its journal, which knows nothing of the job / expected: nodes
// stay away from it, and train on; with the right journal the next one takes the job up, no step lost, the same bits
TEST_F(manager_death, an_old_copy_of_the_journal_does_no_harm) {
  const auto job = endless_job();
  const auto journal = folder.path() / "first" / "manager", copy = folder.path() / "copy",
             newest = folder.path() / "now";
  start_nodes({"a"});
  kill_manager();
  std::filesystem::copy(journal, copy);
  cluster->restart_manager();
  wait_for_workers(1);
  const auto id = cluster->client().submit(job);
  const auto before = wait_for_training(id, 1);
  kill_manager();
  std::filesystem::rename(journal, newest);
  std::filesystem::copy(copy, journal);
  cluster->restart_manager();
  std::this_thread::sleep_for(2s); // nodes look for a manager each second
  EXPECT_EQ(living(cluster->client().status(), "worker"), 0u);
  kill_manager();
  EXPECT_THAT(content(folder.path() / "first" / "manager.log"), HasSubstr("give this one the newest journal"));
  std::filesystem::remove_all(journal);
  std::filesystem::rename(newest, journal);
  cluster->restart_manager();
  const auto after = wait_for_step(id, before.steps_done);
  EXPECT_EQ(after.generation, before.generation);
  EXPECT_EQ(expect_undisturbed_bits(id, job).replayed_steps, 0u);
}

// given: the disk of the journal is full while a job trains / expected: the manager ends and says why; training goes
// on; started again where there is room it has all that it had accepted, the same generation, and no step lost
TEST_F(manager_death, a_full_disk_costs_no_step) {
  const auto id = start_job(small_job(1'000'000), {"a"});
  const auto before = wait_for_training(id, 1);
  kill_manager();
  const auto out = folder.path() / "full.out", log = folder.path() / "full.log";
  child_process full(
      {{"/bin/sh", "-c", "trap '' XFSZ; ulimit -f 400; exec \"$0\" \"$@\"", sibling_program("parcae"), "manager",
        "--listen", to_string(cluster->where()), "--state", folder.path() / "first" / "manager"},
       out,
       log});
  for (const auto end = std::chrono::steady_clock::now() + limit;
       content(out).empty() && std::chrono::steady_clock::now() < end;)
    std::this_thread::sleep_for(10ms);
  std::uint64_t accepted = 0;
  try {
    for (manager_client client(cluster->where()); accepted < 1000;)
      accepted = client.submit(small_job(1));
  } catch (const client_error&) {
    // It is gone.
  }
  EXPECT_EQ(full.wait(limit), 1);
  EXPECT_GT(accepted, id);
  EXPECT_THAT(content(log), HasSubstr("journal.sqlite cannot be written"));
  EXPECT_THAT(content(log), HasSubstr("training goes on"));
  cluster->restart_manager();
  const auto after = wait_for_step(id, before.steps_done);
  EXPECT_EQ(after.generation, before.generation);
  EXPECT_EQ(after.replayed_steps, 0u);
  EXPECT_EQ(state_of(accepted).state, "queued");
}

// given: everything dies / expected: started again, the job goes on by itself from the newest checkpoint, the same bits
TEST_F(manager_death, everything_may_die) {
  auto job = endless_job();
  job.checkpoint_every = 20;
  const auto id = start_job(job, {"a"});
  wait_for_job(id, "a checkpoint that the journal has", [&](const job_status& j) { return j.checkpoint_steps > 20; });
  ASSERT_NO_FATAL_FAILURE(all_dies_and_begins_anew());
  const auto after = wait_for_training(id, 1);
  EXPECT_GT(after.chain[0].last, 0u);
  expect_undisturbed_bits(id, job);
}

// given: a checkpoint, and then no other; so many steps later everything dies / expected: the next manager says that at
// least these are computed again, though nobody is left who did them
TEST_F(manager_death, everything_may_die_and_what_that_cost_is_said) {
  constexpr std::uint64_t more = 50;
  auto job = small_job(1'000'000);
  job.checkpoint_every = job.steps;
  const auto id = start_job(job, {"a"});
  wait_for_job(id, "a snapshot", [&](const job_status& j) { return j.protected_steps > 0; });
  cluster->client().checkpoint(id);
  const auto written = wait_for_job(id, "a checkpoint", [&](const job_status& j) { return j.checkpoint_steps > 0; });
  cluster->wait_for("that to be in the journal", limit,
                    [&](const status_reply&) { return kept_of(id).reached.steps > written.checkpoint_steps + more; });
  ASSERT_NO_FATAL_FAILURE(all_dies_and_begins_anew());
  const auto after = wait_for_training(id, 1);
  EXPECT_EQ(after.chain.back().base, written.checkpoint_steps);
  EXPECT_GT(after.replayed_steps, more);
  EXPECT_EQ(after.changes.back().replayed_steps, after.replayed_steps);
  EXPECT_THAT(run({"status", std::to_string(id)}).output, HasSubstr(std::to_string(after.replayed_steps) + " steps"));
}

// given: the manager is killed again and again at random while nodes come and go / expected: the same bits
TEST_F(manager_death, may_come_at_any_moment) {
  std::mt19937_64 random(7);
  const auto job = endless_job();
  const auto id = start_job(job, {"a", "b"});
  wait_for_training(id, 2);
  std::string last = "b";
  for (int i = 0; i < 8; ++i) {
    const auto next = "n" + std::to_string(i);
    cluster->node(last).signal(SIGKILL);
    cluster->start_node(next);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 600)); // when the fault comes
    kill_manager();
    cluster->restart_manager();
    wait_for_step(id, state_of(id).steps_done);
    last = next;
  }
  expect_undisturbed_bits(id, job);
}

// given: jobs that ended, one that waits / expected: a new manager shows and runs them
TEST_F(manager_death, keeps_the_jobs) {
  const auto first = start_job(small_job(20), {"a"});
  const auto done = wait_for_end(first);
  ASSERT_EQ(done.state, "done");
  const auto second = cluster->client().submit(small_job(100'000));
  const auto third = cluster->client().submit(small_job(20));
  wait_for_training(second, 1);
  kill_manager();
  cluster->restart_manager();
  wait_for_workers(1);
  const auto again = state_of(first);
  EXPECT_EQ(again.state, "done");
  EXPECT_EQ(again.parameters_sha256, done.parameters_sha256);
  EXPECT_EQ(again.losses.size(), done.losses.size());
  EXPECT_EQ(state_of(third).state, "queued");
  cluster->client().cancel(second);
  EXPECT_EQ(wait_for_end(third).state, "done");
  EXPECT_EQ(state_of(second).state, "cancelled");
}

// given: a manager's folder is in use / expected: another is refused, and says so
TEST_F(manager_death, one_manager_at_a_time) {
  const auto x =
      run({"manager", "--listen", "127.0.0.1:0", "--state", (folder.path() / "first" / "manager").string()}, false);
  EXPECT_EQ(x.status, 1);
  EXPECT_THAT(x.error, HasSubstr("another manager uses"));
  EXPECT_THAT(x.error, HasSubstr("--state"));
}

} // namespace
} // namespace parcae
