#pragma once

// Who computes what in a generation, and who sends what to whom before it begins.

#include "protocols/base/described.hpp"
#include "protocols/values/ids.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace parcae {

/// One end of the data plane of a generation.
struct participant {
  slot_id slot;
  std::string host; ///< where its data port listens
  std::uint16_t port = 0;

  friend bool operator==(const participant&, const participant&) = default;
};
BOOST_DESCRIBE_STRUCT(participant, (), (slot, host, port))

/// Who computes what. Participants 0 … D·P−1 are the ranks, rank = pipeline · P + stage; those after them only send
/// shards (spares that hold state, keepers).
struct placement {
  std::uint32_t width = 0;                ///< D, pipelines
  std::uint32_t depth = 0;                ///< P, stages
  std::vector<std::uint32_t> first_layer; ///< P + 1 entries: stage s computes layers [first_layer[s], first_layer[s+1])
  std::vector<participant> participants;

  std::uint32_t ranks() const { return width * depth; }
  std::uint32_t rank(std::uint32_t pipeline, std::uint32_t stage) const { return pipeline * depth + stage; }
  std::uint32_t stage_of(std::uint32_t rank) const { return rank % depth; }
  std::uint32_t pipeline_of(std::uint32_t rank) const { return rank / depth; }
  /// Whether this rank is the one of its stage's replicas that sends snapshots of the layer.
  bool sends(std::uint32_t rank, std::uint32_t layer) const { return layer % width == pipeline_of(rank); }

  friend bool operator==(const placement&, const placement&) = default;
};
BOOST_DESCRIBE_STRUCT(placement, (), (width, depth, first_layer, participants))

/// One layer's shards go from one participant to another. The order of the plan is the order on each connection.
struct shard_move {
  std::uint32_t layer = 0;
  std::uint32_t source = 0;      ///< participant
  std::uint32_t destination = 0; ///< participant, always a rank

  friend bool operator==(const shard_move&, const shard_move&) = default;
};
BOOST_DESCRIBE_STRUCT(shard_move, (), (layer, source, destination))

/// Of a job that serves: what one participant has in its caches for some layers goes to another, of all requests.
struct cache_move {
  std::uint32_t first_layer = 0, last_layer = 0; ///< [first_layer, last_layer)
  std::uint32_t source = 0;                      ///< participant
  std::uint32_t destination = 0;                 ///< participant, always a rank

  friend bool operator==(const cache_move&, const cache_move&) = default;
};
BOOST_DESCRIBE_STRUCT(cache_move, (), (first_layer, last_layer, source, destination))

} // namespace parcae
