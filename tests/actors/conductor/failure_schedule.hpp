#pragma once

// A cluster of real executors to which things happen at exact moments, and what must come of it.

#include "tests/support/executor_cluster.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
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

class failure_schedule : public ::testing::Test {
protected:
  /// A cluster with one keeper whose planner gives the shapes in turn, the last one for ever.
  void begin(std::vector<std::pair<std::uint32_t, std::uint32_t>> shapes, job_specification job = small_job(),
             fault_plan keeper_faults = {}) {
    job_ = job;
    cluster_ = std::make_unique<executor_cluster>(job);
    cluster_->planner = [this, shapes, next = std::size_t{0}](std::uint32_t slots, const auto&) mutable {
      const auto [width, depth] = shapes[std::min(next, shapes.size() - 1)];
      if (width * depth > slots)
        return configuration{0, 0, {}, 0, "not enough slots for the test's shape"};
      ++next;
      return shape(job_, width, depth);
    };
    cluster_->add_keeper("keeper", std::move(keeper_faults));
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
