#pragma once

// Which versions are evaluated, and when a job ends before its last step: validation does not get better
// (job.patience). Torch-free and pure.

#include "protocols/values/job_specification.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace parcae {

/// How validation went until a version: what the next decision needs. It lies with the last layer's state, as two
/// float32, so that it moves, is kept and resumed with the version that it is of.
struct validation_course {
  float best = std::numeric_limits<float>::infinity(); ///< least loss; infinity: none yet
  float worse = 0;                                     ///< evaluations since, in a row, that were not better

  friend bool operator==(const validation_course&, const validation_course&) = default;
};

/// Whether the version after these steps is evaluated.
bool is_evaluated(std::uint64_t steps, const job_specification& job);

/// Whether what comes of that may make the version the last one.
bool may_be_last(std::uint64_t steps, const job_specification& job);

/// The layer whose state has the course; empty: the job has no patience.
std::optional<std::uint32_t> layer_with_course(const job_specification& job);

/// After one more evaluation. A loss that is not a number is not better.
validation_course after(const validation_course& before, double loss, const job_specification& job);

/// As it lies with the state.
std::vector<std::byte> bytes_of(const validation_course& x);

inline bool ends(const validation_course& x, const job_specification& job) {
  return job.patience > 0 && x.worse >= static_cast<float>(job.patience);
}

} // namespace parcae
