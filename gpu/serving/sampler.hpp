#pragma once

// Which token follows. Host, float64, any thread; the same token on every processor that has the same logits.

#include "protocols/schedule/request_row.hpp"

#include <cstdint>
#include <span>
#include <stdexcept>

namespace parcae {

/// Logits of which no token follows: one is NaN or infinite upwards, or all are -inf.
struct sampling_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The token at a position of a request, by the logits of the row before it. Candidates are ordered by (-logit, token);
/// first top_k of them are kept, then top_p of these. The number that draws one is Philox's of
/// mix_seed(seed, "token", {position}). Throws sampling_error.
std::uint32_t token_of(std::span<const float> logits, const sampling& x, std::uint64_t position);

} // namespace parcae
