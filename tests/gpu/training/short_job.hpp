#pragma once

#include "tests/support/executor_cluster.hpp"

#include <string>

namespace parcae {

/// Of each kind of model, small enough for fake devices.
inline job_specification short_job(const std::string& kind) {
  auto job = small_job();
  job.steps = 6;
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
    job.data = {.kind = "synthetic", .samples = 100, .mean = {0.4, 0.5, 0.6}, .deviation = {0.2, 0.25, 0.3}};
  return job;
}

} // namespace parcae
