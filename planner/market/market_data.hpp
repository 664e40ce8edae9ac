#pragma once

// Files of availability and prices: published ones, SkyPilot's catalog. All throw parse_error. Pure.

#include "forecast/history.hpp"
#include "planner/market/gang_world.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace parcae::market {

/// How many instances of a place were to be had, by tick.
struct counts {
  std::string place;
  std::vector<std::uint32_t> available;
};

/// Columns window, zone, tick, available, spot_usd_per_h; a row holds until the zone's next, its last one is the end.
/// By window.
std::map<unsigned, std::vector<offers>> parse_windows(std::string_view text, double on_demand_usd_per_h);

/// Columns seconds, zone, count, likewise. At the beginning of each tick. Zones in the order in which they appear.
std::vector<counts> parse_counts(std::string_view text, double tick_s);

/// Whether the file is such a one.
bool is_counts_by_zone(std::string_view text);

/// The counts of a trace at the beginning of each tick.
std::vector<std::uint32_t> sampled(const fleet_history& trace, double tick_s);

/// From a tick on.
gang_market from_tick(const gang_market& x, std::size_t first);

/// Why the policies cannot be tried in it; empty if they can.
std::string problem_of(const gang_market& market, const gang_job& job);

struct catalog_entry {
  std::string kind;   ///< InstanceType
  std::string region; ///< Region
  std::string place;  ///< AvailabilityZone, or the region
  std::optional<double> on_demand_usd_per_h, spot_usd_per_h;
};

/// SkyPilot's catalog of a cloud (vms.csv), by the names of its columns.
std::vector<catalog_entry> parse_catalog(std::string_view text);

/// The cheapest offer of the kind in the place, a zone or a region.
std::optional<double> price_in(const std::vector<catalog_entry>& catalog, const std::string& kind,
                               const std::string& place, bool spot);

} // namespace parcae::market
