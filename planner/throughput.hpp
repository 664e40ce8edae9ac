#pragma once

// The `throughput` policy: (D, P) with the most samples per second by a simple analytic model of measured layer times.
// It plans for one core per slot, whatever this machine has.

#include "protocols/job_specification.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace parcae {

/// What the model needs to know of one layer.
struct layer_cost {
  double forward_ms = 0;   ///< one micro-batch
  double backward_ms = 0;  ///< one micro-batch
  double optimizer_ms = 0; ///< one step
  std::uint64_t gradient_bytes = 0;
  std::uint64_t output_bytes = 0; ///< one micro-batch's output, sent to the next stage
  std::uint64_t state_bytes = 0;      ///< parameters, moments, buffers
  std::uint64_t activation_bytes = 0; ///< kept from a micro-batch's forward to its backward pass, output included
};

struct link_cost {
  double latency_ms = 0.05;
  double bytes_per_ms = 1e6;
};

/// Predicted milliseconds of one step with these stage boundaries: 1F1B over the slowest stage and the pipeline's fill,
/// with m = ⌈V/D⌉·M/V micro-batches on the busiest pipeline; then gradient all-reduce of the largest stage, and the
/// apply.
double step_ms(const job_specification& job, std::span<const layer_cost> layers,
               std::span<const std::uint32_t> first_layer, std::uint32_t width, const link_cost& link);

struct configuration {
  std::uint32_t width = 0; ///< 0: wait, nothing fits
  std::uint32_t depth = 0;
  std::vector<std::uint32_t> first_layer;
  double samples_per_s = 0;
  std::string reason; ///< for people; names the runner-up

  friend bool operator==(const configuration&, const configuration&) = default;
};

/// Predicted for every (D, P) allowed by the job that `slots` slots can hold. Those with a stage that does not fit into
/// `slot_bytes` of memory (0: unknown, all fit; see planner/memory.hpp) have width 0, and the reason says why.
std::vector<configuration> configurations(const job_specification& job, std::span<const layer_cost> layers,
                                          const link_cost& link, std::uint32_t slots, std::uint64_t slot_bytes = 0);

/// The best of them; among equals (within 1e-9) the one with fewer slots, then the shallower.
configuration best_configuration(const job_specification& job, std::span<const layer_cost> layers,
                                 const link_cost& link, std::uint32_t slots, std::uint64_t slot_bytes = 0);

} // namespace parcae
