#pragma once

// What moves each kind of tensors between a job's slots, and why it is no better: for `status`. Pure.

#include "protocols/choreography/choreography.hpp"
#include "protocols/client/client.hpp"

#include <string>
#include <vector>

namespace parcae {

/// `said`: of the job as a whole, as far as heard. `wanted`: job.transport.
std::vector<link_status> links_of(const placement& grid, const transport_state& said, const std::string& wanted);

} // namespace parcae
