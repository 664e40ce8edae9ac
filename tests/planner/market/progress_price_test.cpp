// The price of progress: what must hold of it.

#include "planner/market/elastic_bound.hpp"
#include "planner/market/progress_price.hpp"
#include "tests/support/slowness.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

namespace parcae::market {
namespace {

constexpr double interval_s = 300;
constexpr double late = 6 * 3.06 / 3600 / 10; // US-dollars of a sample that is not done

// Samples a second of n instances, each of which adds less than the one before.
double rate(std::size_t n) {
  return 10 * std::pow(static_cast<double>(n), 0.85);
}

std::vector<interval_choice> holdings(std::uint32_t spot, std::uint32_t most, double spot_usd, double on_demand_usd) {
  std::vector<interval_choice> result;
  for (std::uint32_t n = 1; n <= most; ++n) {
    const double usd = std::min(spot, n) * spot_usd + (n - std::min(spot, n)) * on_demand_usd;
    result.push_back({rate(n) * interval_s, usd * interval_s / 3600});
  }
  return corners_of(std::move(result));
}

// given: a future that is known, spells of 0 to 16 spot instances over 60 hours
// expected: the bound, and its price of a sample, within a hundredth
TEST(progress_price, of_a_known_future_is_the_bounds) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    elastic_place place{"a", {}, {}, 16, 3.06};
    std::uint32_t count = 8;
    for (int i = 0; i < 720; ++i) {
      if (random() % 6 == 0)
        count = static_cast<std::uint32_t>(random() % 17);
      place.spot.push_back(count);
      place.spot_usd_per_h.push_back(0.918);
    }
    elastic_job job{{0}, 40 * 3600 * rate(10), 720 * interval_s};
    std::vector<std::vector<interval_choice>> choices;
    for (std::uint32_t n = 1; n <= 16; ++n)
      job.samples_per_s.push_back(rate(n));
    for (const auto n : place.spot)
      choices.push_back(holdings(n, 16, 0.918, 3.06));
    const std::array certain{1.0};
    const progress_price price(
        {job.samples, 720, 1, late,
         [&](std::size_t i, std::size_t) { return std::span<const interval_choice>(choices[i]); },
         [&](std::size_t, std::size_t) { return std::span<const double>(certain); }});
    const auto bound = bound_of({place}, job, interval_s);
    ASSERT_TRUE(bound);
    EXPECT_NEAR(price.usd(0, 0, job.samples) / bound->usd, 1, 0.01) << seed;
    EXPECT_NEAR(price.usd_per_sample(0, 0, job.samples) / bound->usd_per_sample, 1, 0.01) << seed;
  }
}

// Six states from 0 to 15 spot instances, which drift to their neighbours.
struct drifting {
  explicit drifting(std::uint32_t more = 0, double spot_usd = 0.918) {
    for (std::uint32_t state = 0; state < 6; ++state) {
      choices.push_back(holdings(3 * state + more, 16, spot_usd, 3.06));
      auto& row = chances.emplace_back(6, 0.0);
      row[state] += 0.9;
      row[std::min(state + 1, 5u)] += 0.05;
      row[state == 0 ? 0 : state - 1] += 0.05;
    }
  }

  progress_price price(std::size_t intervals = 360) const {
    return progress_price({samples, intervals, 6, late,
                           [this](std::size_t, std::size_t s) { return std::span<const interval_choice>(choices[s]); },
                           [this](std::size_t, std::size_t s) { return std::span<const double>(chances[s]); }, 1200,
                           intervals + 1});
  }

  double samples = 20 * 3600 * rate(10);
  std::vector<std::vector<interval_choice>> choices;
  std::vector<std::vector<double>> chances;
};

TEST(progress_price, falls_with_samples_done_and_with_time_left) {
  const drifting market;
  const auto price = market.price();
  for (std::size_t i = 0; i < 360; i += 7)
    for (std::size_t state = 0; state < 6; ++state) {
      double before = 0;
      for (double share = 0.02; share <= 1; share += 0.02) {
        const double left = share * market.samples;
        const double usd = price.usd(i, state, left);
        EXPECT_GE(usd, before);
        before = usd;
        double later = 0; // to wait for an interval
        for (std::size_t other = 0; other < 6; ++other)
          later += market.chances[state][other] * price.usd(i + 1, other, left);
        EXPECT_LE(usd, later + 1e-9);
      }
    }
  EXPECT_EQ(price.usd(0, 3, 0), 0);
}

// given: one instance more in each state; spot for half / expected: less to pay, from each state
TEST(progress_price, more_to_be_had_costs_no_more) {
  const drifting market;
  const auto price = market.price(), more = drifting(1).price(), cheaper = drifting(0, 0.459).price();
  for (std::size_t state = 0; state < 6; ++state) {
    const double usd = price.usd(0, state, market.samples);
    EXPECT_LE(more.usd(0, state, market.samples), usd);
    EXPECT_LT(cheaper.usd(0, state, market.samples), usd);
  }
}

// given: little time left / expected: a sample is worth what on demand costs; with much time, less than that
TEST(progress_price, lies_between_spot_and_on_demand) {
  const drifting market;
  const auto price = market.price(1'000);
  const double spot = 0.918 / 3600 / rate(1);
  EXPECT_GT(price.usd_per_sample(0, 3, market.samples), spot);
  EXPECT_LT(price.usd_per_sample(0, 3, market.samples), 3.06 * 16 / 3600 / rate(16));
  EXPECT_GT(price.usd_per_sample(900, 0, market.samples), price.usd_per_sample(0, 0, market.samples));
}

// given: so much money / expected: as many samples as cost it
TEST(progress_price, what_money_is_enough_for) {
  const drifting market;
  const auto price = market.price();
  for (const double share : {0.1, 0.5, 0.9}) {
    const double samples = share * market.samples;
    EXPECT_NEAR(price.samples_for(0, 3, price.usd(0, 3, samples)), samples, market.samples / 1'199);
  }
  EXPECT_EQ(price.samples_for(0, 3, -1), 0);
}

// expected: 720 intervals of six states in 100 ms of a processor
TEST(progress_price, takes_little_time) {
  const drifting market;
  double least = 1e9;
  for (int i = 0; i < 3; ++i) {
    least = std::min(least, 1e3 * stated_seconds([&] { EXPECT_GT(market.price(720).usd(0, 3, market.samples), 0); }));
  }
  RecordProperty("ms", static_cast<int>(least));
  EXPECT_LE(least, 100);
}

// given: holdings, one of which is dearer than a mix of its neighbours / expected: it is left out
TEST(progress_price, corners) {
  const auto x = corners_of({{1, 1}, {2, 3}, {4, 6}, {3, 5}, {5, 8}});
  ASSERT_EQ(x.size(), 3u);
  EXPECT_EQ(x[0].usd, 1);
  EXPECT_EQ(x[1].usd, 6);
  EXPECT_EQ(x[2].usd, 8);
}

} // namespace
} // namespace parcae::market
