#pragma once

// Which token follows. Host, float64, any thread; the same token on every processor that has the same logits.

#include <cstdint>
#include <span>
#include <stdexcept>

namespace parcae {

/// What a request says of its tokens.
struct sampling {
  std::uint64_t seed = 0;
  double temperature = 1;  ///< 0: the first candidate; else logits are divided by it
  double top_p = 1;        ///< in (0, 1]: of the first candidates that have so much of the probability together
  std::uint32_t top_k = 0; ///< of so many first candidates; 0: of all
};

/// Logits of which no token follows: one is NaN or infinite upwards, or all are -inf.
struct sampling_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The token at a position of a request, by the logits of the row before it. Candidates are ordered by (-logit, token);
/// first top_k of them are kept, then top_p of these. The number that draws one is Philox's of
/// mix_seed(seed, "token", {position}). Throws sampling_error.
std::uint32_t token_of(std::span<const float> logits, const sampling& x, std::uint64_t position);

} // namespace parcae
