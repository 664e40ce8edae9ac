#pragma once

// How GPUs are, as NVIDIA's management library (NVML, libnvidia-ml.so.1, which comes with the driver) says it. It is
// opened as the driver is; where it is not there, that is said. Torch-free.

#include "protocols/values/gpu_state.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace parcae {

struct watched_gpu {
  std::string place;  ///< as in gpu_state
  std::string unique; ///< as device_facts has it
};

/// Looks after GPUs on a thread of its own. Owned by the node; any thread.
class gpu_health {
public:
  /// `lost` is called on that thread, at most once, with a line, when a GPU is of no use any more: its memory had an
  /// error that could not be corrected, or the driver cannot reach it, or has to reset it. The driver reports most of
  /// that at once; the rest is seen with the next look.
  gpu_health(std::vector<watched_gpu> gpus, std::function<void(const std::string&)> lost,
             std::chrono::milliseconds look_each = std::chrono::milliseconds(1'000));
  /// Waits a second for the thread. NVML may never return for a GPU that is gone: then the thread is left alone, and
  /// calls `lost` no more.
  ~gpu_health();
  gpu_health(const gpu_health&) = delete;

  /// Of each GPU, in the order in which they were given, as they were at the last look; one for all if nothing can be
  /// known. Does not wait for NVML.
  std::vector<gpu_state> now() const;

private:
  struct shared;
  const std::shared_ptr<shared> shared_;
};

} // namespace parcae
