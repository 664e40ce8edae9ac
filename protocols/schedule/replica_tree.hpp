#pragma once

// Virtual replicas and the fixed binary tree in which their gradients are added (HOW_IT_WORKS.md, "What makes runs
// bit-identical"): what executors compute by and planners count with.

#include "protocols/values/job_specification.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace parcae {

/// What an all-reduce handles at once, and how many of these for each member are under way behind it. No bit depends on
/// them, but they are the same for all members.
struct reduction_pace {
  std::size_t chunk_bytes;
  std::size_t ahead;
};
/// Of processors: 256 KiB, so that partial sums are added while they are in the second-level cache; enough under way to
/// hide the time of a round trip. Of devices: 16 MiB, as each message takes the host some 20 µs, in which an NVLink
/// moves as much.
inline constexpr reduction_pace pace_of_processors{std::size_t{256} << 10, 4};
inline constexpr reduction_pace pace_of_devices{std::size_t{16} << 20, 2};

/// Virtual replicas [first, last).
struct replica_range {
  std::uint32_t first = 0;
  std::uint32_t last = 0;

  friend bool operator==(const replica_range&, const replica_range&) = default;
};

/// The virtual replicas that pipeline d of `width` owns: consecutive, the first (V mod D) pipelines own one more.
replica_range owned_replicas(std::uint32_t virtual_replicas, std::uint32_t width, std::uint32_t pipeline);

/// The left part of a node of the tree: the largest power of two smaller than the node's size. Leaves are single
/// replicas.
std::uint32_t tree_split(replica_range node);

/// The maximal sub-trees of the tree over [0, V) that lie within `owned`, left to right. At most 2·log2(V).
std::vector<replica_range> maximal_subtrees(std::uint32_t virtual_replicas, replica_range owned);

/// Micro-batches of the busiest pipeline: ⌈V/D⌉·M/V.
std::uint32_t busiest_micro_batches(const job_specification& job, std::uint32_t width);

} // namespace parcae
