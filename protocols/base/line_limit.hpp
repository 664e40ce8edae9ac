#pragma once

// Floods of log lines.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace parcae {

/// For lines that strangers can cause, so that they do not push others out of the log: five at once, then one in ten
/// seconds that says how many were left out. Not thread-safe.
class line_limit {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// What to write behind a line of `now`: how many were left out before it, if any; no value: leave this one out too.
  std::optional<std::string> admit(time_point now) {
    if (allowed_ < at_once && now - refilled_ >= period) {
      const auto more = static_cast<std::uint64_t>((now - refilled_) / period);
      allowed_ = more > at_once - allowed_ ? at_once : allowed_ + more;
      refilled_ = now;
    }
    if (allowed_ == 0) {
      ++left_out_;
      return std::nullopt;
    }
    if (allowed_-- == at_once)
      refilled_ = now;
    const auto before = std::exchange(left_out_, 0);
    return before == 0 ? std::string() : " (" + std::to_string(before) + " more like it were not written)";
  }

private:
  static constexpr std::chrono::seconds period{10};
  static constexpr std::uint64_t at_once = 5;

  std::uint64_t allowed_ = at_once;
  time_point refilled_;        ///< when allowed_ was last made more, or less than all
  std::uint64_t left_out_ = 0; ///< since the last that was not
};

} // namespace parcae
