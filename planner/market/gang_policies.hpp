#pragma once

// Policies of others for the gang world, by their public code. Pure.

#include "planner/market/gang_world.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace parcae::market {

/// Uniform progress with eager failover over places, UP(S): "Can't Be Late" (NSDI'24) as SkyNomad's authors carry it
/// over to several places.
std::unique_ptr<gang_policy> uniform_progress();

/// SkyNomad (NSDI'27): goes where an hour is worth most, with what it has seen of spot instances' lives.
/// `max_h`: no longer life is expected.
std::unique_ptr<gang_policy> skynomad(const gang_market& market, std::optional<double> max_h = {});

/// The same, which knows how long spot instances live, but no more: SkyNomad(o).
std::unique_ptr<gang_policy> skynomad_oracle();

/// The cheapest plan in whole ticks if all is known; by dynamic programming.
std::unique_ptr<gang_policy> gang_optimum(const gang_market& market, const gang_job& job);

/// On demand from the beginning, in the cheapest place.
std::unique_ptr<gang_policy> on_demand_only();

/// Parcae's own: what is worth most at the price of progress, and a reserve in place of the latch.
std::unique_ptr<gang_policy> budget_gang_policy(const gang_market& market, const gang_job& job);

/// Uniform progress in one place: "Can't Be Late" (NSDI'24, section 4), with its own end game and billing, in which the
/// last bill counts. US-dollars.
double uniform_progress_in(const gang_market& market, std::size_t place, const gang_job& job);

} // namespace parcae::market
