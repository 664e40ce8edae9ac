#pragma once

// Which shards a keeper takes of a job's streams, by their headers.

#include "protocols/values/ids.hpp"
#include "protocols/values/job_specification.hpp"
#include "protocols/values/state.hpp"

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace parcae {

/// Shards have the sizes that the job's model gives them. Versions are of generations that the conductor has named, and
/// of steps that the job has: what it never said to be there is not taken, whoever sends it. The conductor names a
/// generation before it activates it, so that nothing good is refused while it is slow or away; and what overtakes its
/// word is not lost, but stays with its sender, who tries again. (How far the ranks of that generation can be the
/// conductor judges itself, since a keeper's clock says nothing of their steps.) Any thread.
class snapshot_admission {
public:
  /// Throws std::invalid_argument if the model is not known.
  snapshot_admission(const job_specification& job, generation newest);

  /// Generations up to this one may send.
  void announce(generation newest);

  /// Why the shard is not taken, one line; empty: it is. `sizes` in bytes of its parts.
  std::string problem_of(std::uint32_t layer, const version& at, const std::vector<std::uint64_t>& sizes) const;
  /// The same of the version alone.
  std::string problem_of(const version& at) const;

private:
  std::vector<std::vector<std::uint64_t>> sizes_; ///< by layer
  std::uint64_t steps_;
  std::atomic<std::uint64_t> newest_;
};

} // namespace parcae
