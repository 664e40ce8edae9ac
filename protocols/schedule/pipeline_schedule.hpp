#pragma once

// 1F1B (PipeDream-Flush; Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters"): after
// a warm-up of forwards each stage alternates one forward and one backward, so that it holds at most `depth - stage`
// micro-batches' activations. Backwards come in micro-batch order, which the order of gradient additions relies on.

#include <algorithm>
#include <cstdint>
#include <vector>

namespace parcae {

struct pipeline_operation {
  bool forward = true;
  std::uint32_t position = 0; ///< index among this pipeline's micro-batches

  friend bool operator==(const pipeline_operation&, const pipeline_operation&) = default;
};

/// The operations of one step on one stage, in order.
inline std::vector<pipeline_operation> one_forward_one_backward(std::uint32_t depth, std::uint32_t stage,
                                                                std::uint32_t micro_batches) {
  std::vector<pipeline_operation> operations;
  operations.reserve(2 * micro_batches);
  const auto warm_up = std::min(depth - stage - 1, micro_batches);
  for (std::uint32_t i = 0; i < warm_up; ++i)
    operations.push_back({true, i});
  for (std::uint32_t i = warm_up; i < micro_batches; ++i) {
    operations.push_back({true, i});
    operations.push_back({false, i - warm_up});
  }
  for (std::uint32_t i = micro_batches - warm_up; i < micro_batches; ++i)
    operations.push_back({false, i});
  return operations;
}

} // namespace parcae
