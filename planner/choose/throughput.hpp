#pragma once

// The `throughput` policy: (D, P) with the most samples per second, by the model of a step and what was measured.

#include "planner/cost/step_meter.hpp"
#include "planner/cost/step_model.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace parcae {

struct configuration {
  std::uint32_t width = 0; ///< 0: wait, nothing fits
  std::uint32_t depth = 0;
  std::vector<std::uint32_t> first_layer;
  double samples_per_s = 0;
  std::string reason;           ///< for people; names the runner-up
  double low_samples_per_s = 0; ///< samples_per_s lies in between with 95 %
  double high_samples_per_s = 0;
  double predicted_samples_per_s = 0; ///< by the model alone, whatever was measured
  std::uint64_t measured_steps = 0;   ///< that samples_per_s is from; 0: was not visited
  std::uint64_t visits = 0;           ///< generations measured
  bool measured_by_cpu = false;       ///< see measured_step

  friend bool operator==(const configuration&, const configuration&) = default;
};

/// What configurations are chosen by.
struct step_knowledge {
  std::span<const layer_cost> layers;
  platform_cost platform = {};
  std::span<const measured_step> measured = {}; ///< of the configurations visited
  slot_memory memory = {};                      ///< of a slot; see planner/situation/memory.hpp
  std::uint32_t keepers = 0;                    ///< that snapshots are sent to
};

/// Every (D, P) allowed by the job that `slots` slots can hold: with the rate measured where the job has been,
/// elsewhere with the model's, corrected by the error seen. Those with a stage that does not fit into a slot's memory
/// have width 0, and the reason says why.
std::vector<configuration> configurations(const job_specification& job, const step_knowledge& known,
                                          std::uint32_t slots);

/// Those that fit a slot's memory, as predicted from what was measured at 1×1 alone, where a step takes `single_ms`:
/// what the model was made from is known, but says nothing of its error.
std::vector<configuration> predicted_configurations(const job_specification& job, const step_knowledge& known,
                                                    double single_ms, std::uint32_t slots);

/// Takes new measurements into account, as configurations() does.
void refine(std::vector<configuration>& all, const job_specification& job, std::span<const measured_step> measured);

/// The best of them; among equals (within 1e-9) the one with fewer slots, then the shallower.
configuration best_configuration(const job_specification& job, const step_knowledge& known, std::uint32_t slots);

} // namespace parcae
