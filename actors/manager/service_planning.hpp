#pragma once

// Which pipelines a job that serves is to have: planner/serving's choice, asked with what a conductor or an offer says.
// Pure.

#include "forecast/lattice.hpp"
#include "planner/choose/live_plan.hpp"
#include "planner/serving/service_grid.hpp"
#include "protocols/values/costs.hpp"
#include "protocols/values/job_specification.hpp"

#include <cstdint>
#include <optional>

namespace parcae {

/// `memory`: of the smallest slot.
serving::grid_choice grid_for(const job_specification& job, std::uint32_t slots, const slot_memory& memory);

/// The answer to a conductor. While nothing is measured it is grid_for's; then what the gateway's own schedule makes of
/// the passes and the requests that were measured, and the present shape where another is not worth its stall.
/// `calm_ms`: for how long the fleet stays as it is.
plan_answer decide_for_service(const job_specification& job, const situation& now, double calm_ms);

inline constexpr double usual_calm_ms = 600'000; ///< where nothing is forecast

/// As the forecast has it; a day at most.
double calm_ms_of(const job_specification& job, const availability_lattice& future);

} // namespace parcae
