#pragma once

// What `parcae simulate --market` and `parcae advise` take from a market file and a profile. All throw
// std::runtime_error, one line for the user.

#include "planner/cost/profile.hpp"
#include "planner/market/market_runs.hpp"
#include "runtime/market/market_file.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace parcae {

/// Slots of an elastic job, at most.
inline constexpr std::uint32_t max_slots = 4096;

inline double seconds(std::chrono::milliseconds x) {
  return static_cast<double>(x.count()) / 1000;
}

/// The pools of a kind, as long as all histories are there. Pools without one, or all of them, need `assumed_ticks`:
/// then `most` of them are always to be had. `file` is for messages.
market::rented_market market_of(const std::string& file, const market_description& market, const std::string& kind,
                                double tick_s, std::optional<std::size_t> assumed_ticks = {});

struct instance_figures {
  std::uint32_t slots = 1;
  double start_s = 0; ///< the slowest
};
instance_figures instances_of(const std::string& file, const market_description& market, const std::string& kind);

/// A copy of a job's state.
double state_gb(const profile& workload);

/// Of 0, 1, … instances, up to `least` at least; beyond what was measured more of them add nothing.
std::vector<double> rates_of(const profile& workload, std::uint32_t slots, std::size_t least);

/// What the budget policy knows of the job; one copy of its state moves. Without `link_bytes_per_ms` the profile's.
market::purchase_options options_of(const profile& workload, std::optional<double> link_bytes_per_ms,
                                    std::uint32_t slots, const market::rented_market& market, std::size_t most);

} // namespace parcae
