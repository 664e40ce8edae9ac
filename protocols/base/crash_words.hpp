#pragma once

// How a process that crashed says so: a reader can tell it from a failure that the process survived.

#include <string_view>

namespace parcae {

inline constexpr std::string_view ended_by_signal = "ended by SIG"; ///< the signal's name follows: "FPE"
inline constexpr std::string_view uncaught_exception = "uncaught exception";

constexpr bool is_crash(std::string_view what) {
  return what.starts_with(ended_by_signal) || what.starts_with(uncaught_exception);
}

} // namespace parcae
