#pragma once

// How many instances there are over time: from a trace file, or made up with the statistics of a published one. Pure but for the
// reading of the file.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace parcae {

/// At a moment of the trace, instances come (positive) or go (negative). Never 0.
struct availability_change {
  std::chrono::milliseconds at{0};
  int delta = 0;

  friend bool operator==(const availability_change&, const availability_change&) = default;
};

/// Reads a trace of events (planner/trace.hpp) and adds up what happens at the same moment. Throws std::runtime_error with one
/// line if the file is unreadable, malformed, or larger than 16 MiB.
std::vector<availability_change> read_trace(const std::filesystem::path& file);

/// The same trace for a cluster of at most `instances`: counts are scaled by instances / peak and rounded.
std::vector<availability_change> scaled(const std::vector<availability_change>& trace, int instances);

/// A made-up trace of `length` for a cluster of at most `instances`, all there at the start: preemptions come in groups,
/// every 518 s on average, of up to a quarter of the instances (mean 2.1 of 24); each lost one is replaced after 20 min on
/// average, as in the published AWS p3 trace (79 groups in 11.37 h, at most 6 at once, 24 of 32 present on average).
std::vector<availability_change> made_up_trace(int instances, std::chrono::milliseconds length, std::uint64_t seed);

} // namespace parcae
