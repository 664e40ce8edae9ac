#pragma once

// A budget of the job file, and whether it can hold at all, by prices and rates as they are now: for `submit --check`,
// and for what a manager says of what it does not rent. Pure.

#include "planner/market/renting.hpp"
#include "protocols/values/job_specification.hpp"

namespace parcae::market {

/// As the job file has it: what is 0 is not set.
job_budget budget_of(const budget_specification& x);

/// Each begins with the key that it is about.
struct budget_words {
  std::vector<std::string> problems; ///< why it cannot hold
  std::vector<std::string> unknown;  ///< what it depends on, or what is not known
};

/// Of a job that is submitted now. `pools`: with prices as they are now. Without rates of the job little is known.
budget_words words_on(const renting_job& job, const std::vector<instance_pool>& pools);

/// Why the money of an hour is not enough for what the job begins with; empty: it is.
std::string hourly_problem(const renting_job& job, const std::vector<instance_pool>& pools);

} // namespace parcae::market
