#pragma once

// How much memory a stage needs: an estimate from sizes alone.

#include "protocols/values/costs.hpp"
#include "protocols/values/job_specification.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace parcae {

/// Bytes.
struct stage_memory {
  std::uint64_t state = 0;       ///< parameters, moments, buffers
  std::uint64_t copies = 0;      ///< of matrices, in bfloat16
  std::uint64_t arriving = 0;    ///< the next generation's, while nothing of this one's may be freed
  std::uint64_t gradients = 0;   ///< sums of virtual replicas, and autograd's own
  std::uint64_t activations = 0; ///< of the micro-batches in flight, with their inputs
  std::uint64_t passing = 0;     ///< gradients of activations in the layer at hand: as large as these, at most
  std::uint64_t snapshots = 0;   ///< copies on their way to keepers

  std::uint64_t total() const { return state + copies + arriving + gradients + activations + passing + snapshots; }
};

/// Of the busiest pipeline's stage under 1F1B: stage s of P has at most P − s micro-batches in flight. Of a change it
/// is assumed that all of the stage's layers arrive while as much is still held; of snapshots, that one is made while
/// the one before is still on its way: of the replica that sends most, to as many of the `keepers` as hold each layer.
/// In bfloat16 every layer counts as if it had a copy; an embedding, which is not multiplied with, has none.
/// Samples that are read ahead, 32 MiB at most, are left out.
/// Of devices, `keepers` is 0: snapshots are copied to the host from where the state is.
stage_memory memory_of(const job_specification& job, std::span<const layer_cost> layers,
                       std::span<const std::uint32_t> first_layer, std::uint32_t stage, std::uint32_t width,
                       std::uint32_t keepers);

/// What moving tensors takes of a device besides: sums of other replicas under way, and what NCCL needs for its peers.
std::uint64_t transport_bytes(const job_specification& job, std::span<const layer_cost> layers,
                              std::span<const std::uint32_t> first_layer, std::uint32_t stage, std::uint32_t width);

/// Empty if every stage fits into `slot` (unknown: all fit); else which does not, and what it needs.
std::string memory_problem(const job_specification& job, std::span<const layer_cost> layers,
                           std::span<const std::uint32_t> first_layer, std::uint32_t width, std::uint32_t keepers,
                           const slot_memory& slot);

} // namespace parcae
