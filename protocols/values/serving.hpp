#pragma once

// How requests to a served model fare, from its gateway to `status`.

#include "protocols/base/described.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace parcae {

/// What passes of one size took in one stage.
struct sized_passes {
  std::uint32_t size = 0; ///< rows, with padding
  std::uint64_t passes = 0;
  double ms = 0; ///< of each, mean

  friend bool operator==(const sized_passes&, const sized_passes&) = default;
};
BOOST_DESCRIBE_STRUCT(sized_passes, (), (size, passes, ms))

inline constexpr std::size_t most_pass_sizes = 32; ///< that are told of

/// How long a request was that was answered.
struct answered_request {
  std::uint32_t prompt = 0; ///< positions
  std::uint32_t tokens = 0; ///< new ones

  friend bool operator==(const answered_request&, const answered_request&) = default;
};
BOOST_DESCRIBE_STRUCT(answered_request, (), (prompt, tokens))

inline constexpr std::size_t most_answered_told = 32;

/// Of the last minute; ms. Both 0: there were none.
struct wait_quantiles {
  double p50_ms = 0;
  double p99_ms = 0;

  friend bool operator==(const wait_quantiles&, const wait_quantiles&) = default;
};
BOOST_DESCRIBE_STRUCT(wait_quantiles, (), (p50_ms, p99_ms))

/// Counts are since the gateway began with the job, rates and means of the last minute.
struct request_figures {
  std::uint32_t queued = 0;        ///< wait for a pipeline
  std::uint32_t running = 0;       ///< have one
  std::uint64_t answered = 0;      ///< ended with all their tokens
  std::uint64_t refused = 0;       ///< before their first token: the queue was full, or they waited too long
  std::uint64_t failed = 0;        ///< ended otherwise, but by their clients
  std::uint64_t tokens = 0;        ///< new ones
  std::uint64_t recomputed = 0;    ///< positions that were computed again, as a cache was lost
  std::uint64_t broken = 0;        ///< pipelines that broke while requests ran there, or could not be reached
  double arrivals_per_s = 0;       ///< requests, also those refused as the queue was full
  double tokens_per_s = 0;         ///< new ones
  double mean_prompt = 0;          ///< positions
  double mean_answer = 0;          ///< tokens
  wait_quantiles first_token{};    ///< from a request's arrival
  wait_quantiles between_tokens{}; ///< of one answer

  friend bool operator==(const request_figures&, const request_figures&) = default;
};
BOOST_DESCRIBE_STRUCT(request_figures, (),
                      (queued, running, answered, refused, failed, tokens, recomputed, broken, arrivals_per_s,
                       tokens_per_s, mean_prompt, mean_answer, first_token, between_tokens))

/// What passes of one size took in stages with layers [first_layer, last_layer).
struct measured_stage {
  std::uint32_t first_layer = 0;
  std::uint32_t last_layer = 0;
  sized_passes taken{};

  friend bool operator==(const measured_stage&, const measured_stage&) = default;
};

/// What pipelines are planned by.
struct service_measures {
  std::vector<measured_stage> passes{};     ///< of the present stages, and of those before
  std::vector<std::uint32_t> sizes{};       ///< of passes that may be used, rising; empty: not known
  double arrivals_per_s = 0;                ///< requests, of the last minute
  std::vector<answered_request> answered{}; ///< the newest

  bool is_enough() const { return !passes.empty() && !answered.empty(); }
};

} // namespace parcae
