#pragma once

// A cluster of real processes that serves a small model, and clients of it. For tests.

#include "tests/support/cluster.hpp"
#include "tests/support/completion_client.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/free_port.hpp"

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

namespace parcae {

/// Of different lengths, each with a seed of its own.
inline completion_wish wish_of(int i) {
  return {"served", static_cast<std::size_t>(1 + 7 * i % 60), 60 + 13 * i % 130, 100 + i, i % 3 == 0 ? 0.0 : 1.0};
}

/// A job whose sequences are longer than those.
constexpr const char* served_job_file = R"(
[job]
name = "served"
kind = "serve"
seed = 3
threads = 1
[model]
kind = "gpt"
layers = 4
width = 128
heads = 4
sequence = 320
vocabulary = 256
[serve]
cache = "16MiB"
batch = 8
chat = "plain"
)";

/// They ask a gateway on loopback.
class served_clients {
protected:
  static constexpr int requests = 24;

  std::vector<std::string> gateway_arguments() const {
    return {"--role", "gateway", "--http", "127.0.0.1:" + std::to_string(port)};
  }

  /// Of GET /health; 0: nobody answers.
  unsigned health() const {
    try {
      return web_client(port).ask({"GET", "/health", {}, {}}).status;
    } catch (const std::exception&) { // it does not listen yet
      return 0;
    }
  }

  /// Until it takes requests.
  void wait_for_service() const {
    const auto serves = [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20)); // each question is a connection
      return health() == 200;
    };
    EXPECT_TRUE(eventually(serves, tested_cluster::limit)) << "no service";
  }

  /// All at once, every other one as a stream; meanwhile `disturb`, when so many tokens have come.
  std::vector<completion> ask_all(const std::function<void()>& disturb = {}, int after = 100) const {
    std::atomic<int> told = 0;
    std::vector<std::future<completion>> all;
    for (int i = 0; i < requests; ++i)
      all.push_back(std::async(std::launch::async, [&, i] {
        return i % 2 == 0 ? ask_stream(port, wish_of(i), [&](const auto&) { ++told; }) : ask_whole(port, wish_of(i));
      }));
    if (disturb) {
      for (int tries = 0; told < after && tries < 3'000; ++tries)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      EXPECT_GE(told, after);
      EXPECT_TRUE(std::ranges::any_of(
          all, [](auto& x) { return x.wait_for(std::chrono::seconds(0)) != std::future_status::ready; }));
      disturb();
    }
    std::vector<completion> result;
    for (auto& x : all)
      result.push_back(x.get());
    return result;
  }

  void expect_undisturbed(const std::vector<completion>& all) const {
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].status, 200u) << "request " << i;
      EXPECT_EQ(all[i].tokens, undisturbed_answers.at(i).tokens) << "request " << i;
    }
  }

  /// One worker, one after the other; what all others are compared with.
  void ask_undisturbed() {
    undisturbed_answers.clear();
    for (int i = 0; i < requests; ++i) {
      undisturbed_answers.push_back(ask_stream(port, wish_of(i)));
      EXPECT_EQ(undisturbed_answers.back().tokens.size(), static_cast<std::size_t>(wish_of(i).max_tokens));
    }
  }

  const std::uint16_t port = free_port();
  std::vector<completion> undisturbed_answers;
};

/// Of a manager, a gateway when it is started, and workers.
class serving_cluster : public cluster_test, protected served_clients {
protected:
  void SetUp() override {
    cluster_test::SetUp();
    file = write("served.toml", served_job_file);
  }

  void start_gateway(const std::string& name = "gate") { cluster->start_node(name, gateway_arguments()); }

  void wait_for_shape(std::uint64_t id, std::uint32_t width, std::uint32_t depth) {
    wait_for_job(id, std::to_string(width) + "x" + std::to_string(depth),
                 [&](const job_status& j) { return j.phase == "running" && j.width == width && j.depth == depth; });
  }

  /// Until the manager has heard that nothing runs, and so many were answered.
  job_status wait_for_figures(std::uint64_t id, std::uint64_t answered) {
    return wait_for_job(id, "figures of " + std::to_string(answered) + " requests", [&](const job_status& j) {
      return j.phase == "running" && j.requests.running + j.requests.queued == 0 && j.requests.answered >= answered;
    });
  }

  std::string file;
};

} // namespace parcae
