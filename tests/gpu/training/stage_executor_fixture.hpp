#pragma once

// Single executors, driven by hand.

#include "gpu/training/stage_executor.hpp"
#include "tests/gpu/training/executor_reports.hpp"
#include "tests/support/executor_cluster.hpp"

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace parcae::rig {

/// A place where an executor's thread stops until the test lets it go on.
class gate {
public:
  ~gate() { open(); }

  /// On the executor's thread.
  void pass() {
    std::unique_lock lock(mutex_);
    reached_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, 2 * patience, [this] { return open_; });
  }

  bool wait_until_reached() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [this] { return reached_; });
  }

  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  bool open_ = false;
};

struct worker {
  explicit worker(const std::string& name, std::chrono::microseconds naps = {}, device* on = nullptr,
                  std::uint32_t cores = 1, std::uint64_t device_bytes = 0) :
      port(make_data_port("127.0.0.1")) {
    where = {{name, {1}, 0}, "127.0.0.1", port->port()};
    executor_options options;
    options.self = where.slot;
    options.naps = naps;
    options.cores = cores;
    options.on = on;
    options.device_bytes = device_bytes;
    options.on_spoilt = [this](const std::string& why) {
      std::lock_guard lock(mutex);
      spoilt.push_back(why);
    };
    options.report_to = [this](report x) { said(std::move(x)); };
    options.on_fault_point = [this](const fault_point& x) {
      std::function<void(const fault_point&)> f;
      {
        std::lock_guard lock(mutex);
        f = on_fault_point;
      }
      if (f)
        f(x);
    };
    work = make_stage_executor(std::move(options), *port);
  }

  void at_fault_points(std::function<void(const fault_point&)> f) {
    std::lock_guard lock(mutex);
    on_fault_point = std::move(f);
  }

  std::vector<std::string> reasons_to_end() {
    std::lock_guard lock(mutex);
    return spoilt;
  }

  participant where;
  executor_reports said;
  std::mutex mutex;
  std::vector<std::string> spoilt;                        ///< why its process should end, guarded by mutex
  std::function<void(const fault_point&)> on_fault_point; ///< guarded by mutex
  std::unique_ptr<data_port> port;
  std::unique_ptr<executor> work;
};

class stage_executor_test : public ::testing::Test {
protected:
  stage_executor_test() {
    job = small_job();
    job.model.layers = 2;
    job.steps = 1'000'000;
    job.keeper_every = 1'000'000;
  }

  /// A generation of one rank at `ranks`[0]; the others send.
  prepare plan(std::uint64_t g, const std::vector<const worker*>& participants, std::uint64_t of_job = 1) {
    prepare x{{g}, {0, 77}, {of_job}, job, "", {1, 1, {0, layers()}, {}}, {}};
    for (const auto* p : participants)
      x.target.participants.push_back(p->where);
    return x;
  }

  std::uint32_t layers() const { return job.model.layers + 2; }

  void prepare_and_start(worker& on, const prepare& x, version at = {}) {
    on.work->submit(x);
    on.said.next<prepared>();
    on.work->submit(activate{x.next, at});
    EXPECT_GE(on.said.next<active>().since_ms, 0);
  }

  /// Trains to the end of some step.
  version run_and_stop(worker& on, const prepare& x) {
    prepare_and_start(on, x);
    on.work->submit(stop{x.next});
    return on.said.next<stopped>().at;
  }

  /// Moves all layers from participant 1 to participant 0.
  prepare move_all(prepare x) const {
    for (std::uint32_t layer = 0; layer < layers(); ++layer)
      x.moves.push_back({layer, 1, 0});
    return x;
  }

  job_specification job;
};

} // namespace parcae::rig
