#pragma once

// What the budget policy knows of a job, from its profile: rates by instances, what changes cost. Pure.

#include "planner/cost/profile.hpp"
#include "planner/cost/realistic_cost.hpp"
#include "planner/market/purchase.hpp"

namespace parcae::market {

/// What changes take in markets' figures: as measured with the profile; else as usual, with what a published profile
/// says is built while nobody trains.
change_figures figures_with_builds(const profile& workload);

/// Rates, seconds of changes and of a move to another place; the fastest (D, P) of 1 to `most` instances of `slots`
/// each. Moves between places go over a link as between instances.
purchase_options elastic_figures(const profile& workload, const change_figures& figures, std::uint32_t slots,
                                 std::uint32_t most);

} // namespace parcae::market
