#pragma once

// Clusters whose workers compute on fake devices and have NCCL's double.

#include "gpu/dataplane/nccl_communicator.hpp"
#include "tests/gpu/training/short_job.hpp"
#include "tests/support/executor_cluster.hpp"
#include "tests/support/fake_device.hpp"
#include "tests/support/nccl_double.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace parcae {

inline device* one_for_each(std::uint64_t n) {
  know_fake_devices();
  return &fake_device(static_cast<std::uint32_t>(n % fake_devices));
}

inline job_specification small_batches(const std::string& kind) {
  auto job = short_job(kind);
  job.global_batch = 8;
  job.virtual_replicas = 4;
  return job;
}

/// Outlives the cluster.
struct nccl_of_cluster {
  explicit nccl_of_cluster(std::uint64_t seed) : world(seed) {}

  worker_kind workers(std::uint32_t slots = 2) {
    return {.on = one_for_each, .nccl = [this](std::uint64_t n) { return access(n); }, .slots = slots};
  }

  nccl_access access(std::uint64_t n) {
    const auto stuck = [this, n](const std::string& why) { on_stuck(n, why); };
    auto& on = *one_for_each(n);
    auto slot = std::make_shared<nccl_slot>(on, world.library(static_cast<std::uint32_t>(n), on), stuck);
    return {.slot = std::move(slot), .by_itself = true};
  }

  rig::nccl_double world;
  /// The n-th slot's process has to end, and why.
  std::function<void(std::uint64_t n, const std::string& why)> on_stuck = [](std::uint64_t, const std::string& why) {
    ADD_FAILURE() << why;
  };
};

} // namespace parcae
