#include "forecast/evaluation.hpp"
#include "forecast/method.hpp"
#include "forecast/path_methods.hpp"
#include "planner/simulation/trace_generator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace parcae {
namespace {

fleet_history generated(const std::string& kind, std::uint64_t seed) {
  return intervals_of(generate_trace(trace_kind(kind), seed));
}

// Probabilities sum to 1, branches lead to nodes with the right number of instances, every node can be reached.
void expect_sound(const availability_lattice& x, std::uint32_t available, std::size_t look_ahead,
                  const std::string& what) {
  ASSERT_EQ(x.look_ahead(), look_ahead) << what;
  ASSERT_EQ(x.start.size(), x.stages[0].size());
  double sum = 0;
  for (auto w : x.start)
    sum += w;
  EXPECT_NEAR(sum, 1, 1e-9) << what;
  for (const auto& node : x.stages[0])
    EXPECT_EQ(node.available, available) << what;
  for (std::size_t h = 0; h <= look_ahead; ++h)
    for (const auto& node : x.stages[h]) {
      EXPECT_EQ(node.branches.empty(), h == look_ahead) << what;
      double all = 0;
      for (const auto& b : node.branches) {
        all += b.probability;
        ASSERT_LT(b.next, x.stages[h + 1].size()) << what;
        ASSERT_LE(b.lost, node.available) << what;
        EXPECT_EQ(x.stages[h + 1][b.next].available, node.available + b.joined - b.lost) << what;
      }
      if (h < look_ahead) {
        EXPECT_NEAR(all, 1, 1e-9) << what;
      }
    }
  for (const auto& p : availability_of(x)) {
    double all = 0;
    for (auto q : p)
      all += q;
    EXPECT_NEAR(all, 1, 1e-9) << what;
  }
}

TEST(forecast_methods, give_sound_lattices) {
  for (const auto& name : method_names())
    for (const char* kind : {"p3", "collapsing", "large"}) {
      const auto method = make_method(name);
      const auto history = generated(kind, 2);
      expect_sound(method->forecast(3, planning_detail), 0, 3, name + " of nothing");
      for (std::size_t t = 0; t < std::min<std::size_t>(history.size(), 200); ++t) {
        method->observe(history[t]);
        if (t % 7 == 0 || history[t].lost > 0)
          for (double detail : {planning_detail, scoring_detail})
            expect_sound(method->forecast(12, detail), history[t].available, 12, name + " " + kind);
      }
      EXPECT_EQ(method->forecast(0, planning_detail).look_ahead(), 0u);
      EXPECT_EQ(method->point(5, planning_detail).size(), 5u);
    }
}

TEST(forecast_methods, auto_is_the_regime_chain) {
  const auto named = make_method("auto"), chain = make_method("regime");
  for (const auto& x : generated("daily", 3)) {
    named->observe(x);
    chain->observe(x);
    EXPECT_EQ(availability_of(named->forecast(12, planning_detail)),
              availability_of(chain->forecast(12, planning_detail)));
    EXPECT_EQ(named->point(12, planning_detail), chain->point(12, planning_detail));
  }
}

TEST(forecast_methods, are_deterministic) {
  const auto history = generated("bursty", 1);
  for (const auto& name : method_names()) {
    const auto a = make_method(name), b = make_method(name);
    for (std::size_t t = 0; t < 120; ++t) {
      a->observe(history[t]);
      b->observe(history[t]);
    }
    EXPECT_EQ(availability_of(a->forecast(8, planning_detail)), availability_of(b->forecast(8, planning_detail)));
  }
  EXPECT_THROW(make_method("tea leaves"), std::invalid_argument);
}

// Instances lost in one interval have no order.
TEST(forecast_methods, do_not_depend_on_the_order_of_instances) {
  auto history = generated("p3", 5);
  const auto method = make_method("survival"), other = make_method("survival");
  for (auto& x : history) {
    method->observe(x);
    std::reverse(x.lost_joined_in.begin(), x.lost_joined_in.end());
    other->observe(x);
  }
  EXPECT_EQ(availability_of(method->forecast(6, planning_detail)),
            availability_of(other->forecast(6, planning_detail)));
}

// given: distribution, outcome / expected: CRPS by hand
TEST(crps, by_hand) {
  EXPECT_NEAR(crps({0, 0, 1}, 2), 0, 1e-12);
  EXPECT_NEAR(crps({0, 0, 1}, 5), 3, 1e-12); // a point: absolute error
  EXPECT_NEAR(crps({0, 0, 1}, 0), 2, 1e-12);
  EXPECT_NEAR(crps({0.5, 0.5}, 0), 0.25, 1e-12);
  EXPECT_NEAR(crps({0.25, 0.5, 0.25}, 1), 2 * 0.0625, 1e-12);
}

// given: few forecasts / expected: the interval holds what it is of, however the values are spread; none of 30
// forecasts and less, and no figures at all of none
TEST(evaluate, says_no_more_than_it_knows) {
  const std::vector<std::string> methods{"last-spread", "last", "regime"};
  const std::vector<std::size_t> horizons{1, 4, 12};
  const auto history = generated("p3", 3);
  for (const std::size_t left : {5, 20, 36, 50, 80, 200})
    for (const auto& x : evaluate(history, methods, horizons, history.size() - left)) {
      EXPECT_EQ(x.forecasts, left + 1 > x.horizon ? left + 1 - x.horizon : 0);
      EXPECT_EQ(std::isnan(x.mae), x.forecasts == 0);
      EXPECT_EQ(std::isnan(x.crps), x.forecasts == 0);
      EXPECT_EQ(std::isnan(x.covered), x.forecasts == 0);
      EXPECT_EQ(std::isnan(x.difference_low), x.forecasts <= 30);
      if (x.forecasts > 30) {
        EXPECT_LE(x.difference_low, x.difference + 1e-12) << x.method << " of " << x.forecasts;
        EXPECT_GE(x.difference_high, x.difference - 1e-12) << x.method << " of " << x.forecasts;
      }
    }
}

// given: an exact AR(1) series and a straight line / expected: continued
TEST(arima_path, continues_what_it_should) {
  std::vector<double> series{100};
  for (int i = 0; i < 60; ++i)
    series.push_back(20 + 0.8 * (series.back() - 20));
  const auto path = arima_path(series, 3, 1, 0, 0, 60);
  ASSERT_EQ(path.size(), 3u);
  EXPECT_NEAR(path[0], 20 + 0.8 * (series.back() - 20), 1e-2);
  std::vector<double> line;
  for (int i = 0; i < 20; ++i)
    line.push_back(3 + 0.5 * i);
  const auto straight = arima_path(line, 4, 0, 1, 0, 20);
  EXPECT_NEAR(straight[3], 3 + 0.5 * 23, 1e-6);
  EXPECT_TRUE(arima_path({1, 2}, 4, 1, 1, 0, 12).empty());
  // Constant series and unstable fits stay bounded.
  for (auto x : arima_path(std::vector<double>(30, 7), 24, 2, 1, 1, 30))
    EXPECT_NEAR(x, 7, 1e-3);
  for (auto x : arima_path({1, 2, 4, 8, 16, 32, 64, 128, 256, 512}, 200, 1, 1, 0, 12))
    EXPECT_LE(x, 1025);
}

TEST(damped_smoothing, follows_a_level) {
  damped_smoothing law;
  std::vector<double> series(50, 10);
  series.insert(series.end(), 50, 20);
  for (auto x : law(series, 12))
    EXPECT_NEAR(x, 20, 0.5);
}

// A fleet that loses exactly one instance every fifth interval: the regime chain learns the rhythm.
TEST(regime_chain, learns_a_rhythm) {
  const auto method = make_method("regime");
  std::uint32_t available = 1000;
  method->observe({0, 1000, 0, available, {}});
  for (int t = 1; t <= 400; ++t) {
    const bool loses = t % 5 == 0;
    available -= loses ? 1 : 0;
    method->observe({60.0 * t, 0, loses ? 1u : 0u, available, {}});
  }
  const auto all = availability_of(method->forecast(5, planning_detail)); // the last loss was just now
  EXPECT_GT(all[3][available], 0.8);
  EXPECT_GT(all[4][available - 1], 0.8);
}

} // namespace
} // namespace parcae
