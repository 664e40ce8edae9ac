#pragma once

// 1F1B (PipeDream-Flush; Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters"): after
// a warm-up of forwards each stage alternates one forward and one backward, so that it holds at most `depth - stage`
// micro-batches' activations. Backwards come in micro-batch order, which the order of gradient additions relies on.
// What stages have for each other follows from it, so that all know the order of messages without a word about it.

#include <algorithm>
#include <cstdint>
#include <optional>
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

/// What a stage has for a neighbour, and the neighbour for it, at one time. Both have the same meetings in the same
/// order, so that neither goes on to another one while its neighbour waits in this.
struct pipeline_meeting {
  bool ahead = false;                    ///< with the stage that comes after this one, else with the one before
  std::optional<std::uint32_t> output{}; ///< of the micro-batch at this position
  std::optional<std::uint32_t> gradient{};

  friend bool operator==(const pipeline_meeting&, const pipeline_meeting&) = default;
};

/// The meetings of a stage between two of its operations, one after the other: what one has made goes, what the next
/// one needs comes. Both at once where its neighbour is between two such operations, too. Null: the step begins, or
/// ends.
inline std::vector<pipeline_meeting> meetings_between(const pipeline_operation* made, const pipeline_operation* needs,
                                                      std::uint32_t depth, std::uint32_t stage) {
  std::vector<pipeline_meeting> result;
  // At both ends: else the output is what the gradient follows from.
  const auto alternate = [&](bool ahead) {
    const auto &output = made->forward ? *made : *needs, &gradient = made->forward ? *needs : *made;
    return output.position == gradient.position + depth - stage - (ahead ? 1 : 0);
  };
  const auto meet = [&](bool ahead, const pipeline_operation& x) {
    if (ahead ? stage + 1 == depth : stage == 0)
      return;
    if (result.empty() || result.back().ahead != ahead || !alternate(ahead))
      result.push_back({.ahead = ahead});
    (x.forward ? result.back().output : result.back().gradient) = x.position;
  };
  if (made)
    meet(made->forward, *made);
  if (needs)
    meet(!needs->forward, *needs);
  return result;
}

} // namespace parcae
