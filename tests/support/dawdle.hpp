#pragma once

// PARCAE_TEST_DAWDLE=MILLISECONDS or MILLISECONDS:SEED makes the test's own thread sleep for a random time up to that,
// wherever it is about to do something to what it tests. A test that holds only while its thread is quick fails so at
// once, and not when a machine happens to be busy. Not set: nothing happens.

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <random>
#include <string>
#include <thread>

namespace parcae {

class dawdler {
public:
  /// Of this process; the seed is printed when it is first used.
  static dawdler& instance() {
    static dawdler x;
    return x;
  }

  void sleep() {
    if (most_ms_ > 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(drawn(most_ms_)));
  }

  /// One time of `often`.
  void sleep_once_in(std::uint64_t often) {
    if (most_ms_ > 0 && drawn(often - 1) == 0)
      sleep();
  }

private:
  dawdler() {
    const char* set = std::getenv("PARCAE_TEST_DAWDLE");
    if (!set)
      return;
    const std::string text = set;
    const auto colon = text.find(':');
    most_ms_ = std::stoull(text.substr(0, colon));
    const std::uint64_t seed = colon == text.npos ? std::random_device{}() : std::stoull(text.substr(colon + 1));
    random_.seed(seed);
    std::cout << "PARCAE_TEST_DAWDLE=" << most_ms_ << ":" << seed << std::endl;
  }

  /// From 0 to `most`.
  std::uint64_t drawn(std::uint64_t most) {
    const std::lock_guard lock(mutex_); // some tests ask from several threads
    return std::uniform_int_distribution<std::uint64_t>(0, most)(random_);
  }

  std::uint64_t most_ms_ = 0;
  std::mutex mutex_;
  std::mt19937_64 random_; ///< guarded by mutex_
};

inline void dawdle() {
  dawdler::instance().sleep();
}

} // namespace parcae
