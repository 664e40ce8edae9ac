#pragma once

// Time that passed, on a clock or a processor, and what benches say of many measurements.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <vector>

namespace parcae {
namespace bench { // rooms have functions of these names, too

using steady = std::chrono::steady_clock;

inline double since_ms(steady::time_point begin) {
  return std::chrono::duration<double, std::milli>(steady::now() - begin).count();
}

/// As managers' programs tell it of their machine.
inline std::int64_t monotonic_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(steady::now().time_since_epoch()).count();
}

inline double clock_ms(clockid_t which) {
  timespec x{};
  clock_gettime(which, &x);
  return 1e3 * static_cast<double>(x.tv_sec) + 1e-6 * static_cast<double>(x.tv_nsec);
}

/// Of this process's processor time, all threads.
inline double cpu_ms() {
  return clock_ms(CLOCK_PROCESS_CPUTIME_ID);
}

/// Of the calling thread's processor time: who else uses the machine does not matter.
inline double thread_ms() {
  return clock_ms(CLOCK_THREAD_CPUTIME_ID);
}

/// q in [0, 1]; NaN if there is none.
inline double percentile(std::vector<double> x, double q) {
  if (x.empty())
    return std::nan("");
  std::ranges::sort(x);
  return x[std::min(x.size() - 1, static_cast<std::size_t>(q * static_cast<double>(x.size())))];
}

/// Of an even number the mean of the two in the middle; NaN if there is none.
inline double median(std::vector<double> x) {
  std::ranges::sort(x);
  const auto n = x.size();
  return n == 0 ? std::nan("") : (x[(n - 1) / 2] + x[n / 2]) / 2;
}

} // namespace bench

using namespace bench;

} // namespace parcae
