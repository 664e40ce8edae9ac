#pragma once

// Access to the published market data beside the checkout.

#include "planner/cost/profile.hpp"
#include "planner/market/elastic_world.hpp"
#include "planner/market/gang_policies.hpp"
#include "planner/market/market_data.hpp"
#include "tests/planner/published.hpp"

#include <filesystem>
#include <string>

namespace parcae::market {

inline std::string published_file(const char* name) {
  return read_file((published::folder() / "market" / name).string());
}

// SkyNomad's: three places, five windows; work of two thirds of the 1,106 ticks.
inline std::vector<gang_market> windows() {
  std::vector<gang_market> result;
  for (const auto& [number, places] : parse_windows(published_file("skynomad_v100_windows.csv"), 3.06))
    result.push_back({195, places, published_egress(places)});
  return result;
}

inline const gang_job one_instance{1106 * 195 / 1.5, 1106 * 195, 720, 50};

/// 16 V100 in each of these places, in the window of that number.
inline std::vector<elastic_place> v100_places(const auto& counted, std::ptrdiff_t number, std::ptrdiff_t length) {
  std::vector<elastic_place> result;
  for (const auto& x : counted)
    result.push_back({x.place,
                      {x.available.begin() + number * length, x.available.begin() + (number + 1) * length},
                      std::vector<double>(static_cast<std::size_t>(length), 0.918),
                      16,
                      3.06});
  return result;
}

} // namespace parcae::market

#define PARCAE_NEEDS_MARKET_DATA()                                                                                     \
  if (!std::filesystem::exists(parcae::published::folder() / "market"))                                                \
  GTEST_SKIP() << "needs the published market data in " << parcae::published::folder() / "market"
