#pragma once

// A decision of the planner. The same values go from the planner through the conductor to `status`.
// Plain.

#include "protocols/base/described.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace parcae {

/// Slots to be expected at the end of an interval of the look-ahead.
struct forecast_outlook {
  double mean = 0;
  std::uint32_t low = 0;  ///< 10 % quantile
  std::uint32_t high = 0; ///< 90 % quantile

  friend bool operator==(const forecast_outlook&, const forecast_outlook&) = default;
};
BOOST_DESCRIBE_STRUCT(forecast_outlook, (), (mean, low, high))

/// A configuration and the samples expected of it over the look-ahead.
struct weighed_choice {
  std::string configuration; ///< "D×P", or "waiting"
  double samples = 0;

  friend bool operator==(const weighed_choice&, const weighed_choice&) = default;
};
BOOST_DESCRIBE_STRUCT(weighed_choice, (), (configuration, samples))

/// What was decided when, and why; what it was expected to cost, and did.
struct decision {
  std::uint64_t number = 0;               ///< 0, 1, … within the job
  std::int64_t at_us = 0;                 ///< monotonic clock of the manager's machine
  std::string trigger;                    ///< why the planner was asked
  std::string policy;                     ///< that decided
  std::vector<forecast_outlook> forecast; ///< of the next intervals, each one later; empty without a forecast
  weighed_choice chosen;
  std::vector<weighed_choice> runners_up; ///< best first, at most three
  std::string reason;                     ///< for people
  std::uint64_t generation = 0;           ///< that carries it out; 0: nothing was changed
  double expected_ms = 0;                 ///< stall of the change to it; 0 if nothing changes
  double realised_ms = -1;                ///< stall of that change; -1: none yet
  double p99_ms = 0; ///< of a job that serves: how long 99 of 100 requests take at most; 0: nothing was measured
  double requests_per_s = 0; ///< likewise: that it could do

  friend bool operator==(const decision&, const decision&) = default;
};
BOOST_DESCRIBE_STRUCT(decision, (),
                      (number, at_us, trigger, policy, forecast, chosen, runners_up, reason, generation, expected_ms,
                       realised_ms, p99_ms, requests_per_s))

} // namespace parcae
