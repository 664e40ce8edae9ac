#pragma once

// Which pipelines a job that serves is to have: planner/serving's choice, asked with what a conductor or an offer says.
// Pure.

#include "planner/choose/live_plan.hpp"
#include "planner/serving/service_grid.hpp"
#include "protocols/values/costs.hpp"
#include "protocols/values/job_specification.hpp"

#include <cstdint>

namespace parcae {

/// `memory`: of the smallest slot.
serving::grid_choice grid_for(const job_specification& job, std::uint32_t slots, const slot_memory& memory);

/// The same as an answer to a conductor.
plan_answer decide_for_service(const job_specification& job, const situation& now);

} // namespace parcae
