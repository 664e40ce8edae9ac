#pragma once

// At a change of a job that serves: what goes from whose caches to whose. Pure.

#include "protocols/choreography/choreography.hpp"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace parcae {

struct cache_situation {
  const placement* before = nullptr;   ///< that served last
  std::set<slot_id> there{};           ///< its slots that can send
  std::vector<std::uint64_t> cached{}; ///< positions by pipeline; empty: not known
  std::vector<double> layer_bytes{};   ///< of a position, by layer
  double row_ms = 0;                   ///< what computing a position takes; 0: not measured
  double link_bytes_per_ms = 0;
};

struct planned_caches {
  std::vector<cache_move> moves;
  std::string reason; ///< to be added to that of the plan; empty: there was nothing to decide
};

/// Each pipeline that is whole has an heir in `target`, which goes on with its requests. What of their caches is not
/// there moves, if that is quicker than to compute it again. Who only sends becomes a participant.
planned_caches plan_cache_moves(const cache_situation& now, placement& target);

} // namespace parcae
