#pragma once

// Two real managers, of which one leads, with their journal in real etcd servers. For tests.

#include "tests/support/cluster.hpp"
#include "tests/support/etcd_servers.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/free_port.hpp"

#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace parcae {

/// Two managers of which one leads, m0 and m1; a keeper, and workers.
class standby_cluster : public cluster_test {
public:
  using steady = std::chrono::steady_clock;

protected:
  void SetUp() override {
    if (!std::filesystem::exists(etcd_program))
      GTEST_SKIP() << "no " << etcd_program << ": ./deploy/setup unpacks it";
    etcd.emplace(3, shown);
    for (const auto* name : {"m0", "m1"})
      start_manager(name);
    start_node("keeper", {"--role", "keeper", "--state", folder.path() / "state"});
    for (const auto& name : workers())
      start_node(name);
    wait_for(30s, "all nodes", [this](const status_reply& x) {
      return living(x, "worker") == workers().size() && living(x, "keeper") == 1;
    });
  }

  std::string place_of(const std::string& manager) {
    auto& port = ports[manager];
    if (port == 0)
      port = free_port();
    return "127.0.0.1:" + std::to_string(port);
  }

  child_process& start(const std::string& name, std::vector<std::string> arguments) {
    const auto log = folder.path() / (name + ".log");
    dawdle();
    return processes.insert_or_assign(name, child_process({std::move(arguments), log, log})).first->second;
  }

  void start_manager(const std::string& name) {
    std::vector<std::string> all{
        sibling_program("parcae"), "manager", "--listen", place_of(name), "--store", store_of(name), "--standby"};
    if (shown)
      all.insert(all.end(), {"--store-authority", shown->authority, "--store-identity", shown->client});
    const auto more = more_of_manager();
    all.insert(all.end(), more.begin(), more.end());
    start(name, std::move(all));
  }

  void start_node(const std::string& name, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all{
        sibling_program("parcae-node"), "--manager", both(), "--name", name, "--cloud", "none", "--own-machine"};
    all.insert(all.end(), more.begin(), more.end());
    start(name, std::move(all));
  }

  virtual std::vector<std::string> workers() { return {"a", "b"}; }
  virtual std::vector<std::string> more_of_manager() { return {}; } ///< arguments of each
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
          if (const auto x = client.status(wanted); dawdle(), condition(x))
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
  job_status end_behind_checkpoint(std::uint64_t id) {
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
    command({"cancel", std::to_string(id)});
    wait_for_leader_with(id, limit, "the end of it", [](const job_status& j) { return j.state == "cancelled"; });
    const auto ended = std::stoull(command({"submit", "--resume", last.checkpoint_folders.at(0).folder, "--set",
                                            "job.steps=" + std::to_string(last.checkpoint_steps + 1)}));
    return wait_for_leader_with(ended, limit, "the end", [](const job_status& j) { return j.state == "done"; });
  }

  /// Of a job that has ended. Nothing else goes on beside the undisturbed one.
  void expect_undisturbed_bits_of(const job_status& end, job_specification job) {
    for (auto& [name, process] : processes)
      if (name != "m0" && name != "m1")
        process.signal(SIGKILL);
    job.steps = end.steps_done;
    EXPECT_EQ(end.parameters_sha256, undisturbed(job).parameters_sha256);
  }

  job_status expect_undisturbed_bits(std::uint64_t id, const job_specification& job) {
    const auto stood = wait_for_leader_with(id, limit, "it", [](const job_status&) { return true; });
    expect_undisturbed_bits_of(end_behind_checkpoint(id), job);
    return stood;
  }

  std::optional<etcd_certificates> shown; ///< etcd speaks TLS with these
  std::optional<etcd_servers> etcd;
  std::map<std::string, std::uint16_t> ports;
  std::map<std::string, child_process> processes; ///< end before etcd
};

} // namespace parcae
