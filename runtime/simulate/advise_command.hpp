#pragma once

// `parcae advise`: what to rent, what it will cost and whether the deadline holds, beforehand; machines of a team.

#include "planner/market/advice.hpp"
#include "planner/market/queueing.hpp"

#include <boost/json/fwd.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace parcae {

/// What is asked, for reports.
struct advice_setting {
  std::string job, market;
  market::advice_request request;
  std::vector<std::string> assumed; ///< pools without a history, taken as always to be had
};

/// The best `plans` of them as a table, with a sentence each.
std::string to_table(const advice_setting& setting, const market::advice& x, std::size_t plans);
boost::json::object to_json(const advice_setting& setting, const market::advice& x);

/// Machines of a team, and what they cost.
struct fleet_choice {
  unsigned machines = 0;
  market::team_cost cost;
};

struct fleet_advice {
  market::team_load load;
  double max_wait_s = 0;             ///< who would wait longer rents
  unsigned best = 0;                 ///< 0: to rent all
  std::vector<fleet_choice> choices; ///< the best and those beside it
};

fleet_advice advise_fleet(const market::team_load& load, double max_wait_s);
std::string to_table(const fleet_advice& x);
boost::json::object to_json(const fleet_advice& x);

} // namespace parcae
