#pragma once

#include "gpu/data/shared_dataset.hpp"
#include "gpu/executor/executor.hpp"
#include "protocols/base/locks.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

namespace parcae {

/// Has one device's process load the data of its job, on a thread of its own, and holds it from LOAD to FORGET. Its
/// methods may be called from any thread and do not block.
class data_loader {
public:
  /// `options` must outlive it. `killed` is called on its thread if a fault hook ends the executor.
  data_loader(const executor_options& options, std::function<void()> killed);
  /// Joins its thread.
  ~data_loader();

  /// Answers LOADED, or FAILED, at once if the data is there, and once if asked again while it is being loaded. Of
  /// large data LOADED comes once more, when all of it was read; training does not wait for that.
  void begin(load x);
  void forget();
  /// There will be no answer any more.
  void close();

private:
  void run(const load& x);
  void read_whole(const job_id& job, const dataset& data);

  const executor_options& options_;
  const std::function<void()> killed_;
  mutex mutex_;
  std::shared_ptr<const dataset> data_ GUARDED_BY(mutex_);
  bool wanted_ GUARDED_BY(mutex_) = false;
  bool is_loading_ GUARDED_BY(mutex_) = false;
  bool closed_ GUARDED_BY(mutex_) = false;
  std::string whole_digest_ GUARDED_BY(mutex_); ///< of large data_, once all of it was read
  std::atomic<bool> stop_ = false;              ///< reading all of it; set with mutex_ held
  std::stop_source end_;                        ///< of copying what URLs name
  std::thread thread_;                          ///< begun with mutex_ held
};

} // namespace parcae
