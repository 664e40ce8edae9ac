#pragma once

// The end of executors. What one computes cannot be interrupted between two layers: an operator of a user's model may
// take hours. Then the process ends, as nothing else would free its cores for the next job.

#include "gpu/executor/executor.hpp"
#include "protocols/base/locks.hpp"

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

namespace parcae {

/// Destroys executors on threads of its own, and gives what they took of memory back to the system. Its destructor
/// waits for them.
class retirement {
public:
  /// `stuck` is told, in one line, of each that takes longer; it should end the process.
  retirement(std::chrono::milliseconds limit, std::function<void(const std::string&)> stuck);
  ~retirement();
  retirement(const retirement&) = delete;
  retirement& operator=(const retirement&) = delete;

  /// Returns at once. Any thread.
  void take(std::unique_ptr<executor> x);

private:
  const std::chrono::milliseconds limit_;
  const std::function<void(const std::string&)> stuck_;
  mutex mutex_;
  std::vector<std::future<void>> all_ GUARDED_BY(mutex_); ///< a future of std::async waits in its destructor
};

/// A worker's: FORGET retires it, with whatever it still computes, and the next command makes another.
std::unique_ptr<executor> make_executor_of_one_job(std::function<std::unique_ptr<executor>()> make,
                                                   retirement& retired);

} // namespace parcae
