// "SkyNomad: On Using Multi-Region Spot Instances to Minimize AI Batch Job Cost" (NSDI'27); as its public code has it
// (sky_spot/strategies/unified_cost_model.py, unified_cost_model_oracle.py, configuration v100).

#include "planner/market/gang_policies.hpp"
#include "planner/market/spot_lives.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace parcae::market {

namespace {

constexpr std::size_t probe_every = 6; // ticks
constexpr double infinity = std::numeric_limits<double>::infinity();

class nomad : public gang_policy {
public:
  void act(gang_world& world) override {
    look(world);
    const auto now = world.running();
    if (now)
      last_ = now->place;
    const double v = usd_per_worked_h(world);
    const double worth_now = now ? worth(world, *now, v, now) : 0;
    bool is_taken = false;
    std::optional<instance> taken;
    for (const auto& [value, x] : options(world, v, worth_now)) {
      if (value <= worth_now)
        break;
      if (x && x == now)
        continue;
      if (!x || try_launch(world, *x)) {
        is_taken = true;
        taken = x;
        break;
      }
    }
    if (is_taken) { // nothing, and what runs runs on all the same
      last_ = taken ? std::optional(taken->place) : std::nullopt;
      if (now && taken)
        left(world, *now);
    }
    probe(world, is_taken ? last_ : now ? std::optional(now->place) : std::nullopt);
  }

protected:
  using option = std::pair<double, std::optional<instance>>;

  virtual void look(gang_world& world) = 0;                                    ///< before a decision
  virtual double life_h(const gang_world& world, std::size_t place) const = 0; ///< expected
  virtual double spot_usd(const gang_world& world, std::size_t place) const = 0;
  virtual bool try_launch(gang_world& world, const instance& x) { return world.launch(x); }
  virtual void left(const gang_world&, const instance&) {}
  virtual void probe(gang_world&, std::optional<std::size_t>) {}

private:
  // The rate of progress that is needed from now on, over that planned, times what on demand costs.
  double usd_per_worked_h(const gang_world& world) const {
    const auto& job = world.job();
    double on_demand = infinity, spot = infinity;
    for (std::size_t i = 0; i < world.market().places.size(); ++i) {
      on_demand = std::min(on_demand, world.market().places[i].on_demand_usd_per_h);
      spot = std::min(spot, spot_usd(world, i));
    }
    const double ratio = world.left_s() * job.deadline_s / ((job.deadline_s - world.now_s()) * job.work_s);
    return std::max(on_demand * ratio, spot);
  }

  // Of an hour, where it runs without the start.
  double worth(const gang_world& world, const instance& x, double v, const std::optional<instance>& now) const {
    if (!x.spot)
      return v - world.market().places[x.place].on_demand_usd_per_h;
    const double life = life_h(world, x.place);
    const double works = now == x ? life : life - world.job().start_s / 3600;
    return works <= 0 ? -infinity : (v * works - spot_usd(world, x.place) * life) / life;
  }

  std::vector<option> options(const gang_world& world, double v, double worth_now) const {
    const auto now = world.running();
    const double gate = worth_now + 0.5 + 0.0002 * world.job().checkpoint_gb + 0.05 * v;
    std::vector<option> result{{0, std::nullopt}};
    for (const bool spot : {true, false})
      for (std::size_t i = 0; i < world.market().places.size(); ++i) {
        const instance x{i, spot};
        double value = worth(world, x, v, now);
        if (last_ && *last_ != i)
          value -= spot ? world.egress_usd(*last_, i) / std::max(life_h(world, i), 1e-6)
                        : world.job().start_s / 3600 * v + world.egress_usd(*last_, i);
        const bool is_gated = now && (!spot || now->place != i);
        if (value >= 0 && (spot || x != now) && (!is_gated || value > gate))
          result.emplace_back(value, x);
      }
    std::ranges::stable_sort(result, std::greater<>(), &option::first);
    return result;
  }

  std::optional<std::size_t> last_; ///< where it runs, or last ran or went to
};

class knowing_nomad : public nomad {
  void look(gang_world&) override {}

  double life_h(const gang_world& world, std::size_t place) const override {
    const auto& x = world.market().places[place].available;
    const auto begin = x.begin() + static_cast<std::ptrdiff_t>(std::min(world.tick(), x.size()));
    return static_cast<double>(std::find(begin, x.end(), 0) - begin) * world.market().tick_s / 3600;
  }

  double spot_usd(const gang_world& world, std::size_t place) const override {
    return world.market().places[place].spot_usd_per_h[world.tick()];
  }
};

class learning_nomad : public nomad {
public:
  learning_nomad(const gang_market& market, std::optional<double> max_h) :
      max_h_(max_h.value_or(infinity)), lives_(market.places.size(), spot_lives(market.tick_s / 3600)),
      seen_tick_(market.places.size()), next_probe_(market.places.size()), failed_(market.places.size()) {}

private:
  void look(gang_world& world) override {
    now_h_ = world.now_s() / 3600;
    if (own_ && world.running() != instance{*own_, true}) {
      lives_[*own_].ended(now_h_, !is_ours_to_end_);
      own_.reset();
      is_ours_to_end_ = false;
    }
    for (std::size_t i = 0; i < lives_.size(); ++i)
      lives_[i].observe(now_h_, world.probed_usd(i), spot_usd(world, i));
  }

  double life_h(const gang_world& world, std::size_t place) const override {
    return std::min({lives_[place].expected_h(), max_h_, (world.job().deadline_s - world.now_s()) / 3600});
  }

  // Prices are seen where something is tried.
  double spot_usd(const gang_world& world, std::size_t place) const override {
    return world.market().places[place].spot_usd_per_h[seen_tick_[place]];
  }

  void seen(std::size_t place, bool up) {
    if (own_ != place)
      lives_[place].seen(now_h_, up);
  }

  bool try_launch(gang_world& world, const instance& x) override {
    if (!x.spot)
      return world.launch(x);
    auto& lives = lives_[x.place];
    lives.taken_over(now_h_);
    seen_tick_[x.place] = world.tick();
    if (world.launch(x)) {
      lives.launched(now_h_);
      own_ = x.place;
      is_ours_to_end_ = false;
      return true;
    }
    failed_[x.place] = 1;
    lives.launch_failed();
    seen(x.place, false);
    return false;
  }

  void left(const gang_world&, const instance& x) override {
    if (own_ == x.place)
      is_ours_to_end_ = true;
    seen(x.place, false);
  }

  void probe(gang_world& world, std::optional<std::size_t> but) override {
    for (std::size_t i = 0; i < lives_.size(); ++i) {
      const bool failed = std::exchange(failed_[i], 0) != 0;
      if (i == but || lives_[i].is_probed() || failed || world.tick() < next_probe_[i])
        continue;
      next_probe_[i] = world.tick() + probe_every;
      seen_tick_[i] = world.tick();
      const bool up = world.probe(i);
      lives_[i].probed(now_h_, up);
      seen(i, up);
    }
  }

  double max_h_;
  std::vector<spot_lives> lives_;
  std::vector<std::size_t> seen_tick_, next_probe_;
  std::vector<std::uint8_t> failed_; ///< a launch, in this tick
  std::optional<std::size_t> own_;   ///< place of our spot instance
  bool is_ours_to_end_ = false;      ///< as far as is seen, we ended it
  double now_h_ = 0;
};

} // namespace

std::unique_ptr<gang_policy> skynomad(const gang_market& market, std::optional<double> max_h) {
  return std::make_unique<learning_nomad>(market, max_h);
}

std::unique_ptr<gang_policy> skynomad_oracle() {
  return std::make_unique<knowing_nomad>();
}

} // namespace parcae::market
