#pragma once

// A profile as a file: the format of planner/cost/profile.hpp, with what this project measures besides.

#include "planner/choose/throughput.hpp"
#include "runtime/lab/profile_run.hpp"

#include <boost/json/object.hpp>

#include <string>

namespace parcae {

/// Every configuration of up to `slots` slots that fits their memory (0: all fit), predicted from what was measured at
/// 1×1.
std::vector<configuration> predicted_configurations(const job_specification& job, const job_measurements& x,
                                                    std::uint32_t slots, const slot_memory& memory);

boost::json::object to_json(const job_specification& job, const job_measurements& x,
                            const std::vector<configuration>& table);

/// For people.
std::string to_string(const job_measurements& x, const std::vector<configuration>& table);

} // namespace parcae
