#include "planner/situation/memory.hpp"

#include "protocols/schedule/replica_tree.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <vector>

namespace parcae {

stage_memory memory_of(const job_specification& job, std::span<const layer_cost> layers,
                       std::span<const std::uint32_t> first_layer, std::uint32_t stage, std::uint32_t width,
                       std::uint32_t keepers) {
  const auto depth = static_cast<std::uint32_t>(first_layer.size() - 1);
  const auto first = first_layer[stage], last = first_layer[stage + 1];
  std::uint64_t gradients = 0, inside = 0, largest = 0, kept_inputs = 0;
  stage_memory x;
  std::vector<std::uint64_t> sent(width, 0); // by pipeline
  for (auto i = first; i < last; ++i) {
    sent[i % width] += layers[i].state_bytes;
    x.state += layers[i].state_bytes;
    gradients += layers[i].gradient_bytes;
    inside += layers[i].activation_bytes;
    largest = std::max(largest, layers[i].activation_bytes);
    if (i > 0)
      kept_inputs += layers[i - 1].output_bytes;
  }
  x.copies = job.in_bfloat16() ? gradients / 2 : 0;
  x.arriving = x.state;
  x.passing = largest;
  x.snapshots = 2 * std::min(job.keeper_copies, keepers) * *std::max_element(sent.begin(), sent.end());
  // Sub-trees that r consecutive replicas can leave unmerged, and the one that autograd adds to, always in float32;
  // when sums in bfloat16 are there, the gradient that is made of them has its place. A replica is rounded beside
  // those: one more where r begin in the middle of a sub-tree.
  const auto replicas = job.reproducible ? (job.virtual_replicas + width - 1) / width : 1;
  const auto sums = std::bit_width(replicas) + (job.sums_in_bfloat16() && replicas > 2 ? 1 : 0);
  x.gradients = gradients + job.sum_bytes(gradients) * static_cast<std::uint64_t>(sums);
  const auto micro_batches = busiest_micro_batches(job, width);
  const auto in_flight = std::uint64_t{std::min(depth - stage, micro_batches)};
  if (job.recompute) // inputs of all layers; the inside of one layer at a time; the last output
    x.activations = in_flight * (kept_inputs + layers[last - 1].output_bytes) + largest;
  else // a layer's input is the output of the one before; only the stage's own comes in addition
    x.activations = in_flight * (inside + (first > 0 ? layers[first - 1].output_bytes : 0));
  return x;
}

std::uint64_t transport_bytes(const job_specification& job, std::span<const layer_cost> layers,
                              std::span<const std::uint32_t> first_layer, std::uint32_t stage, std::uint32_t width) {
  const auto depth = static_cast<std::uint32_t>(first_layer.size() - 1);
  std::uint64_t longest = 0;
  bool tied = false;
  for (auto i = first_layer[stage]; i < first_layer[stage + 1]; ++i) {
    longest = std::max(longest, job.sum_bytes(layers[i].gradient_bytes));
    tied |= layers[i].tied_bytes > 0;
  }
  const auto replicas = job.reproducible ? job.virtual_replicas : width;
  std::uint64_t sums = 0, least = replicas; // sub-trees of all pipelines, and of the one with fewest
  for (std::uint32_t d = 0; d < width; ++d) {
    const auto own = maximal_subtrees(replicas, owned_replicas(replicas, width, d)).size();
    sums += own;
    least = std::min<std::uint64_t>(least, own);
  }
  auto result =
      (pace_of_devices.ahead + 1) * (sums - least) * std::min<std::uint64_t>(longest, pace_of_devices.chunk_bytes);
  if (job.transport == "nccl") {
    const auto peers =
        width - 1 + (stage > 0 ? 1u : 0u) + (stage + 1 < depth ? 1u : 0u) + (tied && depth > 2 ? 1u : 0u);
    result += peers * nccl_bytes_of_peer;
  }
  return result;
}

std::string memory_problem(const job_specification& job, std::span<const layer_cost> layers,
                           std::span<const std::uint32_t> first_layer, std::uint32_t width, std::uint32_t keepers,
                           const slot_memory& slot) {
  if (slot.bytes == 0)
    return {};
  constexpr double gib = 1 << 30;
  for (std::uint32_t stage = 0; stage + 1 < first_layer.size(); ++stage) {
    const auto needed = memory_of(job, layers, first_layer, stage, width, slot.of_device ? 0 : keepers).total() +
                        (slot.of_device ? transport_bytes(job, layers, first_layer, stage, width) : 0);
    if (needed <= slot.bytes)
      continue;
    char text[120];
    std::snprintf(text, sizeof text, "stage %u needs %.3g GiB, a slot has %.3g GiB", stage,
                  static_cast<double>(needed) / gib, static_cast<double>(slot.bytes) / gib);
    return text;
  }
  return {};
}

} // namespace parcae
