#pragma once

// What goes through a pipeline that serves a model, and what is said of the token that follows.

#include <cstdint>

namespace parcae {

/// A token at a position of a request.
struct request_row {
  std::uint64_t request = 0;
  std::uint32_t position = 0;
  std::uint32_t token = 0;

  friend bool operator==(const request_row&, const request_row&) = default;
};

/// What a request says of its tokens.
struct sampling {
  std::uint64_t seed = 0;
  double temperature = 1;  ///< 0: the first candidate; else logits are divided by it
  double top_p = 1;        ///< in (0, 1]: of the first candidates that have so much of the probability together
  std::uint32_t top_k = 0; ///< of so many first candidates; 0: of all

  friend bool operator==(const sampling&, const sampling&) = default;
};

} // namespace parcae
