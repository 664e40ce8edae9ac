// What came of each step and evaluation is known for ever: each once, with the undisturbed run's bits, whatever was
// killed.

#include "gpu/checkpoint/losses.hpp"
#include "tests/support/cluster.hpp"

#include <bit>
#include <chrono>
#include <csignal>
#include <set>
#include <thread>

namespace parcae {
namespace {

constexpr std::uint64_t every = 5; // so many steps an evaluation

/// Of workers: else they would make more steps while things happen, each of which the undisturbed one makes, too.
const std::vector<std::string> slow{"--naps", "1ms"};

struct losses : cluster_test {
  job_specification evaluated_job() {
    auto x = endless_job();
    x.data.validation = 4;
    x.evaluate_every = every;
    return x;
  }

  /// All that the manager knows.
  loss_record known(std::uint64_t id) {
    loss_record result;
    for (auto x = cluster->client().losses(id, 0); !x.all.empty(); x = cluster->client().losses(id, x.end()))
      EXPECT_FALSE(result.put(x));
    return result;
  }

  void kill_all() {
    std::set<std::string> names;
    for (const auto& x : cluster->client().status().instances)
      if (x.state != "lost" && cluster->has(x.name))
        names.insert(x.name);
    for (int i = 0; i < 20; ++i) // also those that preempt() brought and the manager does not know yet
      if (const auto name = "w" + std::to_string(i); cluster->has(name))
        names.insert(name);
    for (const auto& name : names)
      cluster->node(name).signal(SIGKILL);
    for (const auto& name : names)
      ASSERT_TRUE(cluster->node(name).wait(limit));
    kill_manager();
  }

  void wait_for_steps(std::uint64_t id, std::uint64_t more) {
    const auto from = job_of(cluster->client().status(), id).steps_done;
    wait_for_job(id, "progress",
                 [&](const job_status& j) { return j.phase == "running" && j.steps_done > from + more; });
  }
};

/// is_done: the job came to its end, so that its last version was evaluated. Of one that was cancelled it may have
/// been.
void expect_each_once(const loss_record& x, const loss_record& reference, std::uint64_t steps, bool is_done = true) {
  ASSERT_EQ(x.steps(), steps);
  ASSERT_GE(reference.steps(), steps);
  for (std::uint64_t step = 0; step < steps; ++step) {
    ASSERT_TRUE(x.find(step)) << "step " << step;
    ASSERT_TRUE(reference.find(step)) << "step " << step;
    ASSERT_TRUE(x.find(step)->same_result(*reference.find(step))) << "step " << step;
    const auto steps_done = step + 1;
    const bool is_evaluated = steps_done == steps ? is_done && steps == reference.steps() : steps_done % every == 0;
    if (!is_evaluated)
      continue;
    const auto &found = x.find(step)->validation_loss, &expected = reference.find(step)->validation_loss;
    ASSERT_TRUE(found && expected) << "version " << steps_done;
    ASSERT_EQ(std::bit_cast<std::uint64_t>(*found), std::bit_cast<std::uint64_t>(*expected))
        << "version " << steps_done;
  }
}

// given: a job that trains through 20 preemptions, while the manager is killed, and all of the cluster at once; it is
// cancelled, and another goes on from its checkpoint to the end / expected: of both each step is known once, with the
// undisturbed run's loss, norm and rate in every bit, and each evaluation with its validation loss: by the manager, by
// one that was started again, and beside the checkpoint; `export --curve` reads them there and here
TEST_F(losses, are_kept_whatever_happens) {
  auto job = evaluated_job();
  start_nodes({"w0", "w1", "w2"}, slow);
  const auto id = cluster->client().submit(job);
  wait_for_training(id, 2);
  preempt(id, 10, slow);
  wait_for_job(id, "a checkpoint", [](const job_status& j) { return j.checkpoint_steps > 0; });
  kill_all();
  cluster->restart_manager();
  start_nodes({"w0", "w1", "w2"}, slow);
  wait_for_steps(id, 5);
  preempt(id, 10, slow);
  kill_manager();
  std::this_thread::sleep_for(std::chrono::seconds(2)); // the fault itself
  cluster->restart_manager();
  wait_for_steps(id, 5);

  const auto end = end_behind_checkpoint(id);
  const auto first = known(id), second = known(end.id);
  EXPECT_GT(first.steps(), 50u);
  const auto beside = read_losses(*run_above(end.checkpoint_folders.at(0).folder));
  EXPECT_EQ(beside.problem, "");
  EXPECT_EQ(beside.samples, job.global_batch);
  const auto here = folder.path() / "here.csv", there = folder.path() / "there.csv";
  for (const auto& [what, file] :
       {std::pair(std::to_string(end.id), here), std::pair(end.checkpoint_folders.at(0).folder, there)}) {
    run_well({"export", what, "--curve", file});
  }
  const auto text = content(here);
  EXPECT_EQ(text, content(there));
  EXPECT_EQ(std::ranges::count(text, '\n'), static_cast<std::ptrdiff_t>(end.steps_done + 1));
  kill_manager();
  cluster->restart_manager();
  const auto third = known(end.id), fourth = known(id);

  job.steps = std::max(first.steps(), end.steps_done);
  const auto reference = known(undisturbed(job).id);
  expect_each_once(first, reference, first.steps(), false);
  expect_each_once(second, reference, end.steps_done);
  expect_each_once(beside.known, reference, end.steps_done);
  expect_each_once(third, reference, end.steps_done);
  expect_each_once(fourth, reference, first.steps(), false);
}

// given: a manager that is away for a while, and all workers and the manager's word of them gone with it: only a keeper
// is left / expected: what came of the steps and evaluations meanwhile is known all the same
TEST_F(losses, of_a_time_without_manager_are_known_by_the_keepers) {
  auto job = evaluated_job();
  start_nodes({"a"}, slow);
  const auto id = cluster->client().submit(job);
  wait_for_training(id, 1);
  kill_manager();
  std::this_thread::sleep_for(std::chrono::seconds(2)); // the fault itself
  kill_node("a");
  cluster->restart_manager();
  cluster->start_node("b", slow);
  wait_for_training(id, 1);
  const auto end = end_behind_checkpoint(id);
  const auto all = known(end.id);
  job.steps = end.steps_done;
  expect_each_once(all, known(undisturbed(job).id), end.steps_done);
}

// given: two replicas, each of which evaluates for some samples; a manager that is away for many evaluations, and one
// of the two is lost meanwhile / expected: the other knows what came of all of them
TEST_F(losses, of_evaluations_are_known_by_each_replica) {
  auto job = evaluated_job();
  start_nodes({"a", "b"}, slow);
  const auto id = cluster->client().submit(job);
  wait_for_training(id, 2);
  kill_manager();
  std::this_thread::sleep_for(std::chrono::seconds(2)); // the fault itself
  kill_node("b");
  cluster->restart_manager();
  wait_for_training(id, 1);
  const auto end = end_behind_checkpoint(id);
  const auto all = known(end.id);
  job.steps = end.steps_done;
  expect_each_once(all, known(undisturbed(job).id), end.steps_done);
}

// given: a job that ends early, at a version that is due on disk while it is evaluated / expected: what came of that
// lies beside it
TEST_F(losses, of_the_version_at_which_a_job_ends_early_are_beside_it) {
  auto job = evaluated_job();
  job.data.validation = 1024;
  job.patience = 2;
  job.min_delta = 1e5;
  job.checkpoint_every = every;
  const auto end = wait_for_done(start_job(job, {"a"}));
  EXPECT_EQ(end.steps_done, 2 * every);
  ASSERT_FALSE(end.checkpoint_folders.empty());
  const auto beside = read_losses(*run_above(end.checkpoint_folders.at(0).folder));
  EXPECT_EQ(beside.problem, "");
  ASSERT_TRUE(beside.known.find(end.steps_done - 1));
  EXPECT_TRUE(beside.known.find(end.steps_done - 1)->validation_loss);
}

// given: a job whose final version a keeper has, and its only worker is killed while it evaluates that / expected:
// another one evaluates it, and only then the job is done
TEST_F(losses, of_the_final_version_are_found_by_another) {
  auto job = evaluated_job();
  job.steps = every;
  job.data.validation = 2'000; // which takes a while
  job.model.width = 128;
  const auto id = start_job(job, {"a"});
  wait_for_job(id, "its last step", [&](const job_status& j) { return j.protected_steps == job.steps; });
  kill_node("a");
  cluster->start_node("b");
  wait_for_done(id);
  const auto all = known(id);
  EXPECT_GT(job_of(cluster->client().status(), id).chain.size(), 1u);
  expect_each_once(all, known(undisturbed(job).id), job.steps);
}

} // namespace
} // namespace parcae
