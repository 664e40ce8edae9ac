#pragma once

// Clients who ask for streams, one after the other, and compare them.

#include "tests/support/completion_client.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace parcae {

class service_clients {
public:
  service_clients(std::uint16_t port, std::uint64_t seed) : port_(port), random_(seed) {
    for (int i = 0; i < 60; ++i)
      wishes_.push_back({"chaos", 1 + random_() % 100, static_cast<int>(1 + random_() % 140),
                         static_cast<std::int64_t>(random_() >> 1), random_() % 3 == 0 ? 0.0 : 1.0});
  }
  ~service_clients() { stop(); }

  /// What each is answered while nothing happens. Returns what is wrong, or nothing.
  std::string learn() {
    for (const auto& x : wishes_) {
      const auto answer = ask_stream(port_, x);
      if (answer.status != 200 || answer.tokens.size() != static_cast<std::size_t>(x.max_tokens))
        return "before all harm: " + std::to_string(answer.status) + " " + answer.problem;
      expected_.push_back(answer.tokens);
    }
    return {};
  }

  /// So many ask, until stop(), which returns when all have their answers.
  void begin(int count) {
    stopping_ = false;
    for (int i = 0; i < count; ++i)
      threads_.emplace_back([this, seed = random_()] { run(seed); });
  }
  void stop() {
    stopping_ = true;
    threads_.clear();
  }

  std::uint64_t answered() const { return answered_; }
  std::chrono::steady_clock::time_point heard() const { return heard_.load(); }
  std::vector<std::string> take_problems() {
    const std::lock_guard lock(mutex_);
    return std::exchange(problems_, {});
  }
  std::chrono::milliseconds longest_gap() const {
    const std::lock_guard lock(mutex_);
    return longest_gap_;
  }

private:
  void run(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    while (!stopping_) {
      const auto i = random() % wishes_.size();
      std::string problem;
      completion x;
      try {
        x = ask_stream(port_, wishes_[i], [this](const auto&) { heard_ = std::chrono::steady_clock::now(); });
        if (x.status != 200)
          problem = "is lost: " + std::to_string(x.status) + " " + x.problem;
        else if (x.tokens != expected_[i])
          problem = "differs: " + std::to_string(x.tokens.size()) + " tokens of " + std::to_string(expected_[i].size());
      } catch (const std::exception& e) {
        problem = std::string("is lost: ") + e.what();
      }
      const std::lock_guard lock(mutex_);
      longest_gap_ = std::max(longest_gap_, x.longest_gap);
      if (!problem.empty())
        problems_.push_back("answer " + std::to_string(i) + " " + problem);
      else
        ++answered_;
    }
  }

  const std::uint16_t port_;
  std::mt19937_64 random_;
  std::vector<completion_wish> wishes_;
  std::vector<std::vector<std::int64_t>> expected_;
  std::atomic<bool> stopping_ = false;
  std::atomic<std::uint64_t> answered_ = 0;
  std::atomic<std::chrono::steady_clock::time_point> heard_{std::chrono::steady_clock::now()};
  mutable std::mutex mutex_;
  std::vector<std::string> problems_;
  std::chrono::milliseconds longest_gap_{};
  std::vector<std::jthread> threads_;
};

} // namespace parcae
