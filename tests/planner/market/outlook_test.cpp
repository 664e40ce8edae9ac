// What a job will yet cost and when it ends: by hand, and how often it comes true.

#include "planner/market/elastic_figures.hpp"
#include "planner/market/elastic_world.hpp"
#include "planner/market/outlook.hpp"
#include "tests/planner/market/market_figures.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace parcae::market {
namespace {

// given: a state with a holding of 10 samples for a dollar, one with nothing, each after the other for sure; 25 samples
// expected: three intervals with the holding, two without, and half of the last; once time is over, what is held then
TEST(outlook, by_hand) {
  const std::vector<std::vector<interval_choice>> choices{{{10, 1}}, {}};
  const auto by_turns = [](std::mt19937_64&) { return std::vector{0.0, 1.0, 1.0, 0.0}; };
  outlook_setting x;
  x.samples = 25;
  x.interval_s = 60;
  x.intervals = 100;
  x.choices = choices;
  x.chances = by_turns;
  x.usd_per_sample = [](auto...) { return 1.0; };
  auto seen = outlook_of(x, 9);
  EXPECT_DOUBLE_EQ(seen.finish_s, 4 * 60 + 30);
  EXPECT_EQ(seen.usd_spread, (spread{2.5, 2.5, 2.5}));
  x.usd_per_sample = [](auto...) { return 0.05; }; // less than it costs
  x.behind = {5, 3};
  seen = outlook_of(x, 9);
  EXPECT_DOUBLE_EQ(seen.finish_s, 105 * 60);
  EXPECT_DOUBLE_EQ(seen.usd_spread.p50, 15);
  x.behind = {};
  EXPECT_TRUE(std::isinf(outlook_of(x, 9).finish_s_spread.p10));
}

// given: a state that lasts for an interval or for ever, by a coin / expected: the quantiles of that
TEST(outlook, of_a_coin) {
  const std::vector<std::vector<interval_choice>> choices{{}, {{1, 1}}};
  const auto coin = [](std::mt19937_64&) { return std::vector{0.5, 0.5, 0.0, 1.0}; };
  outlook_setting x;
  x.samples = x.interval_s = 1;
  x.intervals = 1'000;
  x.choices = choices;
  x.chances = coin;
  x.usd_per_sample = [](auto...) { return 2.0; };
  const auto seen = outlook_of(x, 4'001);
  EXPECT_NEAR(seen.finish_s, 3, 0.1); // two intervals without on average, one with
  EXPECT_EQ(seen.finish_s_spread.p10, 2);
  EXPECT_GE(seen.finish_s_spread.p50, 2); // half of them: it may be either
  EXPECT_LE(seen.finish_s_spread.p50, 3);
  EXPECT_EQ(seen.finish_s_spread.p90, 5);
}

// A window, and what was told of it at some hours.
struct told_run {
  elastic_bill bill;
  std::vector<purchase> told;
  std::vector<double> spent_usd; ///< by then
};

told_run tell(const std::vector<elastic_place>& places, const purchase_options& options, double tick_s,
              const std::vector<int>& hours) {
  std::vector<place_offer> offers;
  for (const auto& x : places)
    offers.push_back({x.name, 0, 16, 0.918, 16, 3.06});
  purchaser policy(options, offers);
  told_run result;
  result.bill = run_elastic(places, 24 * 3600 * options.samples_per_s[16], tick_s, options, [&](const auto& now) {
    auto with = options;
    const bool is_asked = std::ranges::find(hours, now.now_s / 3600) != hours.end();
    with.courses = is_asked ? 200 : 0;
    policy.know(with, now.places);
    auto x = policy.decide(now);
    policy.look_ahead(now, x);
    if (is_asked) {
      result.told.push_back(x);
      result.spent_usd.push_back(now.spent_usd);
    }
    return x;
  });
  return result;
}

// given: the counts of 16 V100, each zone and all three, two models, 24 h of work in 36 h; what is told after 4, 8 and
// 12 hours of a window, of which nothing was known before / expected: most end and cost so. That it is fewer than the
// eight of ten: weeks differ by more than their first hours tell.
TEST(outlook, comes_true_on_real_counts) {
  PARCAE_NEEDS_MARKET_DATA();
  PARCAE_NEEDS_PUBLISHED_FIGURES();
  constexpr double tick_s = 300;
  constexpr std::ptrdiff_t length = 36 * 12;
  const auto counted = parse_counts(published_file("v100_16_counts.csv"), tick_s);
  std::vector<std::vector<counts>> markets{counted};
  for (const auto& zone : counted)
    markets.push_back({zone});
  double all = 0, money = 0, time = 0;
  for (const auto* model : {"gpt2-1.5b", "bert-large"}) {
    const auto workload = published::workload(model);
    auto figures = figures_with_builds(workload);
    figures.link_bytes_per_ms = 1.25e6;
    auto options = elastic_figures(workload, figures, 1, 32);
    options.start_s = 720;
    options.deadline_s = length * tick_s;
    for (const auto& zones : markets)
      for (std::ptrdiff_t window = 0; window < 3'247 / length; ++window) {
        const auto x = tell(v100_places(zones, window, length), options, tick_s, {4, 8, 12});
        ASSERT_TRUE(x.bill.finish_s);
        for (std::size_t i = 0; i < x.told.size(); ++i) {
          const double usd = x.bill.usd - x.spent_usd[i];
          all += 1;
          money += usd >= x.told[i].usd_spread.p10 && usd <= x.told[i].usd_spread.p90 ? 1 : 0;
          time += *x.bill.finish_s >= x.told[i].finish_s_spread.p10 && *x.bill.finish_s <= x.told[i].finish_s_spread.p90
                      ? 1
                      : 0;
        }
      }
  }
  ASSERT_EQ(all, 2 * 4 * 7 * 3);
  std::printf("of %.0f told cost is as expected in %.3f, time in %.3f\n", all, money / all, time / all);
  EXPECT_GT(money / all, 0.6);
  EXPECT_GT(time / all, 0.6);
  EXPECT_LT(money / all, 0.92);
  EXPECT_LT(time / all, 0.92);
}

} // namespace
} // namespace parcae::market
