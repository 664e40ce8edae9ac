#pragma once

// The samples of the next micro-batches, read while a step runs.

#include "gpu/data/samples.hpp"
#include "gpu/layers/model.hpp"
#include "gpu/layers/tensor_device.hpp"
#include "gpu/training/tensor_account.hpp"
#include "protocols/base/locks.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <thread>

namespace parcae {

/// One rank's, in one generation: micro-batches [first, first + count) of each step, in that order, on a thread of its
/// own, which is ahead by two steps or 32 MiB, whatever is less, but by two micro-batches at least. Used by the
/// training thread alone.
class sample_reader {
public:
  struct plan {
    const job_specification* job;   ///< outlives this object
    const model_description* model; ///< outlives this object
    std::shared_ptr<const dataset> data;
    tensor_device on; ///< where samples go
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    bool inputs = true; ///< else only targets: inputs are filled with nothing meaningful
  };

  /// What is allocated counts as the calling thread's.
  explicit sample_reader(plan x);
  /// Ends the thread, after the sample that it is reading.
  ~sample_reader();

  /// Once: the first step.
  void begin(std::uint64_t step);

  /// Those of the next micro-batch, which is waited for unless `aborted` is set: then there are none. Throws what
  /// reading threw: data_error, sample_error; std::runtime_error if the device had no memory for them.
  sample_tensors take(const std::atomic<bool>& aborted);

  /// Time spent waiting in take(), but for the first micro-batch, since the last call; and for which file longest.
  struct waits {
    double ms = 0;
    std::string longest_for; ///< empty: it did not wait
  };
  waits take_waits();

private:
  struct batch {
    sample_tensors samples;
    std::string slowest;      ///< the file of the sample that took longest to read
    std::exception_ptr error; ///< what was thrown instead
  };

  void run(std::uint64_t step);
  batch read(std::uint64_t step, std::uint32_t micro_batch);

  const plan what_;
  const std::size_t max_ahead_; ///< micro-batches
  sample_source samples_;       ///< the thread's
  const std::shared_ptr<tensor_account> account_;
  bool is_first_ = true;
  waits waits_;
  double longest_ms_ = 0; ///< of waits_

  mutex mutex_;
  std::condition_variable changed_;
  std::deque<batch> ready_ GUARDED_BY(mutex_);
  std::atomic<bool> closed_ = false; ///< set with mutex_ held
  std::thread thread_;
};

} // namespace parcae
