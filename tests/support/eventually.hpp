#pragma once

// Waiting for what has no other sign.

#include <chrono>
#include <thread>

namespace parcae {

/// Whether `condition` became true in time. It is asked twice a millisecond: the processor is for what it waits for.
template <class Condition>
bool eventually(Condition condition, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
  for (const auto end = std::chrono::steady_clock::now() + limit; !condition();) {
    if (std::chrono::steady_clock::now() > end)
      return false;
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  return true;
}

} // namespace parcae
