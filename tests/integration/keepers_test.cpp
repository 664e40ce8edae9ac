// Keepers that hold two copies: killed, joined and filled while a job trains, and when nobody is left to.

#include "tests/support/cluster.hpp"

#include <random>

namespace parcae {
namespace {

struct keepers : cluster_test {
  void start_keepers(int count) {
    for (int i = 0; i < count; ++i) {
      names.push_back("k" + std::to_string(next++));
      cluster->start_keeper(names.back());
    }
    cluster->wait_for(std::to_string(names.size()) + " keepers", limit,
                      [&](const status_reply& s) { return living(s, "keeper") == names.size(); });
  }

  void kill_keeper() {
    const auto victim = names.begin() + static_cast<std::ptrdiff_t>(random() % names.size());
    cluster->node(*victim).signal(SIGKILL);
    names.erase(victim);
    cluster->wait_for("the loss of a keeper", limit,
                      [&](const status_reply& s) { return living(s, "keeper") == names.size(); });
  }

  /// Every layer of what they hold last is with two of those that are there now.
  job_status wait_for_copies(std::uint64_t id) {
    return wait_for_job(id, "two copies", [&](const job_status& j) {
      return j.state == "running" && j.keepers.size() == names.size() && j.copied_steps > 0 && j.copies == 2 &&
             j.copies_problem.empty();
    });
  }

  std::mt19937 random{17};
  std::vector<std::string> names; ///< of those alive
  int next = 0;
};

// given: two copies on three keepers, of which one is killed at some moment and another joins, again and again; then
// one is killed with all workers; then, when the others have filled each other, one more / expected: identical
// parameters, and no step computed again that two keepers held
TEST_F(keepers, any_one_may_be_lost) {
  auto job = endless_job();
  job.keeper_copies = 2;
  start_keepers(3);
  for (const auto* name : {"a", "b"})
    cluster->start_node(name);
  wait_for_workers(2);
  const auto id = cluster->client().submit(job);
  wait_for_training(id, 2);
  for (int i = 0; i < 4; ++i) {
    const auto protection = wait_for_copies(id);
    const auto moment = protection.steps_done + random() % 20;
    wait_for_job(id, "some steps", [&](const job_status& j) { return j.steps_done >= moment; });
    if (i % 2 == 0)
      start_keepers(1); // is being filled when another is killed
    kill_keeper();
    if (i % 2 == 1)
      start_keepers(1);
  }
  const auto held = wait_for_copies(id);
  EXPECT_EQ(held.replayed_steps, 0u) << "no keeper's loss stops training";
  const auto lost = names.begin();
  for (const auto& name : {std::string("a"), *lost, std::string("b")})
    cluster->node(name).signal(SIGKILL);
  names.erase(lost);
  wait_for_job(id, "waiting", [](const job_status& j) { return j.phase == "waiting"; });
  EXPECT_GE(wait_for_copies(id).copied_steps, held.copied_steps);
  kill_keeper();
  for (const auto* name : {"c", "d"})
    cluster->start_node(name);
  EXPECT_GE(wait_for_training(id, 2).chain.back().base, held.copied_steps);
  expect_undisturbed_bits(id, job);
}

} // namespace
} // namespace parcae
