#pragma once

#include "gpu/executor/executor.hpp"
#include "gpu/model/shared_dataset.hpp"
#include "protocols/base/locks.hpp"

#include <functional>
#include <memory>
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

  /// Answers LOADED, or FAILED, at once if the data is there, and once if asked again while it is being loaded.
  void begin(load x);
  void forget();
  /// There will be no answer any more.
  void close();

private:
  void run(const load& x);

  const executor_options& options_;
  const std::function<void()> killed_;
  mutex mutex_;
  std::shared_ptr<const dataset> data_ GUARDED_BY(mutex_);
  bool wanted_ GUARDED_BY(mutex_) = false;
  bool is_loading_ GUARDED_BY(mutex_) = false;
  bool closed_ GUARDED_BY(mutex_) = false;
  std::thread thread_; ///< begun and joined with mutex_ held, but in the destructor
};

} // namespace parcae
