#pragma once

// The gradients of a stage's layers while a step sums them up.

#include "gpu/dataplane/reduction.hpp"
#include "gpu/layers/tensor_device.hpp"
#include "protocols/model/model_description.hpp"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace parcae {

/// Per layer, the sums over virtual replicas, merged as siblings of the fixed tree. Once all replicas of this pipeline
/// were added, a layer has one flat buffer per maximal sub-tree; after their reduction the first is the gradient.
/// In bfloat16 each node of the tree is rounded, the sum of each virtual replica and each join, and nothing else: so
/// what is rounded does not depend on where nodes are. Executor's main thread.
class gradient_sums {
public:
  /// Layers [first, last) of the model, which outlives this object.
  gradient_sums(const model_description& model, std::uint32_t first, std::uint32_t last, std::uint32_t virtual_replicas,
                replica_range owned, sum_type type, const tensor_device& on);

  /// Begins another step. Buffers are kept for it, but for gradients that somebody else still has.
  void clear();

  /// Of a layer's size, to sum up in: those that are kept for another step, for another generation's object; and of
  /// such ones as many as layers of this one may need, while the rest goes.
  std::vector<at::Tensor> take_buffers();
  void use(std::vector<at::Tensor> buffers);

  /// The gradient of a micro-batch, as autograd left it: one tensor per parameter of the layer: float32, of
  /// matrices bfloat16 if those are. Micro-batches of a
  /// virtual replica are added in the order they come.
  void add(std::uint32_t layer, std::vector<at::Tensor> pieces);

  /// All micro-batches of the virtual replica at hand were added; the next one begins.
  void end_replica(std::uint32_t layer);

  /// A layer's sub-tree sums, in order, in the device's memory; all owned replicas were added.
  std::vector<std::span<std::byte>> spans(std::uint32_t layer);

  /// These were reduced: afterwards gradients are there.
  void end_reduction();

  /// A layer's gradient, in float32.
  const at::Tensor& gradient(std::uint32_t layer) const;
  /// The sum that it is, before anything else was added to it.
  const at::Tensor& sum_of_tree(std::uint32_t layer) const;

private:
  /// As autograd left it, or in one flat buffer: float32, or rounded.
  struct sum {
    std::vector<at::Tensor> pieces; ///< empty if flat
    at::Tensor flat;
  };

  struct layer_sums {
    std::vector<at::Tensor> free; ///< flat buffers to reuse
    sum replica;                  ///< the virtual replica at hand, so far
    subtree_sums<sum> sums;
    at::Tensor gradient; ///< if sums are rounded
  };

  at::Tensor take_buffer(std::uint32_t layer, at::ScalarType type);
  void round(std::uint32_t layer, sum& x);
  void flatten(std::uint32_t layer, sum& x);
  void merge(std::uint32_t layer, sum& left, sum& right);

  const model_description& model_;
  const std::uint32_t first_;
  const std::uint32_t virtual_replicas_;
  const replica_range owned_;
  const bool rounded_;
  const tensor_device on_;
  std::vector<layer_sums> layers_;
};

} // namespace parcae
