// Two managers, of which one leads, with their journal in real etcd servers.

#include "tests/support/cluster.hpp"
#include "tests/support/etcd_servers.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/slow_relay.hpp"

#include <csignal>
#include <thread>

namespace parcae {
namespace {

using steady = std::chrono::steady_clock;

struct standby : cluster_test {
  void SetUp() override {
    if (!std::filesystem::exists(etcd_program))
      GTEST_SKIP() << "no " << etcd_program << ": ./deploy/setup unpacks it";
    etcd.emplace(3, shown);
    for (const auto* name : {"m0", "m1"})
      start_manager(name);
    start_node("keeper", {"--role", "keeper", "--state", folder.path() / "state"});
    start_node("a");
    start_node("b");
    wait_for(30s, "all nodes",
             [](const status_reply& x) { return living(x, "worker") == 2 && living(x, "keeper") == 1; });
  }

  std::string place_of(const std::string& manager) {
    auto& port = ports[manager];
    if (port == 0)
      port = etcd_servers::free_port();
    return "127.0.0.1:" + std::to_string(port);
  }

  child_process& start(const std::string& name, std::vector<std::string> arguments) {
    const auto log = folder.path() / (name + ".log");
    return processes.insert_or_assign(name, child_process({std::move(arguments), log, log})).first->second;
  }

  void start_manager(const std::string& name) {
    std::vector<std::string> all{
        sibling_program("parcae"), "manager", "--listen", place_of(name), "--store", store_of(name), "--standby"};
    if (shown)
      all.insert(all.end(), {"--store-authority", shown->authority, "--store-identity", shown->client});
    start(name, std::move(all));
  }

  void start_node(const std::string& name, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all{
        sibling_program("parcae-node"), "--manager", both(), "--name", name, "--cloud", "none", "--own-machine"};
    all.insert(all.end(), more.begin(), more.end());
    start(name, std::move(all));
  }

  virtual std::string store_of(const std::string& /*manager*/) { return etcd->store(); }

  std::string both() { return place_of("m0") + "," + place_of("m1"); }

  /// Asks whoever leads, until the condition holds.
  status_reply wait_for(std::chrono::milliseconds time, const std::string& what, const auto& condition,
                        const status_request& wanted = {}) {
    const auto end = steady::now() + time;
    for (;;) {
      try {
        for (manager_client client(parse_access(both(), ""), 2s); steady::now() < end;
             std::this_thread::sleep_for(10ms))
          if (const auto x = client.status(wanted); condition(x))
            return x;
      } catch (const client_error&) {
        // Nobody leads, or no more.
      }
      if (steady::now() >= end)
        throw cluster_error("waited in vain for " + what);
    }
  }

  job_status wait_for_leader_with(std::uint64_t job, std::chrono::milliseconds time, const std::string& what,
                                  const auto& condition) {
    return job_of(wait_for(time, what,
                           [&](const status_reply& x) {
                             return std::ranges::any_of(x.jobs,
                                                        [&](const auto& j) { return j.id == job && condition(j); });
                           },
                           {.job = job}),
                  job);
  }

  /// Whoever listens.
  std::string leader() {
    for (const auto* name : {"m0", "m1"})
      if (content(folder.path() / (std::string(name) + ".log")).find("listening on") != std::string::npos)
        return name;
    throw cluster_error("nobody leads");
  }

  /// Sooner or later.
  bool says(const std::string& process, const std::string& text) {
    return eventually([&] { return content(folder.path() / (process + ".log")).find(text) != std::string::npos; });
  }

  std::uint64_t submit(const job_specification& job) { return manager_client(parse_access(both(), "")).submit(job); }

  job_status training(std::uint64_t id) {
    return wait_for_leader_with(id, limit, "training", [](const job_status& j) {
      return j.phase == "running" && j.width * j.depth == 2 && j.steps_done > j.chain.back().base;
    });
  }

  /// As cluster_test does it, from whoever leads.
  job_status expect_undisturbed_bits(std::uint64_t id, job_specification job) {
    const auto command = [this](std::vector<std::string> arguments) {
      arguments.insert(arguments.begin(), sibling_program("parcae"));
      arguments.insert(arguments.end(), {"--manager", both()});
      const auto x = run_program(std::move(arguments));
      EXPECT_EQ(x.status, 0) << x.error;
      return x.output;
    };
    const auto stood = wait_for_leader_with(id, limit, "it", [](const job_status&) { return true; });
    const auto last = wait_for_leader_with(id, limit, "a checkpoint", [&](const job_status& j) {
      return j.checkpoint_steps > stood.steps_done && !j.checkpoint_folders.empty();
    });
    job.steps = last.checkpoint_steps + 1;
    command({"cancel", std::to_string(id)});
    wait_for_leader_with(id, limit, "the end of it", [](const job_status& j) { return j.state == "cancelled"; });
    const auto ended = std::stoull(command({"submit", "--resume", last.checkpoint_folders.at(0).folder, "--set",
                                            "job.steps=" + std::to_string(job.steps)}));
    const auto end =
        wait_for_leader_with(ended, limit, "the end", [](const job_status& j) { return j.state == "done"; });
    for (auto& [name, process] : processes)
      if (name != "m0" && name != "m1")
        process.signal(SIGKILL);
    EXPECT_EQ(end.parameters_sha256, undisturbed(job).parameters_sha256);
    return stood;
  }

  std::optional<etcd_certificates> shown; ///< etcd speaks TLS with these
  std::optional<etcd_servers> etcd;
  std::map<std::string, std::uint16_t> ports;
  std::map<std::string, child_process> processes; ///< end before etcd
};

// given: the leader is killed while two nodes train / expected: the other one leads within 10 s, and training went on:
// the same generation, no step lost or computed again, the same bits; who watches is told; a node that dies after it is
// replaced as ever
TEST_F(standby, takes_over_when_the_leader_is_killed) {
  const auto job = endless_job();
  const auto id = submit(job);
  const auto before = training(id);
  const auto first = leader();
  start("watch", {sibling_program("parcae"), "watch", std::to_string(id), "--manager", both()});
  EXPECT_TRUE(says("watch", "job " + std::to_string(id) + " "));
  processes.at(first).signal(SIGKILL);
  const auto killed = steady::now();
  const auto after = wait_for_leader_with(id, 20s, "another leader", [&](const job_status& j) {
    return j.phase == "running" && j.steps_done > before.steps_done;
  });
  EXPECT_LT(steady::now() - killed, 10s);
  EXPECT_TRUE(says("watch", "; waits for a standby to take over\n"));
  EXPECT_TRUE(says("watch", " the manager answers again\n"));
  EXPECT_EQ(after.generation, before.generation);
  EXPECT_GT(after.steps_done, before.steps_done + 100) << "nobody trained meanwhile";
  EXPECT_EQ(after.replayed_steps, 0u);
  start_manager(first); // stands by now
  processes.at("b").signal(SIGKILL);
  wait_for_leader_with(id, limit, "a generation without b", [&](const job_status& j) {
    return j.generation > before.generation && j.phase == "running" && j.steps_done > j.chain.back().base;
  });
  EXPECT_LE(expect_undisturbed_bits(id, job).replayed_steps, 1u);
}

// given: the leader stands still for 12 s, and a worker dies meanwhile / expected: the other one leads and goes on;
// when the former one wakes it changes nothing, and ends
TEST_F(standby, a_leader_that_wakes_up_does_no_harm) {
  const auto job = endless_job();
  const auto id = submit(job);
  const auto before = training(id);
  const auto first = leader();
  processes.at(first).signal(SIGSTOP);
  const auto stopped = steady::now();
  processes.at("b").signal(SIGKILL);
  const auto after = wait_for_leader_with(id, 20s, "a generation without b", [&](const job_status& j) {
    return j.generation > before.generation && j.phase == "running" && j.steps_done > j.chain.back().base;
  });
  EXPECT_LT(steady::now() - stopped, 10s);
  std::this_thread::sleep_until(stopped + 12s); // the fault itself
  processes.at(first).signal(SIGCONT);
  const auto status = processes.at(first).wait(5s);
  ASSERT_TRUE(status);
  EXPECT_EQ(*status, 1);
  EXPECT_THAT(content(folder.path() / (first + ".log")), HasSubstr("another manager may lead"));
  const auto last = expect_undisturbed_bits(id, job);
  EXPECT_EQ(last.generation, after.generation);
  EXPECT_LE(last.replayed_steps, 1u);
}

// given: SIGTERM to the leader, and then a member of etcd is killed / expected: the other one leads at once, within 3
// s, and training goes on
TEST_F(standby, takes_over_at_once_when_the_leader_is_told_to_end) {
  const auto job = endless_job();
  const auto id = submit(job);
  const auto before = training(id);
  const auto first = leader();
  processes.at(first).signal(SIGTERM);
  const auto told = steady::now();
  const auto after = wait_for_leader_with(id, 20s, "another leader", [&](const job_status& j) {
    return j.phase == "running" && j.steps_done > before.steps_done;
  });
  EXPECT_LT(steady::now() - told, 3s);
  EXPECT_EQ(processes.at(first).wait(5s), 0);
  EXPECT_EQ(after.generation, before.generation);
  etcd->member(0).signal(SIGKILL);
  const auto last = expect_undisturbed_bits(id, job);
  EXPECT_EQ(last.generation, before.generation);
  EXPECT_EQ(last.replayed_steps, 0u);
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
  const auto job = endless_job();
  const auto id = submit(job);
  const auto before = training(id);
  const auto first = leader();
  ways.at(first).reset();
  const auto cut = steady::now();
  EXPECT_EQ(processes.at(first).wait(10s), 1);
  const auto after = wait_for_leader_with(id, 20s, "another leader", [&](const job_status& j) {
    return j.phase == "running" && j.steps_done > before.steps_done;
  });
  EXPECT_LT(steady::now() - cut, 10s);
  EXPECT_EQ(after.generation, before.generation);
  EXPECT_THAT(content(folder.path() / (first + ".log")), HasSubstr("its lease could not be renewed"));
  const auto last = expect_undisturbed_bits(id, job);
  EXPECT_EQ(last.generation, before.generation);
  EXPECT_EQ(last.replayed_steps, 0u);
}

} // namespace
} // namespace parcae
