#pragma once

// What a rank says in the commit exchange, and what all ranks conclude from it (HOW_IT_WORKS.md, "A step, and when it
// counts"). Torch-free and pure.

#include "gpu/dataplane/reduction.hpp"
#include "protocols/choreography/choreography.hpp"
#include "protocols/choreography/snapshots.hpp"
#include "protocols/values/job_specification.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace parcae {

struct contribution {
  wishes asks;
  bool ready = false;                ///< NCCL could move this rank's tensors, but does not yet
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

/// What a step comes to. All ranks come to the same, as does a rank that is told the result later.
enum class step_end : std::uint8_t {
  applied,
  skipped,  ///< it makes a version that has what the one before has: neither parameters, moments nor running statistics
            ///< change
  ends_job, ///< it makes no version
};

step_end becomes_of(const commit_result& x, const job_specification& job);

/// For people: what of a result is not finite, and at which step, counted from 1.
std::string problem_of(const commit_result& x);

/// Whether NCCL moves tensors from the next step on. All ranks come to the same.
bool all_are_ready(std::span<const contribution> by_rank);

} // namespace parcae
