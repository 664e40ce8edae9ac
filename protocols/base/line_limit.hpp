#pragma once

// Floods of log lines.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace parcae {

/// For lines that others can cause, so that they do not push all else out of the log: some at once, then one in each
/// period that says how many were left out. Not thread-safe.
class line_limit {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// The default is for what strangers cause.
  explicit line_limit(std::uint64_t at_once = 5, std::chrono::seconds period = std::chrono::seconds(10)) :
      at_once_(at_once), period_(period), allowed_(at_once) {}

  /// What to write behind a line of `now`: how many were left out before it, if any; no value: leave this one out too.
  std::optional<std::string> admit(time_point now) {
    if (allowed_ < at_once_ && now - refilled_ >= period_) {
      const auto more = static_cast<std::uint64_t>((now - refilled_) / period_);
      allowed_ = more > at_once_ - allowed_ ? at_once_ : allowed_ + more;
      refilled_ = now;
    }
    if (allowed_ == 0) {
      ++left_out_;
      return std::nullopt;
    }
    if (allowed_-- == at_once_)
      refilled_ = now;
    const auto before = std::exchange(left_out_, 0);
    return before == 0 ? std::string() : " (" + std::to_string(before) + " more like it were not written)";
  }

private:
  std::uint64_t at_once_;
  std::chrono::seconds period_;
  std::uint64_t allowed_;
  time_point refilled_;        ///< when allowed_ was last made more, or less than all
  std::uint64_t left_out_ = 0; ///< since the last that was not
};

} // namespace parcae
