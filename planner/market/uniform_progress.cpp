// "Can't Be Late: Optimizing Spot Instance Savings under Deadlines" (NSDI'24), section 4; as the public code of
// SkyNomad has it (sky_spot/strategies/rc_cr_threshold.py, multi_region_rc_cr_threshold_eager_failover.py).

#include "planner/market/gang_policies.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace parcae::market {

namespace {

enum class want : std::uint8_t { nothing, spot, on_demand };

want sort_of(const std::optional<instance>& x) {
  return !x ? want::nothing : x->spot ? want::spot : want::on_demand;
}

// Behind the line of uniform progress: below 0.
double lead_s(const gang_job& job, double now_s, double done_s) {
  return done_s - now_s * job.work_s / job.deadline_s;
}

// On demand may end once two starts are gained on the line.
bool must_stay(const gang_job& job, double now_s, double done_s) {
  return lead_s(job, now_s + 2 * job.start_s, done_s) <= 0;
}

class failover : public gang_policy {
public:
  void act(gang_world& world) override {
    const auto ran = world.running();
    if (ran)
      ran_last_ = ran->place;
    auto wanted = request(world, sort_of(ran), true);
    if (ran && wanted.first == sort_of(ran))
      return;
    world.stop();
    if (wanted.first == want::spot) {
      for (const auto i : order(world))
        if (world.launch({i, true}))
          return;
      if (wanted.second)
        return;
      wanted = request(world, want::nothing, false);
    }
    if (wanted.first == want::on_demand)
      world.launch({ran ? ran->place : world.worked_last().value_or(0), false});
  }

private:
  // With whether it is the way back from on demand.
  static std::pair<want, bool> request(const gang_world& x, want now, bool has) {
    auto result = has ? want::spot : want::nothing;
    if (lead_s(x.job(), x.now_s(), x.done_s()) < 0)
      result = has ? want::spot : want::on_demand;
    const bool stays = must_stay(x.job(), x.now_s(), x.done_s());
    if (now == want::on_demand && (!has || stays))
      result = want::on_demand;
    if (x.needs(2, false) && now != want::spot)
      result = want::on_demand;
    if (x.needs(1, true))
      result = now == want::spot && x.starting_s() < 1e-3 ? want::spot : want::on_demand;
    const bool back = now == want::on_demand && has && result == want::on_demand && !stays;
    return {back ? want::spot : result, back};
  }

  // Cheapest first; the region in which it last ran is the last.
  std::vector<std::size_t> order(const gang_world& world) const {
    const auto& places = world.market().places;
    std::vector<std::size_t> result(places.size());
    std::iota(result.begin(), result.end(), 0);
    std::ranges::stable_sort(result, {}, [&](auto i) { return places[i].spot_usd_per_h[world.tick()]; });
    if (ran_last_)
      std::stable_partition(result.begin(), result.end(),
                            [&](auto i) { return region_of(places[i].place) != region_of(places[*ran_last_].place); });
    return result;
  }

  std::optional<std::size_t> ran_last_;
};

class always_on_demand : public gang_policy {
public:
  void act(gang_world& world) override {
    const auto& places = world.market().places;
    if (!world.running())
      world.launch({static_cast<std::size_t>(std::ranges::min_element(places, {}, &offers::on_demand_usd_per_h) -
                                             places.begin()),
                    false});
  }
};

} // namespace

std::unique_ptr<gang_policy> uniform_progress() {
  return std::make_unique<failover>();
}

std::unique_ptr<gang_policy> on_demand_only() {
  return std::make_unique<always_on_demand>();
}

double uniform_progress_in(const gang_market& market, std::size_t place, const gang_job& job) {
  const auto& x = market.places[place];
  const double g = market.tick_s;
  const auto ticks = static_cast<std::size_t>(std::ceil(job.deadline_s / g));
  double usd = 0, done_s = 0, starting_s = 0;
  auto now = want::nothing;
  for (std::size_t t = 0; job.work_s - done_s > 1e-3; ++t) {
    const auto at = static_cast<double>(t) * g;
    const bool has = t < ticks && x.available[t] != 0;
    const auto ran = now;
    if (now == want::spot && !has)
      now = want::nothing;
    auto wanted = has ? want::spot : lead_s(job, at, done_s) < 0 ? want::on_demand : want::nothing;
    if (now == want::on_demand && (!has || must_stay(job, at, done_s)))
      wanted = want::on_demand;
    const auto needs = [&](int starts) {
      return std::ceil((job.work_s - done_s + starts * job.start_s) / g) * g >=
             std::floor((job.deadline_s - at) / g) * g;
    };
    if (needs(2) && now != want::spot)
      wanted = want::on_demand;
    if (needs(1))
      wanted = ran == want::spot && starting_s < 1e-3 ? want::spot : want::on_demand;
    if (wanted == want::spot && !has)
      wanted = needs(1) ? want::on_demand : want::nothing;
    if (wanted != now && wanted != want::nothing)
      starting_s = job.start_s;
    now = wanted;
    if (now == want::nothing)
      continue;
    // Billed when it has gone by, at the price of then.
    const auto& prices = x.spot_usd_per_h;
    usd += (now == want::spot ? prices[std::min(t + 1, prices.size() - 1)] : x.on_demand_usd_per_h) * g / 3600;
    done_s += std::min(std::max(g - starting_s, 0.0), job.work_s - done_s);
    starting_s = std::max(starting_s - g, 0.0);
  }
  return usd;
}

} // namespace parcae::market
