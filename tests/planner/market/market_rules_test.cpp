// Published rules of others: spotDNN, training on a dime, transient clusters, CM-DARE, the waiting game.

#include "planner/market/cheapest_now.hpp"
#include "planner/market/measured_clusters.hpp"
#include "planner/market/queueing.hpp"
#include "planner/market/window_search.hpp"
#include "tests/planner/market/market_figures.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace parcae::market {
namespace {

TEST(spotdnn, chooses_what_is_published) {
  PARCAE_NEEDS_MARKET_DATA();
  const auto kinds = parse_spotdnn(published_file("spotdnn_profile.csv"));
  using instances = std::vector<std::pair<std::string, unsigned>>;
  struct row {
    double loss, seconds;
    instances chosen;
    double takes_s, usd;
  };
  const instances few{{"p2.xlarge", 2}}, more{{"p2.xlarge", 2}, {"g3.8xlarge", 4}};
  for (const auto& x : {row{0.8, 3600, few, 2721.95, 1.388194}, row{0.8, 2400, more, 2351.08, 2.985872},
                        row{0.7, 3600, more, 3584.07, 4.551769}}) {
    const auto found = window_search(kinds, x.loss, x.seconds);
    ASSERT_TRUE(found);
    auto chosen = found->instances, wanted = x.chosen;
    std::ranges::sort(chosen);
    std::ranges::sort(wanted);
    EXPECT_EQ(chosen, wanted);
    EXPECT_DOUBLE_EQ(found->seconds, x.takes_s);
    EXPECT_DOUBLE_EQ(found->usd, x.usd);
  }
  EXPECT_FALSE(window_search(kinds, 0.8, 60));
}

class training_on_a_dime : public testing::Test {
protected:
  static double usd(const std::string& model, dime_rule rule, const dime_options& options = {}) {
    auto prices = parse_day_prices(published_file("dime_aws_us_east_1.csv"), false);
    for (auto& x : parse_day_prices(published_file("dime_azure.csv"), true))
      prices.push_back(x);
    return dime_usd(prices, parse_steps_per_s(published_file("dime_throughputs.csv")).at(model), rule, options);
  }
};

TEST_F(training_on_a_dime, costs_what_is_published) {
  PARCAE_NEEDS_MARKET_DATA();
  EXPECT_NEAR(usd("A3C", dime_rule::base), 95.5102, 1e-4);
  EXPECT_NEAR(usd("A3C", dime_rule::type), 72.1870, 1e-4);
  EXPECT_NEAR(usd("A3C", dime_rule::packed), 55.7326, 1e-4);
  EXPECT_NEAR(usd("A3C", dime_rule::cloud), 30.7789, 1e-4);
  EXPECT_NEAR(usd("A3C", dime_rule::dynamic), 27.0792, 1e-4);
}

TEST_F(training_on_a_dime, gains_by_model) {
  PARCAE_NEEDS_MARKET_DATA();
  const std::pair<const char*, double> gains[] = {{"A3C", 3.5271},
                                                  {"CycleGAN", 1.6407},
                                                  {"LM (batch size 80)", 1.8089},
                                                  {"Recommendation (batch size 8192)", 2.7628},
                                                  {"ResNet-50 (batch size 128)", 1.5298},
                                                  {"Transformer (batch size 256)", 3.2142}};
  for (const auto& [model, gain] : gains) {
    const double base = usd(model, dime_rule::base);
    EXPECT_NEAR(base / usd(model, dime_rule::dynamic), gain, 1e-4) << model;
    // Azure's instances compared as AWS's are, by the price of a GPU: no choice changes.
    EXPECT_NEAR(base / usd(model, dime_rule::dynamic, {4, false}), gain, 1e-4) << model;
  }
}

TEST(transient_clusters, means_of_the_runs) {
  PARCAE_NEEDS_MARKET_DATA();
  const auto all = parse_clusters(published_file("transient_clusters.csv"));
  const auto one = all.at({1, 0, 0, false}), eight = all.at({8, 0, 0, true}), kept = all.at({8, 0, 0, false});
  EXPECT_NEAR(one.seconds, 14'081, 1);
  EXPECT_NEAR(one.usd, 2.8279, 1e-3);
  EXPECT_NEAR(one.seconds / eight.seconds, 7.651, 1e-3);
  EXPECT_NEAR(100 * (1 - eight.usd / kept.usd), 63.01, 1e-2);
  const auto p100 = all.at({0, 4, 0, true}), v100 = all.at({0, 0, 4, true});
  EXPECT_NEAR(one.seconds / p100.seconds, 8.314, 1e-3);
  EXPECT_NEAR(p100.usd, 1.1042, 1e-3);
  EXPECT_NEAR(one.seconds / v100.seconds, 9.027, 1e-3);
  EXPECT_NEAR(v100.usd, 1.5542, 1e-3);
  EXPECT_LT(p100.usd, eight.usd);
  EXPECT_LT(eight.usd, v100.usd);
}

TEST(cm_dare, checkpoints_and_knees) {
  PARCAE_NEEDS_MARKET_DATA();
  const auto x = checkpoint_seconds(published_file("cmdare_checkpoints.csv"));
  EXPECT_NEAR(x.a, 3.75119, 1e-5);
  EXPECT_NEAR(x.b, 0.0200061, 1e-7);
  EXPECT_NEAR(x.r2, 0.92225, 1e-5);
  const auto speeds = published_file("cmdare_speed.csv");
  EXPECT_EQ(knee(parse_speeds(speeds, "p100", 1, "ResNet-32")), 4u);
  EXPECT_EQ(knee(parse_speeds(speeds, "p100", 2, "ResNet-32")), 6u);
  EXPECT_EQ(knee(parse_speeds(speeds, "k80", 1, "ResNet-32")), std::nullopt);
}

// given: 0.2 arrivals a second, 500 s each, a machine of one's own for 3.84, another's for 9.6 $/h
TEST(waiting_game, closed_forms) {
  const team_load load{0.2, 0.002, 3.84, 9.6};
  EXPECT_EQ(best_machines(load), 108u);
  const auto x = nobody_waits(load, 108);
  EXPECT_NEAR(x.usd_per_h, 4.48266248609, 1e-10);
  EXPECT_NEAR(x.rented, 0.03494400896808, 1e-10);
  const auto y = all_wait(load, 108);
  EXPECT_NEAR(y.usd_per_h, 4.1472, 1e-10);
  EXPECT_NEAR(y.wait_s, 20.5206050017, 1e-9);
}

// given: a limit to the wait / expected: between those who never and those who always wait, and their cost at its ends
TEST(waiting_game, limits_of_the_wait) {
  const team_load load{0.2, 0.002, 3.84, 9.6};
  const auto never = nobody_waits(load, 108), always = all_wait(load, 108);
  EXPECT_NEAR(some_wait(load, 108, 0).rented, never.rented, 1e-12);
  EXPECT_NEAR(some_wait(load, 108, 1e6).wait_s, always.wait_s, 1e-6);
  double before = never.usd_per_h + 1e-9, wait_s = -1e-9;
  for (const double max_s : {0.0, 1.0, 10.0, 100.0, 1000.0}) {
    const auto x = some_wait(load, 108, max_s);
    EXPECT_LT(x.usd_per_h, before);
    EXPECT_GT(x.wait_s, wait_s);
    before = x.usd_per_h;
    wait_s = x.wait_s;
  }
  // As many machines as there is work: the formula's hole.
  EXPECT_NEAR(some_wait(load, 100, 60).rented, some_wait({0.2 * (1 + 1e-5), 0.002, 3.84, 9.6}, 100, 60).rented, 1e-5);
}

// given: Erlang's tables / expected: B(5, 3) and C(5, 3)
TEST(waiting_game, erlang) {
  EXPECT_NEAR(erlang_b(5, 3), 0.1101, 5e-5);
  EXPECT_NEAR(erlang_c(5, 3), 0.2362, 5e-5);
  EXPECT_EQ(erlang_c(3, 3), 1);
  EXPECT_TRUE(std::isinf(all_wait({0.2, 0.002, 3.84, 9.6}, 100).wait_s));
}

} // namespace
} // namespace parcae::market
