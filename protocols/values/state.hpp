#pragma once

// Versions of shards, and the record of which versions count.

#include "protocols/base/described.hpp"
#include "protocols/values/ids.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace parcae {

/// Version of a shard: the number of steps committed, and the generation that committed the last of them. Version
/// (0, 0) is the state a layer starts from, a pure function of the job.
struct version {
  std::uint64_t steps = 0;
  generation by;

  friend auto operator<=>(const version&, const version&) = default;
};
BOOST_DESCRIBE_STRUCT(version, (), (steps, by))

inline std::string to_string(const version& x) {
  return std::to_string(x.steps) + "@" + std::to_string(x.by.value);
}

/// Says that all of one layer (parameters and moments) is held at a version.
struct layer_version {
  std::uint32_t layer = 0;
  version at;

  friend auto operator<=>(const layer_version&, const layer_version&) = default;
};
BOOST_DESCRIBE_STRUCT(layer_version, (), (layer, at))

/// What one holder has, sorted by layer. Of a layer a worker holds one version at most, a keeper keeper_versions.
using inventory = std::vector<layer_version>;

/// Versions of a layer that a keeper holds at most: the two newest whole snapshots, and the one that arrives.
inline constexpr std::size_t keeper_versions = 3;

/// Stands for "no step" where a step is optional.
inline constexpr std::uint64_t no_step = UINT64_MAX;

/// What the commit exchange of one step yields: all that is needed to apply its gradients.
struct commit_result {
  std::uint64_t step = no_step; ///< the step exchanged (0-based); applying it makes version step + 1
  double loss = 0;              ///< mean over the step's micro-batches, added in micro-batch order
  double gradient_norm = 0;     ///< before clipping
  double clip_factor = 1;       ///< gradients are multiplied by it
  double learning_rate = 0;
  bool stop = false;     ///< some rank asked to stop after this step
  bool snapshot = false; ///< the version it makes goes to the keepers

  bool is_finite() const { return std::isfinite(loss) && std::isfinite(gradient_norm); }

  friend bool operator==(const commit_result&, const commit_result&) = default;
};
BOOST_DESCRIBE_STRUCT(commit_result, (), (step, loss, gradient_norm, clip_factor, learning_rate, stop, snapshot))

/// How tensors go between GPUs of one process.
struct peer_copies {
  bool used = false;    ///< they are copied from one to the other
  std::string reason{}; ///< why not, or why not directly; one line. Empty: directly, or there is but one slot

  friend bool operator==(const peer_copies&, const peer_copies&) = default;
};
BOOST_DESCRIBE_STRUCT(peer_copies, (), (used, reason))

/// What moves tensors between the slots of a generation, as one of its ranks says, or a job's status.
struct transport_state {
  std::string by{};     ///< "tcp" or "nccl"; empty: nobody has said
  std::string device{}; ///< what computes, for people; all of them, if they differ
  std::string reason{}; ///< why it is not NCCL, one line; empty: it is, or was not asked for
  peer_copies peers{};  ///< within a process

  friend bool operator==(const transport_state&, const transport_state&) = default;
};
BOOST_DESCRIBE_STRUCT(transport_state, (), (by, device, reason, peers))

/// One generation's part of the committed history.
struct chain_link {
  generation by;
  std::uint64_t base = 0; ///< version this generation started from
  std::uint64_t last = 0; ///< version it ended at; UINT64_MAX while it runs

  friend bool operator==(const chain_link&, const chain_link&) = default;
};
BOOST_DESCRIBE_STRUCT(chain_link, (), (by, base, last))

} // namespace parcae
