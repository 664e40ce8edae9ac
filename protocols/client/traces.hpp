#pragma once

// The spans of a job's next steps, asked for and answered.

#include "protocols/base/described.hpp"
#include "protocols/values/step_parts.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace parcae {

/// Asks the ranks of a job that trains to tell the spans of their next steps. With `steps` 0: asks what came of that.
struct trace_request {
  std::uint64_t job = 0;
  std::uint32_t steps = 0;
  std::uint64_t from = 0; ///< leave out traces numbered below this
};
BOOST_DESCRIBE_STRUCT(trace_request, (), (job, steps, from))

/// Of one step of one rank.
struct rank_trace : step_trace {
  std::uint32_t rank = 0;

  friend bool operator==(const rank_trace&, const rank_trace&) = default;
};
BOOST_DESCRIBE_STRUCT(rank_trace, (step_trace), (rank))

/// What the ranks of one generation told so far.
struct trace_reply {
  std::uint64_t job = 0;
  std::uint64_t generation = 0;
  std::uint32_t steps = 0;        ///< asked for, of each rank
  std::uint32_t depth = 0;        ///< stages of a pipeline
  std::vector<std::string> slots; ///< by rank
  bool is_over = false;           ///< nothing more comes
  std::uint64_t number = 0;       ///< of this trace; a newer one takes its place
  std::uint64_t first = 0;        ///< number of traces[0]
  std::uint64_t count = 0;        ///< of all that came
  std::vector<rank_trace> traces; ///< as many as fit

  friend bool operator==(const trace_reply&, const trace_reply&) = default;
};
BOOST_DESCRIBE_STRUCT(trace_reply, (), (job, generation, steps, depth, slots, is_over, number, first, count, traces))

} // namespace parcae
