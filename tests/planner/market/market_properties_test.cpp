// What must hold in every market: nobody is late, nobody is cheaper than who knows all.

#include "planner/market/elastic_bound.hpp"
#include "planner/market/gang_policies.hpp"
#include "planner/market/gang_world.hpp"
#include "planner/market/market_data.hpp"
#include "planner/market/market_runs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace parcae::market {
namespace {

constexpr double tick_s = 60;

offers place(std::string name, std::vector<std::uint8_t> available, double spot_usd, double on_demand_usd) {
  const auto size = available.size();
  return {std::move(name), std::move(available), std::vector<double>(size, spot_usd), on_demand_usd};
}

// Spells of availability, prices that move.
gang_market random_market(std::uint64_t seed, std::size_t ticks, std::size_t places) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform;
  gang_market result{tick_s, {}, {}};
  for (std::size_t i = 0; i < places; ++i) {
    offers x{std::string("us-east-") + std::to_string(i + 1) + "a", {}, {}, 60 * (2 + uniform(random))};
    bool up = uniform(random) < 0.5;
    double usd = 60 * (0.3 + uniform(random));
    for (std::size_t t = 0; t < ticks; ++t) {
      up = uniform(random) < 0.2 ? !up : up;
      usd = uniform(random) < 0.1 ? 60 * (0.3 + uniform(random)) : usd;
      x.available.push_back(up);
      x.spot_usd_per_h.push_back(usd);
    }
    result.places.push_back(std::move(x));
  }
  result.usd_per_gb = published_egress(result.places);
  return result;
}

gang_job job_of(double work, double deadline, double start, double gb = 0) {
  return {work * tick_s, deadline * tick_s, start * tick_s, gb};
}

// Does in each tick what it is told; nothing where that cannot be.
class scripted : public gang_policy {
public:
  explicit scripted(std::vector<std::optional<instance>> wanted) : wanted_(std::move(wanted)) {}

  void act(gang_world& world) override {
    const auto& x = wanted_[std::min(world.tick(), wanted_.size() - 1)];
    if (!x)
      world.stop();
    else if (world.running() != x && !world.launch(*x))
      world.stop();
  }

  bool is_latched() const override { return false; }

private:
  std::vector<std::optional<instance>> wanted_;
};

// given: spot for $60 an hour from the second to the fourth tick of a minute, on demand for $180; a start of one tick
// expected: each tick is paid, a start does no work, a loss is seen at the tick's beginning
TEST(gang_world, bill_by_hand) {
  const gang_market market{tick_s, {place("us-east-1a", {0, 1, 1, 1, 0, 0, 0, 0}, 60, 180)}, {{0}}};
  const instance spot{0, true}, on_demand{0, false};
  scripted policy({std::nullopt, spot, spot, spot, on_demand, on_demand});
  const auto job = job_of(3, 8, 1);
  const auto bill = gang_world(market, job).run(policy);
  EXPECT_DOUBLE_EQ(bill.usd, 3 * 1 + 2 * 3); // 2 of 3 done on spot, the third behind a start on demand
  EXPECT_DOUBLE_EQ(bill.as_published(), 6);
  EXPECT_EQ(bill.finish_s, 6 * tick_s);
  EXPECT_EQ(bill.launches, 2u);
  EXPECT_EQ(bill.spot_s, 3 * tick_s);
}

// given: checkpoints of 10 GB, from us-east-1 to us-west-1 / expected: egress once, at the launch there
TEST(gang_world, egress_by_hand) {
  gang_market market{
      tick_s,
      {place("us-east-1a", {1, 1, 0, 0, 0, 0}, 60, 600), place("us-west-1a", {1, 1, 1, 1, 1, 1}, 120, 600)},
      {}};
  market.usd_per_gb = published_egress(market.places);
  scripted policy({instance{0, true}, instance{0, true}, instance{1, true}});
  const auto job = job_of(2, 6, 1, 10);
  const auto bill = gang_world(market, job).run(policy);
  EXPECT_DOUBLE_EQ(bill.egress_usd, 0.2);
  EXPECT_DOUBLE_EQ(bill.usd, 2 * 1 + 2 * 2 + 0.2);
}

// By trying all that can be done.
double least_usd(const gang_market& market, const gang_job& job, std::size_t ticks) {
  const std::optional<instance> choices[] = {std::nullopt, instance{0, true}, instance{1, true}, instance{0, false},
                                             instance{1, false}};
  double least = INFINITY;
  for (std::size_t code = 0; code < static_cast<std::size_t>(std::pow(5, ticks)); ++code) {
    std::vector<std::optional<instance>> wanted;
    for (std::size_t t = 0, rest = code; t < ticks; ++t, rest /= 5)
      wanted.push_back(choices[rest % 5]);
    scripted policy(wanted);
    if (const auto bill = gang_world(market, job).run(policy); bill.finish_s)
      least = std::min(least, bill.usd);
  }
  return least;
}

TEST(gang_optimum, nothing_is_cheaper_of_all_that_can_be_done) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    constexpr std::size_t ticks = 6;
    const auto market = random_market(seed, ticks, 2);
    const auto job = job_of(3, ticks, 1);
    const auto policy = gang_optimum(market, job);
    const auto bill = gang_world(market, job).run(*policy);
    EXPECT_TRUE(bill.finish_s) << seed;
    EXPECT_NEAR(bill.usd, least_usd(market, job, ticks), 1e-9) << seed;
  }
}

// given: 200 random markets / expected: all are in time, and nobody who obeys the latch is cheaper than the optimum
TEST(gang_policies, in_time_and_not_cheaper_than_the_optimum) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const auto market = random_market(seed, 100, 1 + seed % 3);
    const auto job = job_of(30, 40 + static_cast<double>(seed % 40), static_cast<double>(seed % 4));
    ASSERT_EQ(problem_of(market, job), "");
    const auto best = gang_optimum(market, job);
    const double least = gang_world(market, job).run(*best).usd;
    const auto check = [&](std::unique_ptr<gang_policy> policy, bool cheaper) {
      const auto bill = gang_world(market, job).run(*policy);
      EXPECT_TRUE(bill.finish_s) << seed;
      if (!cheaper) { // a probe beside one's own instance makes it cheap
        EXPECT_GE(bill.usd, least - 1e-9) << seed;
      }
    };
    check(uniform_progress(), false);
    check(skynomad_oracle(), false);
    check(on_demand_only(), false);
    check(skynomad(market), true);
  }
}

// given: a tick with spot for 1 $, one without; on demand for 3 $; work of one and a half ticks
// expected: the half is bought on demand, at whose price the next sample would be, too
TEST(elastic_bound, by_hand) {
  const elastic_place x{"a", {1, 0}, {60, 60}, 1, 180};
  const auto bound = bound_of({x}, {{0, 1}, 1.5 * tick_s, 2 * tick_s}, tick_s);
  ASSERT_TRUE(bound);
  EXPECT_NEAR(bound->usd, 1 + 0.5 * 3, 1e-6);
  EXPECT_NEAR(bound->usd_per_sample, 3 / tick_s, 1e-9);
  EXPECT_FALSE(bound_of({x}, {{0, 1}, 2.1 * tick_s, 2 * tick_s}, tick_s));
}

// given: gangs alone have a rate / expected: at most what the gang's optimum pays
TEST(elastic_bound, is_below_the_optimum_of_a_gang) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const auto market = random_market(seed, 100, 2);
    const auto job = job_of(30, 50, 0);
    std::vector<elastic_place> places;
    for (const auto& x : market.places)
      places.push_back({x.place, {x.available.begin(), x.available.end()}, x.spot_usd_per_h, 1, x.on_demand_usd_per_h});
    const auto bound = bound_of(places, {{0, 1}, 30 * tick_s, 50 * tick_s}, tick_s);
    ASSERT_TRUE(bound);
    const auto best = gang_optimum(market, job);
    const double gang = gang_world(market, job).run(*best).usd;
    EXPECT_LE(bound->usd, gang + 1e-6) << seed;
    EXPECT_GE(bound->usd, 0.9 * gang) << seed; // without starts it is nearly that
  }
}

TEST(market_runs, says_what_cannot_be) {
  rented_market market{
      tick_s, {{"a", std::vector<std::uint32_t>(10, 4), std::vector<double>(10, 1.0), 2, 3}}, {{0}}, 0};
  rented_job job{job_of(3, 8, 1), 4, {}};
  const auto problem = [&](const std::string& policy) {
    try {
      run_policy(policy, market, job);
    } catch (const std::invalid_argument& e) {
      return std::string(e.what());
    }
    return std::string("nothing");
  };
  using testing::HasSubstr;
  EXPECT_THAT(problem("optimum"), HasSubstr("has 2 instances on demand, a gang needs 4"));
  EXPECT_THAT(problem("bound"), HasSubstr("needs --profile"));
  EXPECT_THAT(problem("luck"), HasSubstr("no policy luck"));
  market.places[0].on_demand = 4;
  EXPECT_EQ(problem("optimum"), "nothing");
  job.gang.deadline_s = 3.5 * tick_s;
  EXPECT_THAT(problem("optimum"), HasSubstr("not even on demand is in time"));
  job.gang.deadline_s = 11 * tick_s;
  EXPECT_THAT(problem("optimum"), HasSubstr("less than the deadline"));
}

} // namespace
} // namespace parcae::market
