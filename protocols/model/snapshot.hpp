#pragma once

// State as bytes: on the wire, in a keeper, in a checkpoint.

#include "protocols/values/state.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
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

/// The same on its way to keepers, wherever it lies: in a keeper, or in memory that a device copied it to.
struct snapshot_shard {
  std::uint32_t layer = 0;
  version at;
  std::vector<std::span<const std::byte>> parts; ///< as long as `owner` lives
  std::shared_ptr<const void> owner;
};

inline std::shared_ptr<const snapshot_shard> to_send(std::shared_ptr<const shard_bytes> x) {
  auto result =
      std::make_shared<snapshot_shard>(snapshot_shard{x->layer, x->at, {x->parts.begin(), x->parts.end()}, {}});
  result->owner = std::move(x);
  return result;
}

/// A snapshot of some layers on its way to keepers.
struct snapshot {
  job_id job;
  commit_result result;                                      ///< of the exchange that made the version
  std::vector<std::shared_ptr<const snapshot_shard>> shards; ///< never null
};

} // namespace parcae
