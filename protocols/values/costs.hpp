#pragma once

// What training and its changes cost, as plain values: measured by nodes and managers, shown by `status`, planned with.

#include "protocols/base/described.hpp"

#include <algorithm>
#include <cstdint>

namespace parcae {

/// Processor time of one layer, ms.
struct pass_times {
  double forward_ms = 0;   ///< one micro-batch; the last layer's has the loss in it
  double backward_ms = 0;  ///< one micro-batch, with its share in adding up gradients
  double optimizer_ms = 0; ///< one step: norm, clipping, apply

  friend bool operator==(const pass_times&, const pass_times&) = default;
};
BOOST_DESCRIBE_STRUCT(pass_times, (), (forward_ms, backward_ms, optimizer_ms))

/// The sorts of passes.
inline constexpr double pass_times::*pass_kinds[] = {&pass_times::forward_ms, &pass_times::backward_ms,
                                                     &pass_times::optimizer_ms};

/// One layer: times of a thread that goes from one pass to the next, and bytes.
struct layer_cost : pass_times {
  std::uint64_t gradient_bytes = 0;
  std::uint64_t output_bytes = 0;     ///< one micro-batch's output, sent to the next stage
  std::uint64_t state_bytes = 0;      ///< parameters, moments, buffers
  std::uint64_t activation_bytes = 0; ///< kept from a micro-batch's forward to its backward pass, output included
  std::uint64_t tied_bytes = 0; ///< gradient of a tensor that another layer has too; sent there if in another stage
  pass_times waking = {};       ///< what a pass takes more if the thread has slept before it: cold caches

  friend bool operator==(const layer_cost&, const layer_cost&) = default;
};
BOOST_DESCRIBE_STRUCT(layer_cost, (pass_times),
                      (waking, gradient_bytes, output_bytes, state_bytes, activation_bytes, tied_bytes))

/// Memory of a slot, or of the smallest of several.
struct slot_memory {
  std::uint64_t bytes = 0; ///< 0: unknown
  bool of_device = false;  ///< the device's: shared with no other slot, nor with snapshots on their way to keepers

  friend bool operator==(const slot_memory&, const slot_memory&) = default;
};
BOOST_DESCRIBE_STRUCT(slot_memory, (), (bytes, of_device))

/// What NCCL takes of a device for each peer: 12 MiB in each of the channels that it is allowed.
inline constexpr std::uint32_t nccl_channels = 8;
inline constexpr std::uint64_t nccl_bytes_of_peer = nccl_channels * (std::uint64_t{12} << 20);

/// The smaller of two; an unknown size is larger than any.
inline slot_memory least_of(const slot_memory& x, const slot_memory& y) {
  const auto bytes = x.bytes == 0 || y.bytes == 0 ? std::max(x.bytes, y.bytes) : std::min(x.bytes, y.bytes);
  return {bytes, x.of_device || y.of_device};
}

/// Figures of a cluster, measured on the running system or given. Phases without the bytes they move. The defaults are
/// for a local network.
struct change_figures {
  double link_bytes_per_ms = 1.25e6; ///< of one instance, in each direction at the same time
  double detect_ms = 1;              ///< from a loss to its being declared
  double settle_ms = 2;              ///< ABORT until the last DECIDED
  double loss_ms = 3;                ///< more of that for each slot lost: losses are heard one after the other
  double plan_ms = 1;                ///< until the next configuration is known
  double prepare_ms = 10;            ///< PREPARE until the last PREPARED: modules, memory, connections
  double transfer_ms = 2;            ///< ACTIVATE until the layers are there, if nothing is to be moved
  double activate_ms = 2;            ///< from then on until the last rank begins
  double rank_ms = 0.1;              ///< more of that for each rank: they are told one after the other

  friend bool operator==(const change_figures&, const change_figures&) = default;
};
BOOST_DESCRIBE_STRUCT(change_figures, (),
                      (link_bytes_per_ms, detect_ms, settle_ms, loss_ms, plan_ms, prepare_ms, transfer_ms, activate_ms,
                       rank_ms))

} // namespace parcae
