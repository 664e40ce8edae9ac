#pragma once

// The shards a device holds. Used on the executor's main thread only.

#include "gpu/layers/tensor_device.hpp"
#include "protocols/model/early_stop.hpp"
#include "protocols/model/model_description.hpp"
#include "protocols/values/state.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <future>
#include <map>
#include <vector>

namespace parcae {

/// One layer's state: flat float32 buffers on the slot's device. Each is an allocation of its own, so that a tensor's
/// address modulo the vector width, on which some kernels' bits depend, is the same on every device and in every
/// generation.
struct layer_state {
  at::Tensor parameters;
  std::vector<at::Tensor> moments;
  at::Tensor buffers; ///< undefined if the layer has none
  at::Tensor course;  ///< a validation_course, of the last layer, on the host; undefined unless the job has a patience
  version at;
  /// Valid: a snapshot is being copied from these tensors. Before they are written to it is waited for, which takes no
  /// longer than snapshot_departures does; it throws what the device failed by.
  std::shared_future<void> leaving;

  /// Parameters, then moments, buffers, course: the order on the wire.
  std::vector<at::Tensor> parts() const {
    std::vector<at::Tensor> all{parameters};
    all.insert(all.end(), moments.begin(), moments.end());
    if (buffers.defined())
      all.push_back(buffers);
    if (course.defined())
      all.push_back(course);
    return all;
  }
};

using layer_store = std::map<std::uint32_t, layer_state>;

class layer_room;

/// Buffers for a layer, from `room` where it has them, written to once: the first touch of their pages is no part of
/// the transfer into them.
layer_state allocate_layer(const model_description& model, std::uint32_t layer, const job_specification& job,
                           const tensor_device& on, layer_room& room);

/// Version (0, 0) of a layer of a job's model, drawn from the job's seed, or stored. Throws exported_model_error or
/// weights_error.
layer_state seed_layer(const model_description& model, std::uint32_t layer, const job_specification& job,
                       const tensor_device& on);

/// Of a state that has one.
validation_course course_of(const layer_state& x);
void set_course(layer_state& x, const validation_course& to);

inventory inventory_of(const layer_store& store);

} // namespace parcae
