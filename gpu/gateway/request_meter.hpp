#pragma once

// How requests fare: counts since the beginning, means and quantiles of the last minute. One thread at a time.

#include "protocols/values/serving.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace parcae {

/// Sums by second, of the last minute.
class minute_sum {
public:
  void add(double now_ms, double x);
  /// Of a minute that has not passed since the first one, of what has, but at least ten seconds.
  double per_s(double now_ms) const;
  double of_minute(double now_ms) const;

private:
  struct second {
    std::int64_t number = -1;
    double sum = 0;
  };
  std::array<second, 60> seconds_;
  double first_ms_ = -1; ///< when something was first added; below 0: never
};

/// Of the newest values of the last minute, at most some thousands.
class minute_quantiles {
public:
  void add(double now_ms, double x);
  wait_quantiles quantiles(double now_ms);

private:
  std::deque<std::pair<double, double>> values_;
};

/// Times by one clock, ms.
class request_meter {
public:
  /// Also one that is refused at once.
  void came(double now_ms, std::uint32_t prompt);
  /// So many were refused before they were looked at: nothing is known of their prompts.
  void turned_away(double now_ms, std::uint64_t count);
  /// A token, so long after the one before, or after its request came if it is the first.
  void token(double now_ms, double since_ms, bool first);
  void answered(double now_ms, const answered_request& x);

  /// But for what is queued, runs, or was done by pipelines.
  request_figures figures(double now_ms);

  /// The newest, oldest first; at most `most_answered_told`.
  std::vector<answered_request> newest() const { return {newest_.begin(), newest_.end()}; }

  std::uint64_t refused = 0, failed = 0;

private:
  std::uint64_t answered_ = 0, tokens_ = 0;
  minute_sum arrivals_, looked_at_, prompts_, new_tokens_, answers_, answer_tokens_;
  minute_quantiles first_, between_;
  std::deque<answered_request> newest_;
};

} // namespace parcae
