#pragma once

// What the micro-batches of a step add to the buffers (running statistics) of one stage's layers: gathered among the
// replicas of the stage, added at the commit in the order of micro-batch ids (HOW_IT_WORKS.md, "A step, and when it
// counts").

#include "gpu/dataplane/communicator.hpp"
#include "gpu/dataplane/reduction.hpp"
#include "gpu/layers/model.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace parcae {

/// Single-threaded. After an exception of gather() the communicator must be aborted before this is destroyed.
class batch_statistics {
public:
  /// For layers [first, last) and all micro-batches of a step.
  batch_statistics(const model_description& model, std::uint32_t first, std::uint32_t last, std::uint32_t micro_batches,
                   const tensor_device& on);

  /// To be filled by the layer's forward pass; undefined if the layer has no buffers.
  at::Tensor row(std::uint32_t layer, std::uint32_t micro_batch);

  /// Exchanges rows with the other replicas. group[d] is pipeline d's participant number, owned[d] its micro-batches;
  /// `self` is this one's d. Every replica of the stage calls it, at the same point of a step.
  void gather(communicator& comm, std::span<const std::uint32_t> group, std::span<const replica_range> owned,
              std::uint32_t self, std::uint64_t step, std::chrono::milliseconds limit);

  /// The layer's buffers after all micro-batches of the step.
  void add_to(at::Tensor& buffers, std::uint32_t layer) const;

private:
  std::uint32_t first_;
  tensor_device on_;
  std::vector<std::int64_t> offset_;  ///< per layer, and the end: columns of values_
  at::Tensor values_;                 ///< [micro_batches, values of all layers]; undefined if there are none
  std::vector<at::Tensor> variances_; ///< per layer, which of its values are; undefined if it has none
};

} // namespace parcae
