#pragma once

// What the host must know of what a device computed.

#include "gpu/layers/tensor_device.hpp"

#include <cstddef>
#include <functional>
#include <memory>

namespace parcae {

/// Brings small results through pinned memory that is kept: a copy to other memory would wait without end for a GPU
/// that is slow, or stuck. One thread at a time.
class host_results {
public:
  explicit host_results(const tensor_device& on) : on_(on) {}
  /// Waits for what was still on its way.
  ~host_results();
  host_results(const host_results&) = delete;

  /// The values of a contiguous tensor there, on the host, once the device has done all that it was given. `look` is
  /// called every 20 ms until then, and may throw. Throws device_error.
  at::Tensor bring(const at::Tensor& x, const std::function<void()>& look);

private:
  void wait(const std::function<void()>& look);

  const tensor_device on_;
  device_memory pinned_;
  std::size_t bytes_ = 0;         ///< of pinned_
  std::shared_ptr<event> copied_; ///< null: nothing is on its way into it
};

} // namespace parcae
