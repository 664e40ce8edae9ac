#pragma once

// When a job's configuration is to be chosen anew, and why. Pure.

#include "planner/choose/throughput.hpp"
#include "protocols/values/state.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace parcae {

/// One cause more, unless it is named already: "a; b". Beyond eight: "; and more".
void add_cause(std::string& to, const std::string& why);

class planning_desk {
public:
  using time_point = std::chrono::steady_clock::time_point;
  using milliseconds = std::chrono::milliseconds;

  static constexpr int quick_restarts = 3; ///< without a step between them; more are put off longer and longer

  /// A reason to plan, at `at`, or if there is none once the change in progress is over.
  void soon(const std::string& why, std::optional<time_point> at);

  /// Something came up during the change in progress. Said once.
  bool take_missed();
  void miss() { missed_ = true; }

  /// Without news, unless it is planned earlier.
  void at_the_latest(time_point t) { at_ = at_.value_or(t); }
  /// What was to be planned was planned just now, in vain.
  void put_off(time_point t) { at_ = t; }

  std::optional<time_point> at() const { return at_; }

  /// The time has come: what was to be planned is being planned. Whether that is because of news.
  bool begin();
  bool has_news() const { return news_; }

  const std::string& trigger() const { return trigger_; }
  void because(const std::string& why) { trigger_ = why; }

  /// The number of a question to the planner; answers to earlier ones do not count.
  std::uint64_t ask() { return ++request_; }
  bool awaits(std::uint64_t request) const { return request == request_; }

  /// Communication failed in a change or a generation.
  void count_restart() { ++restarts_; }
  void forget_restarts() { restarts_ = 0; }

  /// How long to wait before planning again after these restarts; 0: not at all.
  milliseconds pause(milliseconds first) const;

  configuration choice; ///< the planner's last
  version held;         ///< newest that all layers were held at when it came, while nothing trained

private:
  std::optional<time_point> at_;
  bool news_ = false;   ///< at_ is because of an event, not only of the interval
  bool missed_ = false; ///< plan once the change in progress is over
  std::uint64_t request_ = 0;
  std::string trigger_ = "start";
  int restarts_ = 0; ///< since the last step or loss
};

} // namespace parcae
