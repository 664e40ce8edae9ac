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

/// A shard must have the sizes that the job's model gives it, and be of a generation that the conductor has named and
/// of a step that the job has; else it is not taken, from no sender. The conductor names a generation before it
/// activates it, so nothing good is refused while the conductor is slow or away. A shard that comes before its
/// generation was named is not lost: its sender keeps it and tries again. (How far the ranks of a generation can be the
/// conductor judges itself: a keeper's clock says nothing of their steps.) Any thread.
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
