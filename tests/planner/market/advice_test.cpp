// Advice beforehand: spreads that hold, ranks, knees, time.

#include "planner/market/advice.hpp"
#include "planner/market/elastic_figures.hpp"
#include "planner/market/market_data.hpp"
#include "planner/market/measured_clusters.hpp"
#include "tests/planner/market/market_figures.hpp"
#include "tests/support/slowness.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

namespace parcae::market {
namespace {

constexpr double advised_tick_s = 300;

purchase_options options_of(const char* model) {
  const auto workload = published::workload(model);
  auto figures = figures_with_builds(workload);
  figures.link_bytes_per_ms = 1.25e6;
  figures.detect_ms = 2'000;
  auto result = elastic_figures(workload, figures, 1, 32);
  result.start_s = 720;
  return result;
}

// From a tick on; the counts go round.
elastic_place place_of(const counts& zone, std::size_t first, std::size_t length) {
  constexpr std::size_t all = 3'247; // that all zones have
  elastic_place result{zone.place, {}, std::vector<double>(length, 0.918), 16, 3.06};
  for (std::size_t i = 0; i < length; ++i)
    result.spot.push_back(zone.available[(first + i) % all]);
  return result;
}

// Whether a run in a window lies in what was expected from all but it: money, time.
std::pair<bool, bool> is_expected(const std::vector<counts>& zones, std::size_t first, std::size_t length,
                                  purchase_options options) {
  constexpr std::size_t all = 3'247;
  advice_request x;
  x.samples = 24 * 3600 * options.samples_per_s[16];
  x.deadline_s = options.deadline_s = static_cast<double>(length) * advised_tick_s;
  std::vector<elastic_place> then;
  rented_market seen{advised_tick_s, {}, {}, 0};
  for (const auto& zone : zones) {
    seen.places.push_back(place_of(zone, first + length, all - length));
    then.push_back(place_of(zone, first, length));
  }
  x.kinds.push_back({"V100", seen, options});
  std::vector<double> usd, finish_h;
  for (const auto& run : runs_under(x, {})) {
    usd.push_back(run.usd);
    finish_h.push_back(run.finish_h.value_or(INFINITY));
  }
  const double independent = static_cast<double>(all - length) / static_cast<double>(length);
  const auto money = spread_of(usd, independent), time = spread_of(finish_h, independent);
  const auto bill = run_elastic(then, x.samples, advised_tick_s, options);
  const double hours = bill.finish_s.value_or(INFINITY) / 3600;
  return {bill.usd >= money.p10 && bill.usd <= money.p90, hours >= time.p10 && hours <= time.p90};
}

// given: the counts of 16 V100, each zone and all three, two models, 24 h of work in 36 h; for each window
// all but it as history / expected: what lies between 10 and 90 % holds for 80 ± 12 % of the windows
TEST(advice, spreads_hold_on_windows_not_seen) {
  PARCAE_NEEDS_MARKET_DATA();
  PARCAE_NEEDS_PUBLISHED_FIGURES();
  const auto counted = parse_counts(published_file("v100_16_counts.csv"), advised_tick_s);
  std::vector<std::vector<counts>> markets{counted};
  for (const auto& zone : counted)
    markets.push_back({zone});
  double runs = 0, money = 0, time = 0;
  for (const auto* model : {"gpt2-1.5b", "bert-large"}) {
    const auto options = options_of(model);
    constexpr auto length = static_cast<std::size_t>(36 * 3600 / advised_tick_s);
    for (const auto& zones : markets)
      for (std::size_t first = 0; first + length <= 3'247; first += length) {
        const auto [is_money, is_time] = is_expected(zones, first, length, options);
        runs += 1;
        money += is_money ? 1 : 0;
        time += is_time ? 1 : 0;
      }
  }
  std::printf("of %.0f runs cost is as expected in %.3f, time in %.3f\n", runs, money / runs, time / runs);
  EXPECT_NEAR(money / runs, 0.8, 0.12);
  EXPECT_NEAR(time / runs, 0.8, 0.12);
}

// given: 10 pools of 32, 14 days of history / expected: an answer in 5 s of a processor
TEST(advice, takes_little_time) {
  std::mt19937_64 random(1);
  advice_request x;
  advised_kind kind{"k", {advised_tick_s, {}, {}, 0.1}, {}};
  for (int n = 0; n <= 32; ++n)
    kind.options.samples_per_s.push_back(n == 0 ? 0 : std::pow(n, 0.85));
  kind.options.start_s = 300;
  kind.options.change_s = [](std::uint32_t from, std::uint32_t to) { return from == to ? 0.0 : 15.0; };
  for (int i = 0; i < 5; ++i) {
    elastic_place place{"p" + std::to_string(i), {}, {}, 32, 3};
    for (int t = 0; t < 14 * 24 * 12; ++t)
      place.spot.push_back(t > 0 && random() % 12 != 0 ? place.spot.back() : static_cast<std::uint32_t>(random() % 33));
    place.spot_usd_per_h.assign(place.spot.size(), 1);
    kind.market.places.push_back(std::move(place));
  }
  x.deadline_s = 36 * 3600;
  x.samples = 24 * 3600 * kind.options.samples_per_s[16];
  x.kinds.push_back(std::move(kind));
  advice result;
  const double seconds = stated_seconds([&] { result = advise(x); });
  RecordProperty("seconds", std::to_string(seconds));
  EXPECT_EQ(result.plans.front().what.rule, holding_rule::budget);
  EXPECT_LE(seconds, 5);
}

// given: clusters of K80, P100 and V100 as measured, always to be had / expected: the measured cheapest first
TEST(advice, ranks_measured_clusters) {
  PARCAE_NEEDS_MARKET_DATA();
  const auto measured = parse_clusters(published_file("transient_clusters.csv"));
  constexpr double steps = 64'000;
  advice_request x;
  x.samples = steps;
  x.deadline_s = 24 * 3600;
  const std::pair<const char*, std::pair<std::uint32_t, measured_cluster>> clusters[] = {
      {"V100", {4, {0, 0, 4, true}}}, {"K80", {8, {8, 0, 0, true}}}, {"P100", {4, {0, 4, 0, true}}}};
  for (const auto& [name, cluster] : clusters) {
    const auto& [n, key] = cluster;
    const auto& y = measured.at(key);
    advised_kind kind{name, {advised_tick_s, {}, {}, 0}, {}};
    kind.options.samples_per_s.assign(n, 0);
    kind.options.samples_per_s.push_back(steps / y.seconds);
    const std::size_t ticks = 24 * 12;
    kind.market.places.push_back(
        {"us", std::vector<std::uint32_t>(ticks, n), std::vector<double>(ticks, y.usd / y.seconds * 3600 / n), 0, 0});
    x.kinds.push_back(std::move(kind));
  }
  std::vector<std::string> ranked;
  for (const auto& plan : advise(x).plans)
    if (plan.what.rule == holding_rule::spot) {
      ranked.push_back(plan.text);
      EXPECT_EQ(plan.late, 0);
      EXPECT_NEAR(plan.usd_spread.p90, plan.usd, 1e-9);
    }
  EXPECT_THAT(ranked, testing::ElementsAre("4 spot P100 in us", "8 spot K80 in us", "4 spot V100 in us"));
}

// given: CM-DARE's speeds of ResNet-32 / expected: its knees
TEST(advice, knees_of_measured_speeds) {
  PARCAE_NEEDS_MARKET_DATA();
  const auto speeds = published_file("cmdare_speed.csv");
  advice_request x;
  x.samples = 1000;
  x.deadline_s = 3600;
  for (const auto& [gpu, servers] : {std::pair("p100", 1u), std::pair("p100", 2u), std::pair("k80", 1u)}) {
    advised_kind kind{gpu, {advised_tick_s, {}, {}, 0}, {}};
    kind.options.samples_per_s = parse_speeds(speeds, gpu, servers, "ResNet-32");
    kind.options.samples_per_s.insert(kind.options.samples_per_s.begin(), 0);
    kind.market.places.push_back({"us", std::vector<std::uint32_t>(12, 8), std::vector<double>(12, 1), 8, 3});
    x.kinds.push_back(std::move(kind));
  }
  EXPECT_THAT(advise(x).knees, testing::ElementsAre(4, 6, std::nullopt));
}

// given: two instances are of no use, three are / expected: no knee at one
TEST(advice, knee_is_beyond_sizes_of_no_use) {
  EXPECT_EQ(knee(std::vector{1.0, 1.0, 2.0, 2.0, 2.1}), 3u);
}

// given: spot there half of the time, a deadline, money / expected: what is in time comes first, each with its reason
TEST(advice, says_why) {
  advice_request x;
  x.deadline_s = 12 * 3600;
  x.samples = 6 * 3600 * 4;
  x.total_usd = 60;
  advised_kind kind{"k", {advised_tick_s, {}, {}, 0}, {}};
  kind.options.samples_per_s = {0, 1, 2, 3, 4};
  elastic_place place{"here", {}, std::vector<double>(288, 1), 4, 3};
  for (int i = 0; i < 288; ++i)
    place.spot.push_back(i % 24 < 12 ? 4 : 0);
  kind.market.places.push_back(place);
  x.kinds.push_back(kind);
  const auto result = advise(x);
  std::map<std::string, const advised_plan*> by_text;
  for (const auto& y : result.plans)
    by_text[y.text] = &y;
  const auto& first = result.plans.front();
  EXPECT_EQ(first.late + first.over, 0);
  EXPECT_THAT(first.why, testing::StartsWith("in time in all windows, "));
  const auto& on_demand = *by_text.at("4 on-demand k in here");
  EXPECT_NEAR(on_demand.usd, 6 * 4 * 3, 0.1);
  EXPECT_NEAR(on_demand.finish_spread.p50, 6, 0.01);
  EXPECT_NEAR(on_demand.places[0].on_demand, 24, 0.01);
  EXPECT_EQ(on_demand.why, "in time, but dearer than the total in 100 % of the windows");
  const auto& slow = *by_text.at("2 on-demand k in here");
  EXPECT_EQ(slow.late, 0); // at the deadline, just
  EXPECT_EQ(by_text.at("1 spot k in here")->why, "late in 100 % of the windows: spot is not always to be had");
  kind.market.places[0].spot.resize(100);
  x.kinds = {kind};
  EXPECT_THROW(advise(x), std::invalid_argument);
}

// given: independent runs from a known distribution / expected: 8 of 10 to come lie between
TEST(advice, spreads_of_few_runs_are_wider) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  for (const std::size_t n : {9, 19, 99}) {
    double inside = 0;
    constexpr int times = 4'000;
    for (int i = 0; i < times; ++i) {
      std::vector<double> runs;
      for (std::size_t k = 0; k < n; ++k)
        runs.push_back(normal(random));
      const auto x = spread_of(runs, static_cast<double>(n));
      const double to_come = normal(random);
      inside += to_come >= x.p10 && to_come <= x.p90 ? 1 : 0;
    }
    EXPECT_NEAR(inside / times, 0.8, 0.03) << n;
  }
}

// given: a table of measured rates / expected: those between are as fast as the most below; what is wrong, with its
// line
TEST(advice, rates_of_a_file) {
  const auto x = parse_rates("kind,instances,samples_per_s\nK80,1,4\nK80,4,15\nV100,2,30\n");
  ASSERT_EQ(x.size(), 2u);
  EXPECT_EQ(x[0].first, "K80");
  EXPECT_EQ(x[0].second, (std::vector<double>{0, 4, 4, 4, 15}));
  EXPECT_EQ(x[1].second, (std::vector<double>{0, 0, 30}));
  EXPECT_THROW(parse_rates("kind,instances,samples_per_s\nK80,2,4\nK80,2,15\n"), parse_error);
  EXPECT_THROW(parse_rates("kind,instances\n"), parse_error);
}

} // namespace
} // namespace parcae::market
