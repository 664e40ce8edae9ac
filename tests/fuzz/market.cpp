// Market files, feeds of prices, catalogs, histories of markets.

#include "planner/cost/profile.hpp"
#include "planner/market/market_data.hpp"
#include "runtime/market/market_file.hpp"
#include "tests/fuzz/fuzz.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  const auto text = as_text(data, size);
  try {
    const auto x = parse_market(text, "market.toml");
    promise(!x.pools.empty(), "a market has pools");
  } catch (const market_file_error&) {
  }
  try {
    for (const auto& x : parse_feed(text, "feed.csv"))
      promise(x.usd_per_h > 0, "prices are above 0");
  } catch (const market_file_error&) {
  }
  try {
    market::parse_catalog(text);
  } catch (const parse_error&) {
  }
  try {
    if (market::is_counts_by_zone(text))
      market::parse_counts(text, 300);
  } catch (const parse_error&) {
  }
  try {
    for (const auto& [window, places] : market::parse_windows(text, 3))
      for (const auto& x : places)
        promise(x.available.size() == x.spot_usd_per_h.size(), "each tick has a price");
  } catch (const parse_error&) {
  }
  return 0;
}
