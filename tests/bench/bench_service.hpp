#pragma once

// A served model on real processes, for benches.

#include "runtime/lab/local_cluster.hpp"
#include "tests/bench/measure.hpp"
#include "tests/support/free_port.hpp"
#include "tests/support/web_client.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <deque>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace parcae {

inline constexpr const char* served_name = "bench";
inline constexpr std::chrono::seconds notice_time{5}; ///< of a worker that leaves

/// 4.9 M parameters: a token takes some ms.
inline model_specification served_model() {
  return {.kind = "gpt", .layers = 6, .width = 256, .heads = 4, .sequence = 512, .vocabulary = 256};
}

inline job_specification served_job() {
  job_specification x;
  x.name = served_name;
  x.kind = "serve";
  x.optimizer.kind = "none";
  x.model = served_model();
  x.max_depth = 1;
  x.serve.cache_bytes = 256 << 20;
  return x;
}

/// A manager, a gateway and workers.
class bench_service {
public:
  bench_service(const job_specification& job, int workers) : cluster_(sibling_program("").string(), logs_.path()) {
    start_gateway();
    for (int i = 0; i < workers; ++i)
      start_worker();
    if (workers > 0)
      cluster_.wait_for("workers", std::chrono::seconds(120),
                        [&](const auto& s) { return living(s, "worker") == static_cast<std::size_t>(workers); });
    id_ = cluster_.client().submit(job);
  }

  std::uint16_t port() const { return port_; }
  local_cluster& cluster() { return cluster_; }

  /// Its processes that answer: the gateway, and each worker.
  std::vector<std::pair<std::string, pid_t>> processes() {
    std::vector<std::pair<std::string, pid_t>> result{{"gateway", cluster_.node(gateway_).pid()}};
    for (const auto& x : workers_)
      result.emplace_back("worker " + std::to_string(result.size()), cluster_.node(x).pid());
    return result;
  }

  void start_gateway() {
    gateway_ = "gate" + std::to_string(++started_);
    cluster_.start_node(gateway_, {"--role", "gateway", "--http", "127.0.0.1:" + std::to_string(port_)});
  }
  void start_worker() {
    workers_.push_back("w" + std::to_string(++started_));
    cluster_.start_node(workers_.back(), {"--grace", std::to_string(notice_time.count()) + "s"});
  }

  /// The one that is there longest.
  std::string kill_worker() {
    const auto name = workers_.front();
    workers_.pop_front();
    cluster_.node(name).signal(SIGKILL);
    return name;
  }
  /// By a notice. When its time is over, or it has gone, another begins.
  void retire_worker() { retire(std::string(workers_.front())); }
  void retire(const std::string& name) {
    std::erase(workers_, name);
    const auto end = steady::now() + notice_time;
    cluster_.node(name).signal(SIGTERM);
    while (!cluster_.node(name).poll() && steady::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    cluster_.node(name).signal(SIGKILL);
    start_worker();
  }
  /// All of it but the manager, as one machine; it begins again at once.
  void kill_replica() {
    cluster_.node(gateway_).signal(SIGKILL);
    kill_worker();
    cluster_.node(gateway_).wait(std::chrono::seconds(5)); // its port is to be free
    start_gateway();
    start_worker();
  }

  bool is_healthy() const {
    try {
      return web_client(port_).ask({"GET", "/health", {}, {}}).status == 200;
    } catch (const std::exception&) {
      return false;
    }
  }
  void wait_until_healthy() const {
    for (const auto end = steady::now() + std::chrono::seconds(120); !is_healthy();) {
      if (steady::now() > end)
        throw std::runtime_error("there is no service");
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  job_status told() { return job_of(cluster_.client().status({.job = id_}), id_); }
  void wait_for_pipelines(std::uint32_t count) {
    cluster_.wait_for("pipelines", std::chrono::seconds(120), [&](const auto& s) {
      const auto& x = job_of(s, id_);
      return x.phase == "running" && x.width == count;
    });
    wait_until_healthy();
  }

private:
  const scratch_folder logs_{"service-bench"};
  const std::uint16_t port_ = free_port();
  local_cluster cluster_;
  std::string gateway_;
  std::deque<std::string> workers_;
  int started_ = 0;
  std::uint64_t id_ = 0;
};

} // namespace parcae
