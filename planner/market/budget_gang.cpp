// The budget policy with one instance, or one gang, in the gang world: its bills and egress, the own reserve in place
// of its latch. What is to be had is known of every place, as a feed says it; nothing of what comes.

#include "planner/market/gang_policies.hpp"
#include "planner/market/purchase.hpp"

#include <cmath>

namespace parcae::market {

namespace {

std::vector<place_offer> offers_of(const gang_world& world) {
  std::vector<place_offer> result;
  for (const auto& x : world.market().places)
    result.push_back({x.place, x.available[world.tick()], 1, x.spot_usd_per_h[world.tick()], 1, x.on_demand_usd_per_h});
  return result;
}

// Work is done in whole ticks, so the last one may end at the deadline at the latest.
purchase_options options_of(const gang_market& market, const gang_job& job) {
  purchase_options result;
  result.samples_per_s = {0, 1};
  result.interval_s = market.tick_s;
  result.start_s = job.start_s;
  result.deadline_s = std::floor(job.deadline_s / market.tick_s) * market.tick_s - market.tick_s;
  result.meanwhile = false;
  result.move_usd.resize(market.places.size(), std::vector<double>(market.places.size(), 0));
  for (std::size_t from = 0; from < market.usd_per_gb.size(); ++from)
    for (std::size_t to = 0; to < market.usd_per_gb[from].size(); ++to)
      result.move_usd[from][to] = market.usd_per_gb[from][to] * job.checkpoint_gb;
  return result;
}

class budget_gang : public gang_policy {
public:
  budget_gang(const gang_market& market, const gang_job& job) : options_(options_of(market, job)) {}

  void act(gang_world& world) override {
    purchase_state x;
    x.now_s = world.now_s();
    x.samples_left = world.left_s();
    x.places = offers_of(world);
    if (!policy_)
      policy_.emplace(options_, x.places);
    if (const auto& runs = world.running()) {
      x.held = {runs->place, runs->spot ? 1u : 0u, runs->spot ? 0u : 1u};
      x.starting_s = world.starting_s();
      x.on_demand_starting_s = runs->spot ? 0 : x.starting_s;
      if (x.starting_s <= 0)
        x.working = x.held;
    }
    x.last_place = world.worked_last();
    x.is_reserve = is_reserve_;
    x.share_used = (world.done_s() + prior_share * prior_s) / (rented_s_ + prior_s);
    const auto decision = policy_->decide(x);
    is_reserve_ = decision.is_reserve;
    rented_s_ += decision.what.instances() > 0 ? options_.interval_s : 0;
    if (decision.what == x.held)
      return;
    if (decision.what.instances() == 0)
      world.stop();
    else
      world.launch({decision.what.place, decision.what.spot > 0});
  }

  bool is_latched() const override { return false; }

private:
  static constexpr double prior_s = 6 * 3600, prior_share = 0.95; // of time rented that is not lost to starts

  purchase_options options_;
  std::optional<purchaser> policy_;
  double rented_s_ = 0;
  bool is_reserve_ = false;
};

} // namespace

std::unique_ptr<gang_policy> budget_gang_policy(const gang_market& market, const gang_job& job) {
  return std::make_unique<budget_gang>(market, job);
}

} // namespace parcae::market
