// Kinds of instances of unlike speed: what is rented of them, and where a job trains.

#include "planner/market/elastic_world.hpp"
#include "planner/market/kinds.hpp"
#include "planner/market/purchase.hpp"

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

// Two kinds in a place, at one and at two $ an hour, spot alone, four of each.
const std::vector<instance_pool> two_kinds{{"small", "a", "k1", true, 1, 1.0, 4, std::chrono::minutes(3), ""},
                                           {"large", "a", "k2", true, 1, 2.0, 4, std::chrono::minutes(3), ""}};

/// Of a job that trains in time whatever it is; `small`: how many of the first kind are there.
renting_facts facts_of_job(std::uint32_t small) {
  renting_facts result;
  result.now_s = 1'700'000'000;
  auto& job = result.job.emplace();
  job.id = 1;
  job.budget.usd_per_h = 100;
  job.submitted_s = result.now_s;
  job.samples_left = 1e6;
  job.has_begun = true;
  job.kind = "k1";
  for (std::uint32_t n = 0; n <= 4; ++n)
    job.figures.samples_per_s.push_back(n);
  for (std::uint32_t i = 0; i < small; ++i)
    result.instances.push_back({"s" + std::to_string(i), "small", result.now_s});
  return result;
}

// given: a place with two kinds / expected: those of one kind train together
TEST(kinds, one_trains_at_a_time) {
  const renter rents(two_kinds, {}, 60);
  EXPECT_EQ(rents.place(), "a (k1)");
  EXPECT_THAT(rents.pools_of("a (k1)"), testing::ElementsAre("small"));
  EXPECT_THAT(rents.pools_of("a (k2)"), testing::ElementsAre("large"));
  EXPECT_EQ(rents.max_instances(), 4u);
}

// given: four instances of a kind train, and those of another one, at twice the price, were measured to be three times,
// or half, as fast / expected: these are rented in the first case; all of the first kind train on until they are there,
// and go then; nothing changes in the other
TEST(kinds, what_is_worth_more_by_its_measured_speed_is_rented) {
  for (const double speed : {3.0, 0.5}) {
    SCOPED_TRACE(speed);
    renter rents(two_kinds, {}, 60);
    auto x = facts_of_job(4);
    x.job->speeds["k2"] = speed;
    auto order = rents.decide(x);
    ASSERT_EQ(order.pools.size(), 2u);
    EXPECT_EQ(order.pools[0].want, 4u);
    EXPECT_EQ(order.pools[1].want, speed > 2 ? 4u : 0u) << order.why;
    EXPECT_EQ(order.place, "a (k1)");
    EXPECT_TRUE(order.let_go.empty());
    if (speed < 2)
      continue;
    x.now_s += 180;
    for (int i = 0; i < 4; ++i)
      x.instances.push_back({"l" + std::to_string(i), "large", x.now_s});
    order = rents.decide(x);
    EXPECT_EQ(order.place, "a (k2)");
    EXPECT_EQ(order.let_go.size(), 4u);
    EXPECT_EQ(order.way_usd, 0) << "it is the same place";
  }
}

// given: a kind that was not measured, measured, the job's own / expected: as fast as its price says, on demand if it
// is to be had so; else as measured
TEST(kinds, speeds) {
  auto job = *facts_of_job(0).job;
  EXPECT_EQ(speed_of("k1", job, two_kinds), 1);
  EXPECT_EQ(speed_of("k2", job, two_kinds), 2);
  auto pools = two_kinds;
  for (std::size_t i = 0; i < 2; ++i) {
    pools.push_back(pools[i]);
    pools.back().spot = false;
    pools.back().usd_per_h = i == 0 ? 2 : 10;
  }
  EXPECT_EQ(speed_of("k2", job, pools), 5);
  job.speeds["k2"] = 0.7;
  EXPECT_EQ(speed_of("k2", job, pools), 0.7);
  job.kind.clear();
  EXPECT_EQ(speed_of("k2", job, pools), 1) << "all are alike";
  const std::vector<double> slow{0, 1, 2}, fast{0, 4, 5, 9};
  EXPECT_EQ(speed_between(fast, slow), 3) << "of sizes that both have";
  EXPECT_EQ(speed_between(fast, {}), 1);
}

// given: pools that cannot be rented together / expected: said, with both names
TEST(kinds, refuses_pools_that_do_not_fit) {
  const auto refuses = [](auto change) {
    std::vector<instance_pool> pools{{"spot", "a", "k", true, 1, 1.0, 6, std::chrono::minutes(3), ""},
                                     {"sure", "a", "k", false, 1, 3.0, 6, std::chrono::minutes(3), ""}};
    EXPECT_NO_THROW(renter(pools, {}, 60));
    change(pools[1]);
    EXPECT_THROW(renter(pools, {}, 60), std::invalid_argument);
  };
  refuses([](instance_pool& x) { x.slots = 2; });
  refuses([](instance_pool& x) { x.spot = true; });
  refuses([](instance_pool& x) { x.usd_per_h.reset(); });
}

} // namespace
} // namespace parcae::market
