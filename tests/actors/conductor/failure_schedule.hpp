#pragma once

// A cluster of real executors to which things happen at exact moments, and what must come of it.

#include "tests/support/executor_cluster.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace parcae {

inline const std::string& expected_digest() {
  static const std::string digest = undisturbed_digest(small_job());
  return digest;
}

/// Does `action` the first time the phase is reached at this step (and index, if given).
inline fault_plan once(const std::string& phase, std::uint64_t step, fault_action action, std::uint32_t index = 0) {
  auto done = std::make_shared<std::atomic<bool>>(false);
  return [=](const fault_point& at) {
    if (at.phase != phase || at.step != step || (index != 0 && at.index != index) || done->exchange(true))
      return fault_action::none;
    return action;
  };
}

/// Steps of 20 ms at least: on a quiet machine the job would be over before what is to happen to it does.
inline fault_action at_a_pace(const fault_point& at) {
  if (std::string(at.phase) == "exchange_send")
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return fault_action::none;
}

/// A moment that one executor reaches and others wait for; waiting is bounded.
class shared_moment {
public:
  void reach() {
    {
      const std::lock_guard lock(mutex_);
      reached_ = true;
    }
    changed_.notify_all();
  }

  bool reached() {
    const std::lock_guard lock(mutex_);
    return reached_;
  }

  /// On an executor's thread: while the test's own waits, ranks do not go on.
  void wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20), [this] { return reached_; }))
        << "what was waited for did not come: the test shows something else";
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
};

/// Reaches `here` when the phase is reached at this step. Between its apply and this moment a rank does nothing.
inline fault_plan reaching(const std::string& phase, std::uint64_t step, shared_moment& here) {
  return [phase, step, &here](const fault_point& at) {
    if (at.phase == phase && at.step == step)
      here.reach();
    return fault_action::none;
  };
}

/// Where the phase is reached at this step (and index, if given): waits for all of `moments`, then does `action`.
inline fault_plan after(const std::vector<shared_moment*>& moments, fault_action action, const std::string& phase,
                        std::uint64_t step, std::uint32_t index = 0) {
  return [=](const fault_point& at) {
    if (at.phase != phase || at.step != step || (index != 0 && at.index != index))
      return fault_action::none;
    for (auto* x : moments)
      x->wait();
    return action;
  };
}

class failure_schedule : public ::testing::Test {
protected:
  /// What the conductor wrote, where that was not what was expected.
  void TearDown() override {
    if (HasFailure() && cluster_)
      for (const auto& line : cluster_->log())
        std::cerr << "  " << line << '\n';
  }

  /// A cluster with one keeper whose planner gives the shapes in turn, the last one for ever.
  void begin(std::vector<std::pair<std::uint32_t, std::uint32_t>> shapes, job_specification job = small_job(),
             fault_plan keeper_faults = {}, const conductor_options& options = {}) {
    job_ = job;
    cluster_ = std::make_unique<executor_cluster>(job, options);
    cluster_->lead = milliseconds(20);
    cluster_->planner = [this, shapes, next = std::size_t{0}](std::uint32_t slots, const auto&) mutable {
      const auto [width, depth] = shapes[std::min(next, shapes.size() - 1)];
      if (width * depth > slots)
        return configuration{0, 0, {}, 0, "not enough slots for the test's shape"};
      ++next;
      return shape(job_, width, depth);
    };
    cluster_->add_keeper("keeper", std::move(keeper_faults));
  }

  void add_workers(const std::vector<std::string>& names) { cluster_->add_workers(names); }

  void kill(const std::vector<std::string>& names) { cluster_->kill(names); }

  /// Is called each time that a rank is told so.
  template <class Command>
  void on_told(const std::function<void()>& act) {
    cluster_->on_effect = [act](const effect& x) {
      if (const auto* t = std::get_if<tell>(&x); t && std::holds_alternative<Command>(*t->what))
        act();
      return true;
    };
  }

  /// In the journal or the log.
  bool decided(const std::string& how) const {
    return std::ranges::any_of(cluster_->log(), [&](const auto& line) { return line.find(how) != std::string::npos; });
  }

  void expect_identical() {
    ASSERT_TRUE(cluster_->run_until_ended()) << to_string(cluster_->view().now) << " " << cluster_->log().back();
    EXPECT_EQ(cluster_->final_digest(), expected_digest());
  }

  job_specification job_;
  std::atomic<std::uint64_t> gate_ = 0; ///< a step, where a test's fault plans need one that changes
  std::unique_ptr<executor_cluster> cluster_;
};

} // namespace parcae
