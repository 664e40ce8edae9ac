#pragma once

// All that the slots of a job tell of their next steps.

#include "protocols/choreography/choreography.hpp"
#include "runtime/process/client.hpp"

namespace parcae {

inline constexpr std::uint32_t max_traced_steps = trace_steps::most;

/// `steps` steps of each slot, fewer if training does not go on. Waits for them, at most 2 minutes for the next word.
/// Throws client_error.
trace_reply whole_trace(manager_client& client, std::uint64_t job, std::uint32_t steps);

} // namespace parcae
