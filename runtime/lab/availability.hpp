#pragma once

// How many instances there are over time: from a trace file, or made up with the statistics of a published one. Pure
// but for the reading of the file.

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

/// Reads a trace of events (planner/simulation/trace.hpp) and adds up what happens at the same moment. Throws
/// std::runtime_error with one line if the file is unreadable, malformed, or larger than 16 MiB.
std::vector<availability_change> read_trace(const std::filesystem::path& file);

/// The same trace for a cluster of at most `instances`: counts are scaled by instances / peak and rounded.
std::vector<availability_change> scaled(const std::vector<availability_change>& trace, int instances);

/// A made-up trace of that length with the statistics of the published AWS p3 trace
/// (planner/simulation/trace_generator.hpp), scaled to a cluster of at most `instances`.
std::vector<availability_change> made_up_trace(int instances, double hours, std::uint64_t seed);

} // namespace parcae
