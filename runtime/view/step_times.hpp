#pragma once

// Where the time of a job's steps goes, for people.

#include "protocols/client/client.hpp"

#include <string>

namespace parcae {

/// Each rank's mean.
step_parts mean_of(const std::vector<slot_times>& x);

/// A table of shares of the step, by part: the mean of all slots, and the slowest one; of one slot, that. Empty if
/// nothing is known.
std::string step_times_of(const job_status& x);

} // namespace parcae
