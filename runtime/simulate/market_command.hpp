#pragma once

// `parcae simulate --market`: what a gang, or an elastic job, would have paid on a market's history under its own
// policy and those of others.

#include "planner/market/market_runs.hpp"

#include <boost/json/fwd.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace parcae {

struct market_arguments {
  std::string file; ///< empty: it is not about a market
  std::string kind; ///< of the instances; empty: the only one
  std::optional<std::chrono::milliseconds> deadline;
  std::optional<double> total_usd, hourly_usd;
  std::string first = "deadline";          ///< or "total": what the budget policy keeps if both cannot hold
  std::optional<double> link_bytes_per_ms; ///< else the profile's
  std::chrono::milliseconds work{std::chrono::hours(24)}; ///< of the gang
  std::chrono::milliseconds tick{std::chrono::minutes(5)};
  std::uint32_t slots = 16;            ///< of the gang
  std::optional<double> checkpoint_gb; ///< else the profile's
};

/// The same for all policies.
struct market_setting {
  std::string market, kind;
  double deadline_h = 0, work_h = 0;
  std::uint32_t instances = 0; ///< of the gang
  std::optional<double> total_usd;
};

/// The policies that may be asked for.
std::vector<std::string> market_policies();

void add_market_options(CLI::App& command, market_arguments& args);

/// Prints a table, or JSON, and draws. `profile` may be empty: no bound then. Throws std::invalid_argument and
/// std::runtime_error.
void simulate_market(const market_arguments& args, const std::vector<std::string>& policies, const std::string& profile,
                     const std::string& plot, bool as_json);

// What was found, in the three forms.
std::string to_table(const market_setting& setting, const std::vector<market::market_run>& runs);
boost::json::object to_json(const market_setting& setting, const std::vector<market::market_run>& runs);
void plot_market(const std::string& path, const market_setting& setting, const market::rented_market& market,
                 const std::vector<market::market_run>& runs);

} // namespace parcae
