#pragma once

// The spans of steps that a client has asked for, while the ranks of a generation tell them. Plain code.

#include "protocols/choreography/choreography.hpp"
#include "protocols/client/traces.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace parcae {

class trace_collection {
public:
  /// Of all together; of what comes then the spans are left out.
  static constexpr std::size_t max_spans = 500'000;

  /// `steps` steps of the ranks of `grid` are awaited, at most trace_steps::most; what was there before goes.
  void begin(job_id job, generation of, const placement& grid, std::uint32_t steps);

  /// Nothing if it was not asked for.
  void hear(const slot_id& from, traced x);

  /// All but what numbers below `from`, as far as it fits into a reply. `current`: the generation that trains; after
  /// another one nothing comes.
  trace_reply part(std::uint64_t from, generation current) const;

private:
  trace_reply all_;
  std::vector<participant> ranks_;
  std::vector<std::uint32_t> heard_; ///< steps, by rank
  std::size_t spans_ = 0;
};

} // namespace parcae
