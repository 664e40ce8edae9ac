#pragma once

// State as bytes: on the wire, in a keeper, in a checkpoint.

#include "protocols/values/loss_record.hpp"
#include "protocols/values/state.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
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

/// In the place of a layer's number: the shard is a loss_block. Those of a snapshot come first, so that who has all of
/// a version knows what came of the steps before.
inline constexpr std::uint32_t losses_layer = UINT32_MAX;

/// As many as it takes. `at`: the version that they come with.
inline std::vector<std::shared_ptr<const shard_bytes>> shards_of(const loss_record& losses, std::uint64_t from,
                                                                 const version& at) {
  std::vector<std::shared_ptr<const shard_bytes>> result;
  for (from = losses.news_from(from);;) {
    const auto block = losses.part(losses.first_known(from), at.steps);
    if (block.all.empty())
      return result;
    const auto bytes = encode(block);
    shard_bytes x{losses_layer, at, {std::vector<std::byte>(bytes.size())}};
    std::memcpy(x.parts[0].data(), bytes.data(), bytes.size());
    result.push_back(std::make_shared<const shard_bytes>(std::move(x)));
    from = block.end();
  }
}

/// Throws std::runtime_error.
inline loss_block losses_in(const shard_bytes& x) {
  const auto& bytes = x.parts.at(0);
  return decode_loss_block({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

/// A snapshot of some layers on its way to keepers.
struct snapshot {
  job_id job;
  commit_result result;                                      ///< of the exchange that made the version
  std::vector<std::shared_ptr<const snapshot_shard>> shards; ///< never null
  double share_of_link = 0;                                  ///< that it takes at most on its way; 0: it is waited for
};

} // namespace parcae
