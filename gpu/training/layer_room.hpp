#pragma once

// Buffers kept ready by a worker without a place, for the layers that it may have to take over: pages that are touched
// for the first time while nobody trains are most of what its PREPARE takes. Owned by the executor; any thread.

#include "gpu/layers/tensor_device.hpp"
#include "protocols/base/locks.hpp"
#include "protocols/model/model_description.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace parcae {

class layer_room {
public:
  explicit layer_room(const tensor_device& on) : on_(on) {}

  /// As many buffers shall be there for each of these layers: what is not of that goes, what lacks comes with more().
  void want(const model_description& model, std::span<const std::uint32_t> layers, std::uint32_t buffers);
  /// Makes one of the buffers that lack. False: none does, or there is no memory for it; then nothing is kept ready.
  bool more();
  /// All goes, and nothing is wanted any more.
  void clear();

  /// A buffer of `values` float32 zeros: one that is there, or a new one.
  at::Tensor take(std::int64_t values);

private:
  const tensor_device on_;
  mutex mutex_;
  std::map<std::int64_t, std::size_t> wanted_ GUARDED_BY(mutex_); ///< buffers by size
  std::map<std::int64_t, std::vector<at::Tensor>> there_ GUARDED_BY(mutex_);
};

} // namespace parcae
