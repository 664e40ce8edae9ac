#pragma once

// A job that serves, for people.

#include "protocols/client/client.hpp"

#include <string>
#include <vector>

namespace parcae {

/// Behind its state: ", 2×1, 12.3 tokens/s, 3 requests running, 0 queued".
std::string service_figures(const job_status& x);

/// Where it answers, how requests have fared, how long they take; a line each.
std::vector<std::string> service_lines(const job_status& x);

} // namespace parcae
