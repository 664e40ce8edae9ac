#pragma once

// The shards a device holds. Used on the executor's main thread only.

#include "gpu/model/model_description.hpp"
#include "protocols/values/state.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

namespace parcae {

/// One layer's state: flat float32 buffers. Each is an allocation of its own, so that a tensor's address modulo the
/// vector width, on which some kernels' bits depend, is the same on every device and in every generation.
struct layer_state {
  at::Tensor parameters;
  std::vector<at::Tensor> moments;
  at::Tensor buffers; ///< undefined if the layer has none
  version at;

  /// Parameters, then moments, then buffers: the order on the wire.
  std::vector<at::Tensor> parts() const {
    std::vector<at::Tensor> all{parameters};
    all.insert(all.end(), moments.begin(), moments.end());
    if (buffers.defined())
      all.push_back(buffers);
    return all;
  }
};

using layer_store = std::map<std::uint32_t, layer_state>;

/// Buffers for a layer, written to once: the first touch of their pages is no part of the transfer into them.
layer_state allocate_layer(const layer_description& layer, std::uint32_t moments);

/// Version (0, 0) of a layer of a job's model, drawn from the job's seed, or an exported model's weights. Throws
/// exported_model_error.
layer_state seed_layer(const model_description& model, std::uint32_t layer, const job_specification& job);

inventory inventory_of(const layer_store& store);

} // namespace parcae
