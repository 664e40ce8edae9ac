#pragma once

// SpotServe's published accounting (ASPLOS'24, sections 3.1 and 3.2; artifact: StrategyOptimizer): how long a static
// batch takes, and which configuration it has on a number of GPUs. Kept as published, to be compared with. Pure.

#include "planner/serving/serving_profile.hpp"

#include <cstdint>
#include <optional>

namespace parcae::serving {

/// How a batch goes through a pipeline.
struct batch_form {
  std::uint32_t degree = 1;       ///< of tensor parallelism
  std::uint32_t depth = 1;        ///< stages
  std::uint32_t batch = 1;        ///< requests
  std::uint32_t prompt_parts = 1; ///< micro-batches in which prompts are computed
  std::uint32_t token_parts = 1;  ///< and tokens
};

/// Milliseconds of a static batch.
struct batch_cost {
  double prompt_ms = 0;
  double token_ms = 0; ///< of each new token
  double total_ms = 0;
};

/// The batch and its parts have to be powers of two, the batch at most profile.max_batch() and no less than either.
batch_cost spotserve_cost(const serving_profile& profile, const batch_form& form, std::uint32_t new_tokens);

struct spotserve_options {
  std::uint32_t least_gpus = 1; ///< of a pipeline, as the model fits no fewer
  std::uint32_t max_batch = 4;
  double asked_per_s = 0; ///< requests
  std::uint32_t new_tokens = 128;
};

struct spotserve_choice {
  std::uint32_t width = 0; ///< pipelines
  batch_form form;
  double total_ms = 0; ///< of a batch
  double requests_per_s = 0;
};

/// The shortest batch among those that do as many requests a second as are asked for; if none does, the most of them.
/// None: nothing fits.
std::optional<spotserve_choice> spotserve_choose(const serving_profile& profile, std::uint32_t gpus,
                                                 const spotserve_options& options);

} // namespace parcae::serving
