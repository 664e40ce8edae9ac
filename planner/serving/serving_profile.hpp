#pragma once

// How long a served model's layers take, as SpotServe's artifact has it (Miao et al., "SpotServe: Serving Generative
// Large Language Models on Preemptible Instances", ASPLOS'24): JSON, one file a model. Pure values.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace parcae::serving {

/// A batch through one layer.
struct batch_times {
  double prompt_ms = 0; ///< "init": all the positions of the prompts
  double token_ms = 0;  ///< "incr": one position of each request
};

struct serving_profile {
  /// Positions of each prompt in what was measured.
  static constexpr std::uint32_t prompt_positions = 512;

  std::string name;
  std::uint32_t layers = 0;
  std::uint32_t padded_layers = 0; ///< a depth is allowed if it divides them
  std::uint32_t width = 0;         ///< values of a position between layers
  std::uint32_t max_degree = 1;    ///< of tensor parallelism
  double factor = 1;               ///< all times are longer by it
  double prompt_hop_ms = 0;        ///< from stage to stage
  double token_hop_ms = 0;
  std::vector<double> embedding_ms;                                  ///< by batch: of 1, 2, 4, …
  std::map<std::uint32_t, std::vector<batch_times>> layer_by_degree; ///< likewise

  /// The largest batch that was measured at all degrees.
  std::uint32_t max_batch() const { return 1u << (embedding_ms.size() - 1); }
};

/// Throws parse_error with the line, or with the key and the path to it.
serving_profile parse_serving_profile(std::string_view json);

} // namespace parcae::serving
