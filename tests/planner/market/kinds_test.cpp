// Kinds of instances of unlike speed: what is rented of them, and where a job trains.

#include "planner/market/elastic_world.hpp"
#include "planner/market/purchase.hpp"
#include "planner/market/renting.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace parcae::market {
namespace {

purchase_options options_until(double hours) {
  purchase_options result;
  for (std::uint32_t n = 0; n <= 16; ++n)
    result.samples_per_s.push_back(std::pow(n, 0.85));
  result.start_s = 600;
  result.change_s = [](std::uint32_t from, std::uint32_t to) { return from == to ? 0.0 : 15.0; };
  result.move_s = 60;
  result.deadline_s = hours * 3600;
  return result;
}

// given: a place at one $ an hour, and one that is half as fast, at any price / expected: rented where a sample costs
// less, on demand too; the money and the end are those of that place
TEST(kinds, places_of_unlike_speed) {
  for (const double usd_per_h : {0.2, 0.4, 0.6, 0.9}) {
    auto options = options_until(12);
    const auto ticks = static_cast<std::size_t>(options.deadline_s / options.interval_s) + 1;
    const std::vector places{
        elastic_place{"fast", std::vector(ticks, 4u), std::vector(ticks, 1.0), 4, 3},
        elastic_place{"slow", std::vector(ticks, 4u), std::vector(ticks, usd_per_h), 4, 3 * usd_per_h, 0.5}};
    const auto bill = run_elastic(places, 3 * 3600 * options.samples_per_s[4], options.interval_s, options);
    const std::size_t better = usd_per_h < 0.5 ? 1 : 0;
    for (const auto& x : bill.decisions)
      EXPECT_TRUE(x.what.instances() == 0 || x.what.place == better) << usd_per_h << ": " << x.why;
    ASSERT_TRUE(bill.finish_s) << usd_per_h;
    const double hours = better == 1 ? 6 : 3;
    EXPECT_GE(*bill.finish_s, hours * 3600) << usd_per_h;
    EXPECT_GT(bill.places[better].spot, 0) << usd_per_h;
    EXPECT_EQ(bill.places[1 - better].spot + bill.places[1 - better].on_demand, 0) << usd_per_h;
  }
  auto options = options_until(2); // none but the fastest is in time
  const std::vector<place_offer> places{{"slow", 0, 0, 0.3, 8, 0.3, 0.25}, {"fast", 0, 0, 1, 8, 1, 1}};
  purchase_state now;
  now.places = places;
  now.samples_left = 1.5 * 3600 * options.samples_per_s[8];
  EXPECT_EQ(purchaser(options, places).decide(now).what.place, 1u);
}

} // namespace
} // namespace parcae::market
