#pragma once

#include "tests/support/executor_cluster.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>

namespace parcae {

/// Of each kind of model; gpt if it is no kind.
inline job_specification small_job_of(const std::string& kind) {
  auto job = small_job();
  job.model.layers = 3;
  if (kind == "mlp")
    job.model = {"mlp", 3, 24, 1, 16, 256, 0.2, false};
  if (kind == "bert")
    job.model = {"bert", 3, 24, 2, 24, 257, 0.1, true, 256};
  if (kind == "resnet")
    job.model = {.kind = "resnet", .layers = 8, .width = 4, .image = 16};
  if (kind == "vgg")
    job.model = {.kind = "vgg", .layers = 11, .width = 2, .dropout = 0.3};
  if (kind == "resnet" || kind == "vgg")
    job.data = {.kind = "synthetic", .samples = 100};
  return job;
}

/// Small enough for fake devices.
inline job_specification short_job(const std::string& kind) {
  auto job = small_job_of(kind);
  job.steps = 6;
  if (job.model.of_images()) {
    job.data.mean = {0.4, 0.5, 0.6};
    job.data.deviation = {0.2, 0.25, 0.3};
  }
  return job;
}

/// Of a step, at which instances die.
inline constexpr std::array points_of_step{"forward",   "backward", "reduced",   "exchange_send",
                                           "exchanged", "apply",    "committed", "snapshot"};

/// A worker dies at each of these, another one and a keeper are left: the bits are those of an undisturbed job.
inline void expect_kills_change_no_bit(const job_specification& job, const worker_kind& workers = {}) {
  const auto expected = undisturbed_digest(job, workers);
  for (const std::string_view phase : points_of_step) {
    executor_cluster cluster(job);
    cluster.workers = workers;
    cluster.planner = [&](std::uint32_t slots, const auto&) {
      return slots >= 4 ? shape(job, 2, 2) : slots >= 2 ? shape(job, 1, 2) : configuration{0, 0, {}, 0, "too few"};
    };
    cluster.add_keeper("keeper");
    cluster.add_workers({"a", "b", "c"});
    cluster.add_worker("d", [phase](const fault_point& x) {
      return x.step == 4 && x.phase == phase ? fault_action::kill : fault_action::none;
    });
    ASSERT_TRUE(cluster.run_until_ended()) << phase << ": " << cluster.log().back();
    EXPECT_EQ(cluster.final_digest(), expected) << phase;
  }
}

} // namespace parcae
