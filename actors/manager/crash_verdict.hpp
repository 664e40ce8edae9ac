#pragma once

// When a job is what ends its workers: pure.

#include <cstdint>
#include <string>
#include <vector>

namespace parcae {

/// An instance ended by a signal while a job ran.
struct instance_crash {
  std::string instance;
  std::string what;        ///< "ended by SIGFPE"
  std::uint64_t steps = 0; ///< that the job had committed by then
};

inline constexpr std::size_t max_crashes = 3;

/// Of a job's crashes, oldest first: why it fails with the newest, in one line. Empty: it goes on. One place is one
/// signal without a step in between: a bad machine among good ones, which train on, fails no job.
std::string verdict_on(const std::vector<instance_crash>& of_job);

} // namespace parcae
