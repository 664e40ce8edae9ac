#pragma once

#include "gpu/data/shared_dataset.hpp"
#include "gpu/executor/executor.hpp"
#include "gpu/serving/row_proof.hpp"
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
  /// large data LOADED comes once more, when all of it was read; training does not wait for that. Data of another job
  /// goes, and there is no answer for it any more.
  void begin(load x);
  /// There is no answer for that job any more. Of another job's data nothing is forgotten: FORGET waits for the step in
  /// progress, and the LOAD of the next job does not.
  void forget(const job_id& job);
  /// Of a job that serves, once it was loaded: in which sizes of passes a row has the same bits here. Null: it is not.
  std::shared_ptr<const row_proof> proof_of(const job_id& job);
  /// There will be no answer any more.
  void close();

private:
  /// What one LOAD asked for. The thread that works on it shares it; it is wanted as long as it is held_.
  struct holding {
    job_id job;
    std::stop_source away;                  ///< of copying what URLs name
    std::atomic<bool> stop = false;         ///< reading all of it
    std::shared_ptr<const dataset> data;    ///< none while it is being loaded; with mutex_ held
    std::string whole_digest;               ///< of large data, once all of it was read; with mutex_ held
    std::shared_ptr<const row_proof> proof; ///< of a job that serves, instead of data; with mutex_ held
  };

  void run(const load& x, holding& mine);
  void load_served(const load& x, holding& mine);
  void read_whole(holding& mine);
  void let_go() NEEDS_LOCK(mutex_);

  const executor_options& options_;
  const std::function<void()> killed_;
  mutex mutex_;
  std::shared_ptr<holding> held_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
  std::thread thread_; ///< begun with mutex_ held
};

} // namespace parcae
