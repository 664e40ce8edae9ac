#include "planner/simulation/trace_generator.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

namespace parcae {

namespace {

// SplitMix64, so that traces do not depend on the standard library's distributions.
class generator {
public:
  explicit generator(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    auto x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
  }

  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  bool chance(double p) { return uniform() < p; }

  // 1, 2, … with this mean, cut at `most`.
  std::uint32_t group(double mean, std::uint32_t most) {
    std::uint32_t n = 1;
    while (n < most && chance(1 - 1 / std::max(mean, 1.0)))
      ++n;
    return n;
  }

private:
  std::uint64_t state_;
};

} // namespace

std::vector<std::string> trace_kinds() {
  return {"p3", "calm", "bursty", "collapsing", "daily", "large"};
}

trace_options trace_kind(std::string_view name) {
  trace_options x;
  if (name == "p3")
    return x;
  if (name == "calm") {
    x.loss_groups_per_hour = 0.7;
    x.joins_per_hour = 4;
    x.second_wave = 0.1;
    return x;
  }
  if (name == "bursty") {
    x.loss_groups_per_hour = 3;
    x.mean_group = 4;
    x.largest_group = 16;
    x.second_wave = 0.6;
    x.joins_per_hour = 30;
    return x;
  }
  if (name == "collapsing") {
    x.loss_groups_per_hour = 0.8;
    x.mean_group = 12;
    x.largest_group = 32;
    x.second_wave = 0.5;
    x.joins_per_hour = 25;
    x.mean_join_group = 3;
    return x;
  }
  if (name == "daily") {
    x.hours = 48;
    x.daily_swing = 1;
    x.scarce_factor = 4;
    return x;
  }
  if (name == "large") {
    x.capacity = 80;
    x.loss_groups_per_hour = 7;
    x.mean_group = 3;
    x.largest_group = 12;
    x.joins_per_hour = 30;
    x.mean_join_group = 2.5;
    return x;
  }
  std::string names;
  for (const auto& kind : trace_kinds())
    names += (names.empty() ? "" : ", ") + kind;
  throw std::invalid_argument("trace \"" + std::string(name) + "\" is unknown; there are " + names);
}

std::vector<trace_event> generate_trace(const trace_options& options, std::uint64_t seed) {
  generator random(seed);
  std::vector<trace_event> events;
  std::vector<std::string> present;
  std::uint64_t names = 0;
  constexpr std::uint64_t tick_s = 20; // at most one group of a kind in each
  constexpr double ticks_per_hour = 3600.0 / tick_s;
  auto add = [&](std::uint64_t ms, std::uint32_t count) {
    for (; count > 0 && present.size() < options.capacity; --count) {
      present.push_back("node" + std::to_string(++names));
      events.push_back({ms, true, present.back(), 0});
    }
  };
  auto remove = [&](std::uint64_t ms, std::uint32_t count) {
    for (; count > 0 && !present.empty(); --count) {
      // A tenth of the losses strikes among the youngest third: spot instances that live long tend to go on living.
      const auto n = present.size();
      const auto from = random.chance(0.1) ? n - (n + 2) / 3 : 0;
      const auto i = from + random.next() % (n - from);
      events.push_back({ms, false, present[i], random.chance(options.notice_fraction) ? options.notice_ms : 0});
      present.erase(present.begin() + static_cast<std::ptrdiff_t>(i));
    }
  };
  add(0, options.capacity / 2 + 2);
  bool scarce = false;
  std::uint64_t wave_s = 0; // when a second wave is due; 0: none
  const double scarce_ends = 1 / (std::max(options.scarce_hours, 0.01) * ticks_per_hour);
  const double fraction = std::clamp(options.scarce_fraction, 0.0, 0.99);
  const double scarce_begins = scarce_ends * fraction / (1 - fraction);
  const auto end_s = static_cast<std::uint64_t>(options.hours * 3600);
  for (std::uint64_t s = tick_s; s < end_s; s += tick_s) {
    scarce = scarce ? !random.chance(scarce_ends) : random.chance(scarce_begins);
    const double by_day = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(s) / 86'400);
    const double scarcity = options.daily_swing * by_day + (1 - options.daily_swing) * (scarce ? 1 : 0);
    const double factor = 1 + scarcity * (options.scarce_factor - 1);
    if (random.chance(options.loss_groups_per_hour * factor / ticks_per_hour)) {
      remove(s * 1000, random.group(options.mean_group, options.largest_group));
      if (random.chance(options.second_wave))
        wave_s = s + 120;
    } else if (wave_s == s) {
      remove(s * 1000, random.group(options.mean_group, options.largest_group));
    } else if (present.size() < options.capacity && random.chance(options.joins_per_hour / factor / ticks_per_hour)) {
      add(s * 1000, random.group(options.mean_join_group, options.capacity));
    }
  }
  return events;
}

} // namespace parcae
