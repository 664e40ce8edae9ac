#pragma once

// How long a training step takes: the executors' own 1F1B schedule over measured layer times, the exchange of
// activations, the all-reduce, the commit exchange and the apply. One model for the planner, the manager and
// `simulate`; it plans for one core per slot, whatever this machine has. Pure.

#include "protocols/job_specification.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace parcae {

/// What the model needs to know of one layer.
struct layer_cost {
  double forward_ms = 0;   ///< one micro-batch; the first layer's has loading in it, the last one's the loss
  double backward_ms = 0;  ///< one micro-batch, with its share in adding up gradients
  double optimizer_ms = 0; ///< one step: norm, clipping, apply
  std::uint64_t gradient_bytes = 0;
  std::uint64_t output_bytes = 0;     ///< one micro-batch's output, sent to the next stage
  std::uint64_t state_bytes = 0;      ///< parameters, moments, buffers
  std::uint64_t activation_bytes = 0; ///< kept from a micro-batch's forward to its backward pass, output included
  std::uint64_t tied_bytes = 0;       ///< gradient of a tensor that another layer has too; sent there if in another stage
};

/// What the model needs to know of the machines and what is between them.
struct platform_cost {
  double latency_ms = 0.05;      ///< of a message
  double bytes_per_ms = 1e6;     ///< of one slot's link, in each direction at the same time
  double reduce_ms_per_byte = 0; ///< processor time for a byte that an all-reduce sends: sending, receiving, adding
  double message_ms = 0;         ///< processor time to send or to receive a message
  double step_ms = 0;            ///< processor time once per step and rank that is no layer's
  /// [k − 1]: how much longer everything takes to compute while k slots of this machine compute side by side. More slots:
  /// as the last. Empty: every slot has a machine of its own.
  std::vector<double> crowding = {};

  double wire_ms(double bytes) const { return bytes / bytes_per_ms; }
  double crowding_of(std::uint32_t slots) const;
};

/// Micro-batches of the busiest pipeline: ⌈V/D⌉·M/V.
std::uint32_t busiest_micro_batches(const job_specification& job, std::uint32_t width);

/// Sums of the busiest pipeline that its all-reduce starts from, each as large as the gradients.
std::uint32_t partial_sums(const job_specification& job, std::uint32_t width);

/// Predicted milliseconds from one commit to the next with these stage boundaries (P + 1 of them). Exact for what it is
/// told, under the assumptions that ranks differ in nothing but their stage and that a micro-batch is like the other.
double step_ms(const job_specification& job, std::span<const layer_cost> layers,
               std::span<const std::uint32_t> first_layer, std::uint32_t width, const platform_cost& platform);

} // namespace parcae
