// The published figures of SkyNomad's simulator, and of a gang of 16 on real counts.

#include "planner/market/elastic_bound.hpp"
#include "planner/market/gang_policies.hpp"
#include "planner/market/market_data.hpp"
#include "tests/planner/market/market_figures.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

namespace parcae::market {
namespace {

using policy_maker = std::function<std::unique_ptr<gang_policy>(const gang_market&, const gang_job&)>;

const policy_maker optimum = [](auto& market, auto& job) { return gang_optimum(market, job); };
const policy_maker nomad = [](auto& market, auto&) { return skynomad(market); };
const policy_maker knowing_nomad = [](auto&, auto&) { return skynomad_oracle(); };
const policy_maker uniform = [](auto&, auto&) { return uniform_progress(); };

gang_bill billed(const gang_market& market, const gang_job& job, const policy_maker& make) {
  EXPECT_EQ(problem_of(market, job), "");
  const auto policy = make(market, job);
  const auto result = gang_world(market, job).run(*policy);
  EXPECT_TRUE(result.finish_s);
  return result;
}

// given: the windows 3, 5, 7, 8, 14 / expected: what is published
TEST(gang_world, costs_what_is_published) {
  PARCAE_NEEDS_MARKET_DATA();
  struct row {
    const char* name;
    const policy_maker& policy;
    double usd[5], mean;
  };
  const row rows[] = {
      {"optimum", optimum, {37.7413, 37.5424, 36.9954, 37.1943, 37.3932}, 37.3733},
      {"SkyNomad(o)", knowing_nomad, {42.1259, 45.8352, 36.9954, 42.2882, 42.7080}, 41.9906},
      {"SkyNomad", nomad, {42.9943, 45.1947, 37.0468, 40.4923, 42.9277}, 41.7312},
      {"UP(S)", uniform, {44.5295, 58.1110, 37.9954, 49.6173, 44.8355}, 47.0177},
  };
  const auto markets = windows();
  ASSERT_EQ(markets.size(), 5u);
  for (const auto& x : rows) {
    double sum = 0;
    for (std::size_t i = 0; i < 5; ++i) {
      const double usd = billed(markets[i], one_instance, x.policy).as_published();
      EXPECT_NEAR(usd, x.usd[i], 5e-4) << x.name << " in window " << i;
      sum += usd;
    }
    EXPECT_NEAR(sum / 5, x.mean, 5e-4) << x.name;
  }
}

TEST(gang_world, uniform_progress_in_one_place) {
  PARCAE_NEEDS_MARKET_DATA();
  const double expected[3][5] = {{127.9862, 116.8866, 90.1939, 103.2321, 87.0606},
                                 {77.6426, 47.0564, 49.7250, 41.5867, 38.4871},
                                 {39.1336, 76.0958, 38.1391, 42.2663, 55.2103}};
  const auto markets = windows();
  for (std::size_t place = 0; place < 3; ++place)
    for (std::size_t i = 0; i < 5; ++i)
      EXPECT_NEAR(uniform_progress_in(markets[i], place, one_instance), expected[place][i], 5e-4)
          << markets[i].places[place].place << " in window " << i;
}

// given: three zones' counts of 16 asked for, 24 h of work / expected: means over all windows, with the last bill. They
// are 16 times those of one instance: each of them has a checkpoint of 18.7 GB to move.
TEST(gang_world, gang_of_16) {
  PARCAE_NEEDS_MARKET_DATA();
  constexpr double tick_s = 300;
  constexpr std::size_t ticks = 3'247; // of the shortest
  constexpr unsigned size = 16;
  gang_market all{tick_s, {}, {}};
  for (const auto& x : parse_counts(published_file("v100_16_counts.csv"), tick_s)) {
    offers place{x.place, {}, std::vector<double>(x.available.size(), 0.918), 3.06};
    for (const auto n : x.available)
      place.available.push_back(n >= size);
    all.places.push_back(std::move(place));
  }
  all.usd_per_gb = published_egress(all.places);
  struct row {
    double deadline_h, optimum, uniform, nomad;
  };
  for (const auto& x :
       {row{30, 567.97, 675.30, 715.88}, row{36, 497.95, 649.63, 733.19}, row{48, 433.87, 527.46, 664.68}}) {
    const gang_job job{24 * 3600, x.deadline_h * 3600, one_instance.start_s, 18.7};
    const auto length = static_cast<std::size_t>(x.deadline_h * 3600 / tick_s);
    const auto mean = [&](const policy_maker& policy) {
      double sum = 0;
      for (std::size_t i = 0; i < ticks / length; ++i)
        sum += billed(from_tick(all, i * length), job, policy).usd;
      return size * sum / static_cast<double>(ticks / length);
    };
    EXPECT_NEAR(mean(optimum), x.optimum, 0.01) << x.deadline_h;
    EXPECT_NEAR(mean(uniform), x.uniform, 0.01) << x.deadline_h;
    EXPECT_NEAR(mean(nomad), x.nomad, 0.01) << x.deadline_h;
  }
}

// given: the same counts, the published profiles / expected: what an elastic job must pay at least
TEST(elastic_bound, of_16_on_counts) {
  PARCAE_NEEDS_MARKET_DATA();
  PARCAE_NEEDS_PUBLISHED_FIGURES();
  constexpr double tick_s = 300;
  const auto counted = parse_counts(published_file("v100_16_counts.csv"), tick_s);
  struct row {
    const char* model;
    double usd[3];
  };
  for (const auto& x : {row{"gpt2-1.5b", {352.89, 311.97, 276.22}}, row{"bert-large", {343.22, 299.87, 268.91}}}) {
    const auto workload = published::workload(x.model);
    elastic_job job;
    for (std::uint32_t n = 0; n <= 32; ++n)
      job.samples_per_s.push_back(workload.throughput(workload.fastest(n)));
    job.samples = 24 * 3600 * job.samples_per_s[16];
    const double deadlines_h[] = {30, 36, 48};
    for (std::size_t k = 0; k < 3; ++k) {
      job.deadline_s = deadlines_h[k] * 3600;
      const auto length = static_cast<std::ptrdiff_t>(job.deadline_s / tick_s);
      const std::ptrdiff_t windows = 3'247 / length;
      double sum = 0;
      for (std::ptrdiff_t i = 0; i < windows; ++i) {
        const auto bound = bound_of(v100_places(counted, i, length), job, tick_s);
        ASSERT_TRUE(bound);
        sum += bound->usd;
      }
      EXPECT_NEAR(sum / static_cast<double>(windows), x.usd[k], 0.05) << x.model << " in " << deadlines_h[k] << " h";
    }
  }
}

} // namespace
} // namespace parcae::market
