// Keepers: two copies of everything, killed, joined and filled while a job trains, and when nobody is left to; and
// those that are told to end.

#include "tests/support/cluster.hpp"
#include "tests/support/eventually.hpp"

#include <cstdlib>
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

  /// Starts a keeper for whose disk each fsync takes half a second, until what this returns is removed.
  std::filesystem::path start_slow_keeper() {
    ::setenv("LD_PRELOAD", PARCAE_SLOW_DISK, 1);
    ::setenv("PARCAE_SLOW_DISK", cluster->state_folder().c_str(), 1);
    start_keepers(1);
    ::unsetenv("LD_PRELOAD");
    ::unsetenv("PARCAE_SLOW_DISK");
    auto sign = cluster->state_folder();
    sign += ".slow";
    std::ofstream{sign};
    return sign;
  }

  /// The files of a keeper on its disk whose names have this in them.
  std::vector<std::string> files(const std::string& keeper, const std::string& with) const {
    std::vector<std::string> result;
    std::error_code gone; // what is being renamed
    for (std::filesystem::recursive_directory_iterator i(cluster->state_folder(), gone), end; !gone && i != end;
         i.increment(gone))
      if (const auto name = i->path().filename().string();
          name.starts_with(keeper + ".") && name.find(with) != name.npos)
        result.push_back(i->path().string());
    return result;
  }

  /// It has ended as one that was told to, and left nothing half on its disk.
  void expect_left(const std::string& name) {
    constexpr auto grace = 30s, shutdown = 10s;
    EXPECT_EQ(cluster->node(name).wait(grace + shutdown), 0);
    EXPECT_THAT(files(name, ".partial-"), testing::IsEmpty());
    const auto log = content(folder.path() / "first" / (name + ".log"));
    EXPECT_THAT(log, HasSubstr("leaving, at the latest in 30s: SIGTERM"));
    EXPECT_THAT(run({"logs"}).output, HasSubstr("instance " + name + " is gone, as announced"));
    std::erase(names, name);
  }

  static std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1))
      ++count;
    return count;
  }

  job_status wait_for_checkpoint(std::uint64_t id, std::uint64_t behind, std::size_t keepers) {
    return wait_for_job(id, "a checkpoint", [&](const job_status& j) {
      return j.checkpoint_steps > behind && j.checkpoint_folders.size() == keepers;
    });
  }

  std::mt19937 random{17};
  std::vector<std::string> names; ///< of those alive
  int next = 0;
};

/// By steps between snapshots; 0: as often as links allow.
struct keepers_by_pace : keepers, testing::WithParamInterface<std::uint64_t> {};

// given: two copies on three keepers, of which one is killed at some moment and another joins, again and again; then
// one is killed with all workers; then, when the others have filled each other, one more / expected: identical
// parameters, and no step computed again that two keepers held
TEST_P(keepers_by_pace, any_one_may_be_lost) {
  auto job = endless_job();
  job.keeper_every = GetParam();
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

INSTANTIATE_TEST_SUITE_P(every, keepers_by_pace, testing::Values(5, 0), testing::PrintToStringParamName());

// given: two keepers with a share each, of which one gets SIGTERM / expected: it says so, and ends with status 0 and
// nothing half written; training goes on undisturbed, and the next checkpoints are whole on the other one
TEST_F(keepers, one_that_is_told_to_end_is_not_missed) {
  auto job = endless_job();
  job.checkpoint_every = 10;
  start_keepers(2);
  cluster->start_node("a");
  const auto id = cluster->client().submit(job);
  const auto before = wait_for_checkpoint(id, 0, 2);
  cluster->node("k0").signal(SIGTERM);
  expect_left("k0");
  const auto alone = wait_for_checkpoint(id, before.checkpoint_steps, 1);
  EXPECT_EQ(alone.checkpoint_folders[0].keeper, "k1");
  EXPECT_EQ(alone.checkpoint_problem, "");
  EXPECT_EQ(alone.chain.size(), 1u) << "nothing stopped";
  EXPECT_EQ(run({"export", alone.checkpoint_folders[0].folder, "--output", folder.path() / "one"}, false).status, 0);
  expect_undisturbed_bits(id, job);
}

// given: a manager and a keeper for whose disk each fsync takes half a second, and a job that writes checkpoints all
// the time / expected: `status` answers within 3 s, always; checkpoints come, steps go on, and nothing changes
TEST_F(keepers, the_manager_answers_while_journal_and_checkpoints_are_slow) {
  if (std::string_view(PARCAE_SLOW_DISK).empty())
    GTEST_SKIP() << "nothing can be preloaded before a sanitizer";
  const auto disk = folder.path() / "second";
  ::setenv("LD_PRELOAD", PARCAE_SLOW_DISK, 1);
  ::setenv("PARCAE_SLOW_DISK", disk.c_str(), 1);
  start("second");
  start_keepers(1);
  ::unsetenv("LD_PRELOAD");
  ::unsetenv("PARCAE_SLOW_DISK");
  cluster->start_node("a");
  auto job = endless_job();
  job.checkpoint_every = 1;
  const auto id = cluster->client().submit(job);
  const auto before = wait_for_job(id, "a checkpoint", [](const job_status& j) { return j.checkpoint_steps > 0; });
  std::ofstream{disk.string() + ".slow"};
  const auto submitted = std::chrono::steady_clock::now();
  cluster->client().submit(small_job(1)); // answers once it is in the journal
  EXPECT_GT(std::chrono::steady_clock::now() - submitted, 400ms);
  std::chrono::steady_clock::duration longest{};
  const auto after = wait_for_job(id, "three checkpoints more",
                                  [&, steps = before.checkpoint_steps, more = 0](const job_status& j) mutable {
                                    const auto asked = std::chrono::steady_clock::now();
                                    cluster->client().status({.job = id});
                                    longest = std::max(longest, std::chrono::steady_clock::now() - asked);
                                    more += std::exchange(steps, j.checkpoint_steps) != j.checkpoint_steps;
                                    return more == 3;
                                  });
  EXPECT_LT(longest, 3s);
  EXPECT_GT(after.steps_done, before.steps_done);
  EXPECT_EQ(after.chain.size(), 1u) << "nothing stopped";
}

// given: the only keeper, whose disk is slow, gets SIGTERM while it writes a checkpoint / expected: it ends with status
// 0 once that is whole, and what it held then, but waits for no more of those that are due all the time; training goes
// on without it, and another keeper is given all
TEST_F(keepers, the_only_one_ends_behind_its_checkpoint) {
  if (std::string_view(PARCAE_SLOW_DISK).empty())
    GTEST_SKIP() << "nothing can be preloaded before a sanitizer";
  const auto job = endless_job();
  const auto slow = start_slow_keeper();
  cluster->start_node("a", {"--naps", "2ms"}); // the undisturbed one has as many steps
  const auto id = cluster->client().submit(job);
  ASSERT_TRUE(eventually([&] { return !files("k0", ".safetensors.partial-").empty(); }, limit));
  cluster->node("k0").signal(SIGTERM);
  expect_left("k0");
  const auto log = content(folder.path() / "first" / "k0.log");
  EXPECT_LE(count_of(log.substr(log.find("SIGTERM")), "are on disk"), 2u) << log;
  const auto left = job_of(cluster->client().status(), id);
  EXPECT_EQ(left.chain.size(), 1u) << "nothing stopped";
  EXPECT_EQ(files("k0", ".manifest").size(), files("k0", ".safetensors").size());
  ASSERT_GE(left.checkpoint_steps, 50u);
  ASSERT_EQ(left.checkpoint_folders.size(), 1u);
  const auto& whole = left.checkpoint_folders[0].folder;
  EXPECT_EQ(run({"export", whole, "--output", folder.path() / "whole"}, false).status, 0);
  wait_for_job(id, "steps without a keeper", [&](const job_status& j) { return j.steps_done > left.steps_done + 20; });
  std::filesystem::remove(slow);
  start_keepers(1);
  wait_for_checkpoint(id, left.checkpoint_steps, 1);
  expect_undisturbed_bits(id, job);
}

// given: the same, and a second SIGTERM: there is no time / expected: it ends with status 0, and of that checkpoint
// nothing is there; the next keeper has the next one
TEST_F(keepers, the_only_one_gives_a_checkpoint_up) {
  if (std::string_view(PARCAE_SLOW_DISK).empty())
    GTEST_SKIP() << "nothing can be preloaded before a sanitizer";
  const auto job = endless_job();
  const auto slow = start_slow_keeper();
  cluster->start_node("a");
  const auto id = cluster->client().submit(job);
  ASSERT_TRUE(eventually([&] { return !files("k0", ".safetensors.partial-").empty(); }, limit));
  cluster->node("k0").signal(SIGTERM);
  ASSERT_TRUE(
      eventually([&] { return content(folder.path() / "first" / "k0.log").find("SIGTERM") != std::string::npos; }));
  cluster->node("k0").signal(SIGTERM);
  expect_left("k0");
  EXPECT_THAT(files("k0", ".manifest"), testing::IsEmpty()) << "it ended between two layers";
  std::filesystem::remove(slow);
  start_keepers(1);
  wait_for_checkpoint(id, 0, 1);
  expect_undisturbed_bits(id, job);
}

} // namespace
} // namespace parcae
