#pragma once

#include "actors/conductor/conductor.hpp"

namespace parcae {

/// What the conductor must know of a job's model: sizes, and times estimated from floating-point operations until
/// measured ones arrive.
model_facts facts_of(const job_specification& job);

} // namespace parcae
