#pragma once

// std::mutex with clang's thread-safety attributes. What is GUARDED_BY a mutex may be touched only while it is held,
// what NEEDS_LOCK may be called only then; `deploy/lint locks` has clang check that. g++ sees plain std::mutex. The
// analysis takes a lambda for a function of its own, so conditions are waited for in loops.

#include <chrono>
#include <condition_variable>
#include <mutex>

#ifdef __clang__
#define PARCAE_THREAD_SAFETY(x) __attribute__((x))
#else
#define PARCAE_THREAD_SAFETY(x)
#endif
#define GUARDED_BY(x) PARCAE_THREAD_SAFETY(guarded_by(x))
#define NEEDS_LOCK(x) PARCAE_THREAD_SAFETY(requires_capability(x))

namespace parcae {

class PARCAE_THREAD_SAFETY(capability("mutex")) mutex {
  friend class lock;
  std::mutex mutex_;
};

/// Holds a mutex as long as it lives.
class PARCAE_THREAD_SAFETY(scoped_lockable) lock {
public:
  explicit lock(mutex& x) PARCAE_THREAD_SAFETY(acquire_capability(x)) : held_(x.mutex_) {}
  ~lock() PARCAE_THREAD_SAFETY(release_capability()) {}
  lock(const lock&) = delete;
  lock& operator=(const lock&) = delete;

  void give_back() PARCAE_THREAD_SAFETY(release_capability()) { held_.unlock(); }
  void take_again() PARCAE_THREAD_SAFETY(acquire_capability()) { held_.lock(); }

  /// Until it is notified, or for no reason; others may hold the mutex meanwhile.
  void wait(std::condition_variable& x) { x.wait(held_); }
  void wait_until(std::condition_variable& x, std::chrono::steady_clock::time_point end) { x.wait_until(held_, end); }

private:
  std::unique_lock<std::mutex> held_;
};

} // namespace parcae
