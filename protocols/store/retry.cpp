#include "protocols/store/retry.hpp"

#include "protocols/base/back_off.hpp"

#include <condition_variable>
#include <mutex>
#include <random>

namespace parcae {

http_limits limits_of(const store_pace& pace, std::uint64_t bytes) {
  http_limits result{pace.connect, pace.idle, pace.whole, {}};
  result.whole += std::chrono::milliseconds(bytes * 1000 / pace.slowest_per_s);
  result.body_bytes = 4 << 20;
  return result;
}

std::chrono::milliseconds pause_after(unsigned attempt, const store_pace& pace, std::uint64_t random) {
  const auto most = back_off{pace.first_pause, pace.longest_pause}.after(attempt);
  return std::chrono::milliseconds(random % (static_cast<std::uint64_t>(most.count()) + 1));
}

bool pause(std::chrono::milliseconds time, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock held(mutex);
  never.wait_for(held, stop, time, [] { return false; });
  return !stop.stop_requested();
}

bool may_pass(unsigned status) {
  return status == 408 || status == 429 || status / 100 == 5;
}

std::uint64_t random_number() {
  thread_local std::mt19937_64 source{std::random_device{}() | std::uint64_t{std::random_device{}()} << 32};
  return source();
}

} // namespace parcae
