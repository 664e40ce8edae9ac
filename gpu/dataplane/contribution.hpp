#pragma once

// What a rank says in the commit exchange, and what all ranks conclude from it (design, section 4). Torch-free and
// pure.

#include "gpu/dataplane/reduction.hpp"
#include "protocols/choreography/choreography.hpp"
#include "protocols/values/job_specification.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace parcae {

struct contribution {
  bool stop = false;
  bool snapshot = false; ///< the version goes to the keepers whatever is on its way to them: nobody trains after it
  bool due = false;      ///< a snapshot was put off, or there are keepers that have none yet
  bool busy = false;     ///< this rank's share of an earlier snapshot is still on its way
  bool ready = false;    ///< NCCL could move this rank's tensors, but does not yet
  std::vector<double> squared_norms; ///< one per layer of its stage
  std::vector<double> losses;        ///< one per micro-batch of its pipeline, last stage only
};

/// Which contributions belong together: the placement of one generation of a job.
struct exchange_shape {
  const job_specification& job;
  const placement& grid;

  /// The micro-batches of a pipeline: virtual replicas times micro-batches of each.
  replica_range micro_batches(std::uint32_t pipeline) const;
  std::size_t layers(std::uint32_t rank) const;
  std::size_t losses(std::uint32_t rank) const;
  /// Encoded size of a rank's contribution, known to every rank.
  std::size_t bytes(std::uint32_t rank) const;
};

std::vector<std::byte> encode(const contribution& x);
/// `bytes` has the size the shape says.
contribution decode(std::span<const std::byte> bytes, std::uint32_t rank, const exchange_shape& shape);

/// The result of step `step` from the contributions of all ranks, by rank. Every rank computes the same bits.
commit_result combine(std::span<const contribution> by_rank, std::uint64_t step, const exchange_shape& shape);

/// Whether NCCL moves tensors from the next step on. All ranks come to the same.
bool all_are_ready(std::span<const contribution> by_rank);

} // namespace parcae
