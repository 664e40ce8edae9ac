// The least that a gang can cost if all is known, in whole ticks: dynamic programming over time, progress, and what
// runs where; as SkyNomad's public code has it (sky_spot/strategies/multi_region_oracle_dp.py).

#include "planner/market/gang_policies.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

namespace parcae::market {

namespace {

constexpr double impossible = std::numeric_limits<double>::infinity();

// Modes: 0 nothing yet; then by place waiting, on demand, spot. A state is a mode, ticks until it works, ticks of work
// done. Of plans that cost the same the first that is found is taken, in the order of the published code: they differ
// in what is saved where the work ends within a tick.
class optimum : public gang_policy {
public:
  optimum(const gang_market& market, const gang_job& job) :
      market_(market), job_(job), places_(market.places.size()), modes_(1 + 3 * places_),
      ticks_(static_cast<std::size_t>(std::floor(job.deadline_s / market.tick_s))),
      work_(static_cast<std::size_t>(std::ceil(job.work_s / market.tick_s))) {
    for (std::size_t from = 0; from < modes_; ++from)
      for (std::size_t to = 0; to < modes_; ++to) {
        changes_.push_back(from == to || !runs(to) ? change{} : change_of(from, to));
        starts_ = std::max(starts_, changes_.back().ticks);
      }
    solve();
  }

  void act(gang_world& world) override {
    const auto mode = world.tick() < plan_.size() ? plan_[world.tick()] : 0;
    if (!runs(mode)) {
      world.stop();
      return;
    }
    const instance wanted{place(mode), is_spot(mode)};
    if (world.running() != wanted && !world.launch(wanted))
      world.launch({wanted.place, false});
  }

  bool is_latched() const override { return false; }

private:
  bool runs(std::size_t mode) const { return mode > places_; }
  bool is_spot(std::size_t mode) const { return mode > 2 * places_; }
  std::size_t place(std::size_t mode) const { return (mode - 1) % places_; }

  double usd(std::size_t mode, std::size_t t) const {
    if (!runs(mode))
      return 0;
    const auto& x = market_.places[place(mode)];
    const double hours = market_.tick_s / 3600;
    if (is_spot(mode))
      return x.available[t] != 0 ? x.spot_usd_per_h[t] * hours : impossible;
    return x.on_demand_usd_per_h * hours;
  }

  // Seconds by which the transfer is longer than the launch hides.
  double move_s(std::size_t from, std::size_t to) const {
    const double mb = job_.checkpoint_gb * 8192;
    return from == to ? 0 : std::max(0.0, mb / 8200 - mb / 9720);
  }

  struct change {
    std::size_t ticks = 0; ///< without progress
    double usd = 0;
  };

  change change_of(std::size_t from, std::size_t to) const {
    const bool is_first = from == 0;
    const double s = job_.start_s + (is_first ? 0 : move_s(place(from), place(to)));
    const double per_gb = is_first ? 0 : market_.usd_per_gb[place(from)][place(to)];
    return {static_cast<std::size_t>(std::ceil(s / market_.tick_s)), per_gb * job_.checkpoint_gb};
  }

  // Who waits keeps the place.
  bool may_change(std::size_t from, std::size_t to) const {
    return runs(to) || (runs(from) && to > 0 && place(to) == place(from));
  }

  struct layer {
    std::vector<double> usd;          ///< least, by state
    std::vector<std::uint32_t> found; ///< states, the first one first
  };

  // All that a state can become in tick `t`.
  void grow(std::size_t t, std::uint32_t state, double so_far, layer& next) {
    const auto done = state % (work_ + 1), mode = state / (work_ + 1) / starts_, left = state / (work_ + 1) % starts_;
    const auto add = [&](std::size_t to, std::size_t start, bool works, double cost) {
      const auto then = std::min(work_, done + (works ? 1 : 0));
      if (cost > max_usd_ || then + ticks_ - (t + 1) < work_)
        return;
      const auto key = (to * starts_ + (start > 0 ? start - 1 : 0)) * (work_ + 1) + then;
      if (cost >= next.usd[key])
        return;
      if (next.usd[key] == impossible)
        next.found.push_back(static_cast<std::uint32_t>(key));
      next.usd[key] = cost;
      before_[t * modes_ * starts_ * (work_ + 1) + key] =
          static_cast<std::uint16_t>((mode * starts_ + left) * 2 + (then > done ? 1 : 0));
    };
    add(mode, left, left == 0 && runs(mode), so_far + usd(mode, t));
    for (std::size_t to = 0; to < modes_; ++to)
      if (to != mode && may_change(mode, to)) {
        const auto& how = changes_[mode * modes_ + to];
        add(to, how.ticks, how.ticks == 0 && runs(to), so_far + usd(to, t) + how.usd);
      }
  }

  void solve() {
    const auto states = modes_ * starts_ * (work_ + 1);
    before_.resize(ticks_ * states);
    const auto cheapest = std::ranges::min_element(market_.places, {}, &offers::on_demand_usd_per_h);
    // Always possible; a little more for what sums are rounded by.
    max_usd_ = (1 + 1e-9) * cheapest->on_demand_usd_per_h * (market_.tick_s / 3600) *
               (std::ceil(job_.start_s / market_.tick_s) + static_cast<double>(work_));
    layer now{std::vector<double>(states, impossible), {0}}, next{now.usd, {}};
    now.usd[0] = 0;
    for (std::size_t t = 0; t < ticks_; ++t) {
      for (const auto state : now.found)
        grow(t, state, now.usd[state], next);
      for (const auto state : now.found)
        now.usd[state] = impossible;
      now.found.clear();
      std::swap(now, next);
    }
    std::optional<std::uint32_t> best;
    for (const auto state : now.found)
      if (state % (work_ + 1) == work_ && (!best || now.usd[state] < now.usd[*best]))
        best = state;
    // If it cannot be in time: on demand all the time.
    plan_.assign(ticks_, best ? 0 : places_ + 1);
    for (auto t = ticks_; best && t-- > 0;) {
      const auto before = before_[t * states + *best];
      plan_[t] = *best / (work_ + 1) / starts_;
      best = static_cast<std::uint32_t>(before / 2 * (work_ + 1) + *best % (work_ + 1) - before % 2);
    }
    before_ = {};
  }

  const gang_market& market_;
  const gang_job& job_;
  std::size_t places_, modes_, ticks_, work_;
  std::size_t starts_ = 1;            ///< ticks of the longest start, at least 1
  std::vector<change> changes_;       ///< from a mode to another
  double max_usd_ = 0;                ///< what is dearer cannot be the best
  std::vector<std::uint16_t> before_; ///< by tick and state: mode and start before, whether work was done
  std::vector<std::size_t> plan_;     ///< mode by tick
};

} // namespace

std::unique_ptr<gang_policy> gang_optimum(const gang_market& market, const gang_job& job) {
  return std::make_unique<optimum>(market, job);
}

} // namespace parcae::market
