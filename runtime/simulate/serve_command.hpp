#pragma once

// `parcae simulate --serve`: a served model's latencies and costs on a trace, by SpotServe's rules and the service's
// own.

#include "planner/serving/service_simulator.hpp"

#include <boost/json/fwd.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace parcae {

struct serve_arguments {
  bool is_on = false;
  std::string arrivals;                  ///< a file or a law
  std::string batches;                   ///< static or continuous; empty: static under SpotServe's policy
  std::optional<double> asked;           ///< requests a second; else the mean of the arrivals
  serving::request_lengths usual;        ///< where the arrivals do not say
  std::uint32_t least_slots = 1;         ///< of a pipeline
  std::optional<std::uint32_t> requests; ///< in a pipeline at once; else as many as were measured
  std::uint32_t chunk = 64;
  std::uint32_t batch = 4;            ///< of static ones
  std::chrono::milliseconds stall{4}; ///< of a change, besides what moves
  std::optional<double> price;        ///< of an instance, US-dollars an hour
  std::uint64_t seed = 1;
  // Of the command's other options:
  std::string profile, trace, accounting;
  std::optional<double> link_bytes_per_ms;
  std::uint32_t devices = 1; ///< of an instance
};

/// The same for all policies.
struct serve_setting {
  std::string profile, trace, arrivals, accounting;
  double asked_per_s = 0;
  std::size_t requests = 0;
  std::optional<double> usd_per_hour;
};

/// What came of a policy.
struct serve_run {
  std::string policy, batches;
  serving::service_result result;
};

/// The policies that may be asked for.
std::vector<std::string> serve_policies();

void add_serve_options(CLI::App& command, serve_arguments& args);

/// Prints a table, or JSON. Throws std::invalid_argument and std::runtime_error.
void simulate_serving(const serve_arguments& args, const std::vector<std::string>& policies, bool as_json);

// What was found.
std::string to_table(const serve_setting& setting, const std::vector<serve_run>& runs);
boost::json::object to_json(const serve_setting& setting, const std::vector<serve_run>& runs);

} // namespace parcae
