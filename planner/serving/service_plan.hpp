#pragma once

// Which pipelines a served model is to have on a number of slots: each candidate is tried by running the gateway's own
// schedule on measured passes over the same requests, and the least P99 of latency wins, queueing included. Pure.

#include "planner/serving/batches.hpp"
#include "planner/serving/pass_model.hpp"

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace parcae::serving {

/// What comes, as measured.
struct service_load {
  double per_s = 0;                     ///< requests, above 0
  std::vector<request_lengths> lengths; ///< of some; at least one
};

struct service_options {
  std::uint32_t least_slots = 1; ///< of a pipeline, as weights and one longest request fit no fewer
  batch_limits limits;
  std::uint32_t requests = 200;                        ///< that are tried
  std::uint64_t seed = 1;                              ///< of their arrivals
  std::uint32_t min_width = 1, max_width = UINT32_MAX; ///< inclusive
  /// No fewer pipelines where slots allow, so that one that is lost has others beside it.
  std::uint32_t wanted_width = 1;
  /// Of a request. Longer ones are tried as if they, and the time between them, were shorter in proportion, so that a
  /// decision takes no longer.
  std::uint32_t most_passes = UINT32_MAX;
  /// By depth from 1 on: of a pipeline at once, at most; 0: that depth does not fit. Empty: all do, `limits` hold.
  std::vector<std::uint32_t> requests_by_depth = {};
};

/// A shape at a load.
struct service_figures {
  service_shape shape;
  double p99_ms = 0;
  double mean_ms = 0;
  double most_per_s = 0; ///< requests it can do
  bool keeps_up = false;
};

struct service_choice {
  service_figures best; ///< width 0: nothing fits
  std::string why;      ///< for people
};

/// What a change is worth it for.
struct change_terms {
  double stall_ms = 0;
  double calm_ms = 0; ///< the time that the forecast gives the fleet
};

/// Not thread-safe. `model` must outlive it.
class service_planner {
public:
  service_planner(const pass_model& model, service_options options);

  /// `most_ms`: of a larger P99 nothing but that is of interest; then it, and the mean, are infinite.
  service_figures figures(const service_shape& shape, const service_load& load,
                          double most_ms = std::numeric_limits<double>::infinity());

  /// Of those that keep up the least P99; within 2 % fewer slots, then the shallower. If none does, the most requests a
  /// second.
  service_choice choose(std::uint32_t slots, const service_load& load);

  /// The same, but the present shape if a change is not worth its stall: what all requests wait longer for it against
  /// what they wait less until the fleet changes again. What is hardly better is no reason to change either.
  service_choice choose(std::uint32_t slots, const service_load& load, const service_shape& present,
                        const change_terms& terms);

private:
  struct candidate {
    service_shape shape; ///< with as many pipelines as there are slots for
    double alone_ms = 0; ///< a request of mean lengths on an idle pipeline
  };

  /// How much shorter requests are tried, and how they are.
  std::pair<double, service_load> tried(const service_load& load) const;
  batch_limits limits_at(std::uint32_t depth) const;
  bool allows(const service_shape& x, std::uint32_t slots) const;
  std::vector<candidate> candidates(std::uint32_t slots, const service_load& load) const;
  std::vector<service_figures> near_best(const std::vector<candidate>& all, const service_load& load, double& least_ms);
  service_figures fewest_pipelines(const service_figures& x, const service_load& load, double most_ms,
                                   std::uint32_t most_slots);
  double pipeline_per_s(const service_shape& shape, const service_load& load);
  /// True: what is known by then is enough.
  using enough = std::function<bool(double now_ms, const std::vector<served_request>& requests, const request_queue&)>;
  std::vector<served_request> run(const service_shape& shape, const arrival_list& arrivals,
                                  const enough& is_enough) const;

  const pass_model& model_;
  const service_options options_;
  /// By depth and degree: requests a second of a pipeline, for the lengths that were asked for last.
  std::map<std::pair<std::uint32_t, std::uint32_t>, double> pipeline_per_s_;
  std::vector<request_lengths> lengths_;
};

/// "2 pipelines of 3 stages"
std::string to_string(const service_shape& shape);

/// The value that the share `q` of these lies at or below, as the artifact of SpotServe counts; 0 of none.
double latency_quantile(std::vector<double> latencies, double q);

} // namespace parcae::serving
