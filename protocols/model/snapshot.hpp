#pragma once

// State as bytes: on the wire, in a keeper, in a checkpoint.

#include "protocols/values/state.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace parcae {

/// At most so many parts has a shard.
inline constexpr std::size_t most_parts = 8;

/// One part of a layer's state on the wire and in a keeper: its flat buffers in the order parameters, first moment,
/// second moment, buffers. How many there are depends on the optimizer; all are given by their sizes.
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
