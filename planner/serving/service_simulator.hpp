#pragma once

// A model served on a fleet that changes: requests come, a policy chooses pipelines, batches compute. Pure; the same
// input gives the same bits.

#include "forecast/history.hpp"
#include "planner/serving/arrivals.hpp"
#include "planner/serving/batches.hpp"
#include "planner/serving/pass_model.hpp"
#include "planner/serving/service_plan.hpp"
#include "planner/serving/spotserve.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace parcae::serving {

enum class service_policy : std::uint8_t {
  spotserve, ///< shapes by the published accounting, at each change of the fleet
  service,   ///< shapes by service_planner, at each change of the fleet and each minute
};

enum class batch_kind : std::uint8_t { fixed, continuous };

/// What a change costs.
struct change_costs {
  double fixed_ms = 0;          ///< nothing is computed for as long
  double link_bytes_per_ms = 0; ///< over which caches move; 0: they are free, as in the published accounting
};

struct service_world {
  pass_model model;
  std::optional<serving_profile> profile; ///< for SpotServe's choices and static batches
  fleet_history fleet;                    ///< instances; a row holds until the next, the last one for good
  double end_ms = 0;                      ///< requests from then on are left out, those before are served to the end
  std::uint32_t slots_each = 1;           ///< of an instance
  arrival_list arrivals;
  std::uint32_t least_slots = 1;  ///< of a pipeline
  double asked_per_s = 0;         ///< requests; what is planned with until 100 came, under SpotServe's rule always
  batch_limits limits;            ///< of continuous batches
  std::uint32_t max_batch = 4;    ///< of static ones
  std::uint32_t new_tokens = 128; ///< SpotServe plans with
  change_costs changes;
  std::uint64_t seed = 1; ///< of who is lost where the fleet's rows do not say, and of the requests plans are tried on
};

/// A choice that was made.
struct service_step {
  double ms = 0;
  std::uint32_t slots = 0; ///< there are
  service_shape shape;
  double stall_ms = 0; ///< nobody computed: drained, then moved
  std::string why;
};

struct service_result {
  std::vector<served_request> requests; ///< by arrival; those without an end were not served when the trace ended
  std::vector<service_step> steps;
  double end_ms = 0;          ///< of the last request, or of the trace
  double instance_ms = 0;     ///< paid until then
  std::uint64_t tokens = 0;   ///< new ones
  std::uint64_t computed = 0; ///< positions
  std::uint64_t needed = 0;   ///< positions, each once
  std::uint32_t unserved = 0;

  std::vector<double> latencies_ms() const; ///< until the last token
  std::vector<double> first_ms() const;     ///< until the first
};

/// Requires the profile for SpotServe's policy and for static batches.
service_result simulate_service(const service_world& world, service_policy policy, batch_kind kind);

} // namespace parcae::serving
