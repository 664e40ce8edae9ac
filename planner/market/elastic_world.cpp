#include "planner/market/elastic_world.hpp"

#include <algorithm>
#include <cmath>

namespace parcae::market {

namespace {

// Asked for together.
struct group {
  std::size_t place = 0;
  bool spot = false;
  std::uint32_t count = 0;
  double ready_s = 0;
};

class elastic_world {
public:
  elastic_world(const std::vector<elastic_place>& places, double samples, double tick_s,
                const purchase_options& options) :
      places_(places),
      options_(options), tick_s_(tick_s), left_(samples) {
    bill_.places.resize(places.size());
    for (const auto& x : places)
      offers_.push_back({x.name, 0, x.spot.empty() ? 0 : *std::ranges::max_element(x.spot), 0, x.on_demand,
                         x.on_demand_usd_per_h, x.speed});
  }

  const std::vector<place_offer>& offers() const { return offers_; }

  elastic_bill run(const std::function<purchase(const purchase_state&)>& rule) {
    const auto ticks = static_cast<std::size_t>(std::ceil(options_.deadline_s / tick_s_));
    const auto between = static_cast<std::size_t>(std::lround(options_.interval_s / tick_s_));
    for (std::size_t tick = 0; tick < ticks && !bill_.finish_s; ++tick) {
      now_s_ = static_cast<double>(tick) * tick_s_;
      offer(tick);
      lose();
      if (tick % between == 0)
        decide(rule);
      advance(std::min(now_s_ + tick_s_, options_.deadline_s));
    }
    return bill_;
  }

private:
  void decide(const std::function<purchase(const purchase_state&)>& rule) {
    auto decision = rule(state());
    is_reserve_ = decision.is_reserve;
    if (is_reserve_ && !bill_.reserve_s)
      bill_.reserve_s = now_s_;
    rent(decision.what);
    bill_.decisions.push_back(std::move(decision));
  }

  void offer(std::size_t tick) {
    for (std::size_t i = 0; i < places_.size(); ++i) {
      offers_[i].spot = places_[i].spot[tick];
      offers_[i].spot_usd_per_h = places_[i].spot_usd_per_h[tick];
    }
  }

  std::uint32_t count(std::size_t place, bool spot, bool all) const {
    std::uint32_t result = 0;
    for (const auto& x : groups_)
      if (x.place == place && x.spot == spot && (all || x.ready_s <= now_s_))
        result += x.count;
    return result;
  }

  // The oldest of them, or the newest.
  void drop(std::size_t place, bool spot, std::uint32_t n, bool oldest) {
    const auto take = [&](group& x) {
      if (x.place == place && x.spot == spot) {
        const auto taken = std::min(n, x.count);
        x.count -= taken;
        n -= taken;
      }
    };
    if (oldest)
      std::for_each(groups_.begin(), groups_.end(), take);
    else
      std::for_each(groups_.rbegin(), groups_.rend(), take);
    std::erase_if(groups_, [](const auto& x) { return x.count == 0; });
  }

  void lose() {
    for (std::size_t i = 0; i < places_.size(); ++i)
      if (const auto n = count(i, true, true); n > offers_[i].spot)
        drop(i, true, n - offers_[i].spot, true);
    settle();
  }

  holding working() const { return {place_, count(place_, true, false), count(place_, false, false)}; }

  purchase_state state() const {
    purchase_state x;
    x.now_s = now_s_;
    x.samples_left = left_;
    x.spent_usd = bill_.usd;
    constexpr double prior_s = 6 * 3600, prior_share = 0.95;
    const double fastest = options_.samples_per_s.back();
    x.share_used = (done_ + prior_share * prior_s * fastest) / (paid_ + prior_s * fastest);
    x.places = offers_;
    x.working = working();
    x.held = {target_, count(target_, true, true), count(target_, false, true)};
    for (const auto& y : groups_)
      if (y.place == target_) {
        x.starting_s = std::max(x.starting_s, y.ready_s - now_s_);
        if (!y.spot)
          x.on_demand_starting_s = std::max(x.on_demand_starting_s, y.ready_s - now_s_);
      }
    if (has_trained_)
      x.last_place = place_;
    x.is_reserve = is_reserve_;
    return x;
  }

  void rent(const holding& h) {
    target_ = h.place;
    for (const bool spot : {true, false}) {
      const auto wanted = spot ? h.spot : h.on_demand, have = count(h.place, spot, true);
      if (have > wanted)
        drop(h.place, spot, have - wanted, false);
      else if (wanted > have)
        groups_.push_back({h.place, spot, wanted - have, now_s_ + options_.start_s});
    }
    // Others only as long as they train and those asked for do not.
    std::erase_if(groups_, [&](const auto& x) {
      return x.place != target_ && (x.place != place_ || x.ready_s > now_s_ || h.instances() == 0);
    });
    settle();
  }

  // What has changed costs time in which nothing is trained.
  void settle() {
    const bool arrived = target_ != place_ &&
                         count(target_, true, false) + count(target_, false, false) ==
                             count(target_, true, true) + count(target_, false, true) &&
                         count(target_, true, true) + count(target_, false, true) > 0;
    if (target_ != place_ && (arrived || working().instances() == 0) &&
        count(target_, true, false) + count(target_, false, false) > 0) {
      if (has_trained_) {
        stall_s_ = std::max(stall_s_, options_.move_s);
        ++bill_.moves;
        if (!options_.move_usd.empty())
          bill_.usd += options_.move_usd[place_][target_];
      }
      place_ = target_;
      trained_by_ = 0;
      std::erase_if(groups_, [&](const auto& x) { return x.place != place_; });
    }
    const auto n = working().instances();
    if (n == trained_by_)
      return;
    if (n > 0 && options_.change_s) {
      stall_s_ = std::max(stall_s_, options_.change_s(trained_by_, n)); // what it cuts short is done with it
      ++bill_.changes;
    }
    trained_by_ = n;
  }

  void advance(double until_s) {
    while (now_s_ < until_s && !bill_.finish_s) {
      double next = until_s;
      for (const auto& x : groups_)
        if (x.ready_s > now_s_)
          next = std::min(next, x.ready_s);
      const double rate = rate_of(place_, trained_by_);
      const double stalled = rate > 0 ? std::min(stall_s_, next - now_s_) : 0;
      double seconds = next - now_s_ - stalled;
      if (rate > 0 && rate * seconds >= left_) {
        seconds = left_ / rate;
        next = now_s_ + stalled + seconds;
        bill_.finish_s = next;
      }
      left_ -= rate * seconds;
      done_ += rate * seconds;
      if (rate > 0 && seconds > 0)
        has_trained_ = true;
      stall_s_ -= stalled;
      pay(next - now_s_);
      now_s_ = next;
      settle();
    }
  }

  void pay(double seconds) {
    std::uint32_t all = 0;
    for (const auto& x : groups_) {
      const auto& y = offers_[x.place];
      bill_.usd += x.count * (x.spot ? y.spot_usd_per_h : y.on_demand_usd_per_h) * seconds / 3600;
      const double hours = x.count * seconds / 3600;
      auto& here = bill_.places[x.place];
      (x.spot ? bill_.spot_h : bill_.on_demand_h) += hours;
      (x.spot ? here.spot : here.on_demand) += hours;
      all += x.place == target_ ? x.count : 0;
    }
    paid_ += rate_of(target_, all) * seconds;
  }

  double rate_of(std::size_t place, std::uint32_t instances) const {
    return places_[place].speed *
           options_.samples_per_s[std::min<std::size_t>(instances, options_.samples_per_s.size() - 1)];
  }

  const std::vector<elastic_place>& places_;
  const purchase_options& options_;
  std::vector<place_offer> offers_;
  std::vector<group> groups_; ///< oldest first
  double tick_s_;
  double now_s_ = 0;
  double left_;
  double done_ = 0, paid_ = 0; ///< samples; of what was rented, had it trained at once
  double stall_s_ = 0;
  std::size_t place_ = 0, target_ = 0; ///< that trains; where is rented
  std::uint32_t trained_by_ = 0;
  bool has_trained_ = false;
  bool is_reserve_ = false;
  elastic_bill bill_;
};

} // namespace

elastic_bill run_elastic(const std::vector<elastic_place>& places, double samples, double tick_s,
                         const purchase_options& options) {
  elastic_world world(places, samples, tick_s, options);
  purchaser policy(options, world.offers());
  return world.run([&](const purchase_state& now) {
    auto result = policy.decide(now);
    if (result.what != now.held)
      policy.look_ahead(now, result);
    return result;
  });
}

elastic_bill run_elastic(const std::vector<elastic_place>& places, double samples, double tick_s,
                         const purchase_options& options, const std::function<purchase(const purchase_state&)>& rule) {
  return elastic_world(places, samples, tick_s, options).run(rule);
}

} // namespace parcae::market
