#pragma once

// How long passes of rows take in the stages of a pipeline, by what was measured. Pure.

#include "planner/serving/serving_profile.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace parcae::serving {

/// Milliseconds by rows, rising rows.
struct pass_point {
  double rows = 0;
  double ms = 0;
};

/// What a pass takes, by rows: from 0 on, up to some number of them.
struct stage_times {
  std::vector<double> stage_ms;
  std::vector<double> hop_ms; ///< to the next stage
  /// Rows that passes are padded to, rising; empty: they are not.
  std::vector<std::uint32_t> sizes;
};

struct pass_model {
  std::string name;
  std::uint32_t layers = 1;
  std::map<std::uint32_t, std::vector<pass_point>> layer_by_degree; ///< of tensor parallelism; at least one point
  std::vector<pass_point> hop;                                      ///< at least one point
  bool padded = false; ///< a pass takes as long as the next size that was measured; else linear between sizes
  std::uint32_t max_decoding = 64; ///< requests in a pass, as far as that was measured
  double cache_bytes = 0;          ///< of a position in a layer
  /// By depth from 1 on: what the longest stage takes, in layers of the mean; empty: layers are alike.
  std::vector<double> longest_by_depth = {};

  double longest_stage(std::uint32_t depth) const;
  /// Of a stage with its share of the layers, rounded up.
  stage_times times(std::uint32_t degree, std::uint32_t depth, std::uint32_t max_rows) const;
};

/// What passes of one size took in one stage.
struct measured_pass {
  double share = 0; ///< of the model, that this stage is; above 0
  double rows = 0;  ///< with padding
  double ms = 0;
};

/// What passes of these sizes (rising) take in the whole model: the sum of what was measured of a size over the sum of
/// shares, in any number of stages. A size that was not measured lies on the line between the next that were, takes as
/// long as the smallest if it is smaller, and in proportion to its rows if it is larger: none takes longer than that.
/// Empty: nothing was measured.
std::vector<pass_point> points_of(std::span<const measured_pass> measured, std::span<const std::uint32_t> sizes);

/// Of SpotServe's: a row of each of some requests, or all the rows of their prompts; linear between. Embeddings, once a
/// request there, are left out.
pass_model passes_of(const serving_profile& profile);

/// JSON with name, layers, passes: [{rows, ms}, …] of a layer, hop_ms, cache_bytes. Throws parse_error.
pass_model parse_passes(std::string_view json);

/// Either of both, as SpotServe's has no "passes".
bool is_passes(std::string_view json);

} // namespace parcae::serving
