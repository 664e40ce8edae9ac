#pragma once

// State as bytes: on the wire, in a keeper, in a checkpoint.

#include "protocols/values/state.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace parcae {

/// The most parts that a shard has.
inline constexpr std::size_t max_parts = 8;

/// A layer's state on the wire and in a keeper: its flat buffers in the order parameters, moments, buffers, course of
/// validation. How many there are depends on the job; all are given by their sizes.
struct shard_bytes {
  std::uint32_t layer = 0;
  version at;
  std::vector<std::vector<std::byte>> parts;
};

/// A snapshot of some layers on its way to keepers.
struct snapshot {
  job_id job;
  commit_result result;                                   ///< of the exchange that made the version
  std::vector<std::shared_ptr<const shard_bytes>> shards; ///< never null
};

} // namespace parcae
