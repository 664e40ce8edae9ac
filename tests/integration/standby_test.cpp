// Two managers, of which one leads, with their journal in real etcd servers.

#include "tests/support/slow_relay.hpp"
#include "tests/support/standby_cluster.hpp"

namespace parcae {
namespace {

using steady = standby_cluster::steady;

struct standby : standby_cluster {
  /// A job of two nodes is under way.
  void train() {
    id = submit(job);
    before = training(id);
    first = leader();
  }

  /// Once this was done to the leader the other one leads, within so long, and training goes on: the same generation.
  job_status takes_over(std::chrono::seconds within, const std::function<void()>& harm) {
    const auto began = steady::now();
    harm();
    auto after = wait_for_leader_with(id, 20s, "another leader", [&](const job_status& j) {
      return j.phase == "running" && j.steps_done > before.steps_done;
    });
    EXPECT_LT(steady::now() - began, within);
    EXPECT_EQ(after.generation, before.generation);
    return after;
  }

  job_status goes_on_without_b(std::chrono::milliseconds time) {
    return wait_for_leader_with(id, time, "a generation without b", [&](const job_status& j) {
      return j.generation > before.generation && j.phase == "running" && j.steps_done > j.chain.back().base;
    });
  }

  /// In the end it has the bits of a job that nothing disturbed; its generation is this one still, and at most so many
  /// steps were done again.
  void expect_bits_and(std::uint64_t generation, std::uint64_t max_replayed = 0) {
    const auto last = expect_undisturbed_bits(id, job);
    EXPECT_EQ(last.generation, generation);
    EXPECT_LE(last.replayed_steps, max_replayed);
  }

  const job_specification job = endless_job();
  std::uint64_t id = 0;
  job_status before;
  std::string first; ///< leader
};

// given: the leader is killed while two nodes train / expected: the other one leads within 10 s, and training went on:
// the same generation, no step lost or computed again, the same bits; who watches is told; a node that dies after it is
// replaced as ever
TEST_F(standby, takes_over_when_the_leader_is_killed) {
  train();
  start("watch", {sibling_program("parcae"), "watch", std::to_string(id), "--manager", both()});
  EXPECT_TRUE(says("watch", "job " + std::to_string(id) + " "));
  const auto after = takes_over(10s, [&] { processes.at(first).signal(SIGKILL); });
  EXPECT_TRUE(says("watch", "; waits for a standby to take over\n"));
  EXPECT_TRUE(says("watch", " the manager answers again\n"));
  EXPECT_GT(after.steps_done, before.steps_done + 100) << "nobody trained meanwhile";
  EXPECT_EQ(after.replayed_steps, 0u);
  start_manager(first); // stands by now
  processes.at("b").signal(SIGKILL);
  goes_on_without_b(limit);
  EXPECT_LE(expect_undisturbed_bits(id, job).replayed_steps, 1u);
}

// given: the leader stands still for 12 s, and a worker dies meanwhile / expected: the other one leads and goes on;
// when the former one wakes it changes nothing, and ends
TEST_F(standby, a_leader_that_wakes_up_does_no_harm) {
  train();
  processes.at(first).signal(SIGSTOP);
  const auto stopped = steady::now();
  processes.at("b").signal(SIGKILL);
  const auto after = goes_on_without_b(20s);
  EXPECT_LT(steady::now() - stopped, 10s);
  std::this_thread::sleep_until(stopped + 12s); // the fault itself
  processes.at(first).signal(SIGCONT);
  const auto status = processes.at(first).wait(10s); // what it was asking etcd has 4 s, and giving back the lease 1 s
  ASSERT_TRUE(status);
  EXPECT_EQ(*status, 1);
  EXPECT_THAT(content(folder.path() / (first + ".log")), HasSubstr("another manager may lead"));
  expect_bits_and(after.generation, 1);
}

// given: SIGTERM to the leader, and then a member of etcd is killed / expected: the other one leads at once, within 3
// s, and training goes on
TEST_F(standby, takes_over_at_once_when_the_leader_is_told_to_end) {
  train();
  takes_over(3s, [&] { processes.at(first).signal(SIGTERM); });
  EXPECT_EQ(processes.at(first).wait(5s), 0);
  etcd->member(0).signal(SIGKILL);
  expect_bits_and(before.generation);
}

struct standby_with_tls : standby {
  standby_with_tls() { shown = make_etcd_certificates(folder.path() / "etcd"); }
};

// given: etcd with TLS, which asks for certificates; the leader is killed / expected: the other one leads within 10 s,
// the same generation, no step lost
TEST_F(standby_with_tls, takes_over) {
  const auto id = submit(small_job(1'000'000));
  const auto before = training(id);
  processes.at(leader()).signal(SIGKILL);
  const auto killed = steady::now();
  const auto after = wait_for_leader_with(id, 20s, "another leader", [&](const job_status& j) {
    return j.phase == "running" && j.steps_done > before.steps_done;
  });
  EXPECT_LT(steady::now() - killed, 10s);
  EXPECT_EQ(after.generation, before.generation);
  EXPECT_EQ(after.replayed_steps, 0u);
}

/// Each manager has its own way to etcd.
struct standby_apart : standby {
  std::string store_of(const std::string& manager) override {
    auto& relay = ways[manager];
    relay = std::make_unique<slow_relay>(etcd->where(0).port, 100'000'000);
    return "etcd://127.0.0.1:" + std::to_string(relay->port());
  }

  std::map<std::string, std::unique_ptr<slow_relay>> ways;
};

// given: the leader is cut off from etcd, and from nobody else / expected: it ends itself, the other one leads within
// 10 s; the same generation, no step lost, the same bits
TEST_F(standby_apart, a_leader_that_cannot_reach_etcd_gives_way) {
  train();
  takes_over(10s, [&] {
    ways.at(first).reset();
    EXPECT_EQ(processes.at(first).wait(10s), 1);
  });
  EXPECT_THAT(content(folder.path() / (first + ".log")), HasSubstr("its lease could not be renewed"));
  expect_bits_and(before.generation);
}

} // namespace
} // namespace parcae
