#pragma once

// Access to the published market data beside the checkout.

#include "planner/cost/profile.hpp"
#include "tests/planner/published.hpp"

#include <filesystem>
#include <string>

namespace parcae::market {

inline std::string published_file(const char* name) {
  return read_file((published::folder() / "market" / name).string());
}

} // namespace parcae::market

#define PARCAE_NEEDS_MARKET_DATA()                                                                                     \
  if (!std::filesystem::exists(parcae::published::folder() / "market"))                                                \
  GTEST_SKIP() << "needs the published market data in " << parcae::published::folder() / "market"
