#pragma once

// At a change of a served model's pipelines: which new pipeline goes on with the requests of which old one, and what
// of their caches has to move. Pure.

#include <cstdint>
#include <optional>
#include <vector>

namespace parcae::serving {

/// A pipeline by its stages, in order of layers.
struct pipeline_places {
  struct stage {
    std::uint64_t slot = 0;
    std::uint32_t last_layer = 0; ///< exclusive; the first layer is where the stage before ends
  };
  std::vector<stage> stages;
};

struct cached_pipeline {
  pipeline_places places;
  std::uint64_t positions = 0; ///< of all its requests; 0 also if a slot is gone, as then they are of no use
};

struct cache_move {
  std::uint32_t pipeline = 0; ///< old
  std::uint32_t first_layer = 0, last_layer = 0;
  std::uint64_t source = 0, destination = 0;
  std::uint64_t positions = 0;

  friend bool operator==(const cache_move&, const cache_move&) = default;
};

struct cache_plan {
  std::vector<std::optional<std::uint32_t>> heirs; ///< by old pipeline; none: its positions are computed again
  std::vector<cache_move> moves;                   ///< at most D · (P + P′ − 1)
  std::uint64_t kept = 0;                          ///< positions times layers that stay where they are
  std::uint64_t moved = 0;                         ///< that move

  /// How long the busiest slot sends, or receives.
  double transfer_ms(double bytes_of_position_and_layer, double link_bytes_per_ms) const;
  /// How long the busiest of the new pipelines computes what moves to it, if it does not, at `row_ms` a position.
  double computing_ms(double row_ms) const;
};

/// Heirs by Kuhn–Munkres: as much as possible stays. Of those that have nothing to keep, the ones with the most
/// positions get what pipelines are left.
cache_plan plan_caches(const std::vector<cached_pipeline>& old, const std::vector<pipeline_places>& now);

/// Likewise; then each of the rest that has positions gets the one that has most of its layers where they are, of these
/// the one with the fewest positions: an heir of several.
cache_plan plan_all_caches(const std::vector<cached_pipeline>& old, const std::vector<pipeline_places>& now);

/// The stages of a pipeline with `layers` in `slots`: as even as can be, the longer ones first.
pipeline_places even_stages(std::uint32_t layers, const std::vector<std::uint64_t>& slots);

} // namespace parcae::serving
