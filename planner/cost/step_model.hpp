#pragma once

// How long a training step takes: the executors' own 1F1B schedule over measured layer times, the exchange of
// activations, the all-reduce, the commit exchange and the apply. One model for the planner, the manager and
// `simulate`. Slots have cores of their own, unless it is told that they share a machine's. Pure.

#include "protocols/schedule/replica_tree.hpp"
#include "protocols/values/costs.hpp"
#include "protocols/values/job_specification.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace parcae {

/// What the model needs to know of the machines and what is between them.
struct platform_cost {
  double latency_ms = 0.05;      ///< of a message
  double bytes_per_ms = 1e6;     ///< of one slot's link, in each direction at the same time
  double reduce_ms_per_byte = 0; ///< processor time for a byte that an all-reduce sends: sending, receiving, adding
  double message_ms = 0;         ///< processor time to send or to receive a message, and for each byte besides:
  double step_ms = 0;            ///< processor time once per step and rank that is no layer's
  /// [k − 1]: how much longer everything takes to compute while k slots of this machine compute side by side. More
  /// slots: as the last. Empty: every slot has a machine of its own.
  std::vector<double> crowding = {};
  double message_ms_per_byte = 0;  ///< not of an all-reduce
  std::uint32_t machine_slots = 0; ///< where machines are known: of that with most slots for its cores
  double machine_cores = 0;        ///< its cores, counted in slots that can compute at once; 0: machines are not known
  /// What an all-reduce moves in a message, at most.
  double chunk_bytes = static_cast<double>(pace_of_processors.chunk_bytes);

  double wire_ms(double bytes) const { return bytes / bytes_per_ms; }
  double processing_ms(double bytes) const { return message_ms + message_ms_per_byte * bytes; } ///< at either end
  double crowding_of(std::uint32_t slots) const;
  /// How many of `slots` that compute share a machine; no fewer, as placement does not spread them.
  std::uint32_t side_by_side(std::uint32_t slots) const;
};

/// Sums of the busiest pipeline that its all-reduce starts from, each as large as the gradients.
std::uint32_t partial_sums(const job_specification& job, std::uint32_t width);

/// Processor time of all layers in a step of one slot that never waits, ms.
double layers_ms(const job_specification& job, std::span<const layer_cost> layers);

/// Predicted milliseconds from one commit to the next with these stage boundaries (P + 1 of them). A rank that waits
/// for a message sleeps; its next pass of each kind is one on waking. Exact for what it is told, under the assumptions
/// that ranks differ in nothing but their stage and that a micro-batch is like the other.
double step_ms(const job_specification& job, std::span<const layer_cost> layers,
               std::span<const std::uint32_t> first_layer, std::uint32_t width, const platform_cost& platform);

/// The same for each width from `least_width`, at least 1, to `max_width`, in that order; empty if that is less.
/// What their schedules have in common is worked out once, results are those of step_ms.
std::vector<double> steps_ms(const job_specification& job, std::span<const layer_cost> layers,
                             std::span<const std::uint32_t> first_layer, std::uint32_t least_width,
                             std::uint32_t max_width, const platform_cost& platform);

} // namespace parcae
