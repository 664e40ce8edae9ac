#pragma once

// How fast instances of a kind are. Pure.

#include "planner/market/renting.hpp"

namespace parcae::market {

/// Of an instance, over that of one of the job's kind. One that was not measured is taken to be as fast as its price
/// says: the cheapest on demand, else spot, as the market file has it.
double speed_of(const std::string& kind, const renting_job& job, const std::vector<instance_pool>& pools);

/// What was measured on instances of two kinds, samples a second of 0, 1, … of them, as one speed over the other: of
/// all sizes together.
double speed_between(const std::vector<double>& of, const std::vector<double>& over);

} // namespace parcae::market
