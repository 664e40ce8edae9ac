#pragma once

// Chance and virtual time of a simulation: what happens follows from the seed alone.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <random>
#include <utility>

namespace parcae::simulation {

using namespace std::chrono_literals;
using time_point = std::chrono::steady_clock::time_point;
using nanoseconds = std::chrono::nanoseconds;

class dice {
public:
  explicit dice(std::uint64_t seed) : random_(seed) {}

  std::uint64_t number() { return random_(); }
  /// 0 … n − 1.
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  bool percent(std::uint64_t x) { return below(100) < x; }
  nanoseconds between(nanoseconds least, nanoseconds most) {
    return least + nanoseconds(below(static_cast<std::uint64_t>((most - least).count()) + 1));
  }

  template <class Range>
  auto& one_of(Range& all) {
    return all[below(all.size())];
  }

private:
  std::mt19937_64 random_;
};

/// What is going to happen; at the same time in the order in which it was arranged.
class timeline {
public:
  void at(time_point when, std::function<void()> what) { events_.push({when, ++arranged_, std::move(what)}); }

  std::optional<time_point> next() const { return events_.empty() ? std::nullopt : std::optional(events_.top().when); }

  std::function<void()> take() {
    auto result = std::move(const_cast<event&>(events_.top()).what); // it is removed at once
    events_.pop();
    return result;
  }

  void clear() { events_ = {}; }

private:
  struct event {
    time_point when;
    std::uint64_t number;
    std::function<void()> what;

    friend bool operator<(const event& a, const event& b) {
      return std::pair(a.when, a.number) > std::pair(b.when, b.number); // the earliest on top
    }
  };

  std::priority_queue<event> events_;
  std::uint64_t arranged_ = 0;
};

} // namespace parcae::simulation
