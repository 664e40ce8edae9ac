#pragma once

// Chance and virtual time of a simulation: what happens follows from the seed alone.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
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

struct process;

/// What is going to happen; at the same time in the order in which it was arranged.
class timeline {
public:
  struct event {
    std::shared_ptr<process> by; ///< a thread of it does it; null: nobody's
    std::function<void()> what;
  };

  void at(time_point when, event x) { events_.emplace(when, std::move(x)); }

  std::optional<time_point> next() const {
    return events_.empty() ? std::nullopt : std::optional(events_.begin()->first);
  }

  event take() { return std::move(events_.extract(events_.begin()).mapped()); }

  void clear() { events_.clear(); }

private:
  std::multimap<time_point, event> events_;
};

} // namespace parcae::simulation
