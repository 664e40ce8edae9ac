#include "planner/market/gang_world.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

namespace parcae::market {

namespace {

constexpr double probe_s = 60; // that a probe is billed for
constexpr double nothing_left_s = 1e-3;

} // namespace

std::string region_of(const std::string& place) {
  auto end = place.size();
  if (end > 0 && std::islower(static_cast<unsigned char>(place[end - 1])))
    --end;
  if (end > 0 && place[end - 1] == '-')
    --end;
  return end > 0 && std::isdigit(static_cast<unsigned char>(place[end - 1])) ? place.substr(0, end) : place;
}

std::vector<std::vector<double>> published_egress(const std::vector<offers>& places) {
  std::vector<std::vector<double>> result(places.size(), std::vector<double>(places.size(), 0));
  for (std::size_t i = 0; i < places.size(); ++i)
    for (std::size_t j = 0; j < places.size(); ++j) {
      const auto from = region_of(places[i].place), to = region_of(places[j].place);
      const bool is_east = from.starts_with("us-east-") && to.starts_with("us-east-");
      result[i][j] = from == to ? 0 : is_east ? 0.01 : 0.02;
    }
  return result;
}

gang_world::gang_world(const gang_market& market, const gang_job& job) :
    market_(market), job_(job), ticks_(static_cast<std::size_t>(std::ceil(job.deadline_s / market.tick_s))),
    probed_(market.places.size()), probed_usd_(market.places.size()) {}

double gang_world::egress_usd(std::size_t from, std::size_t to) const {
  return from == to ? 0 : market_.usd_per_gb[from][to] * job_.checkpoint_gb;
}

bool gang_world::is_available(std::size_t place) const {
  const auto& x = market_.places[place].available;
  return tick_ < ticks_ && tick_ < x.size() && x[tick_] != 0;
}

double gang_world::usd_per_h(const instance& x, std::size_t tick) const {
  const auto& place = market_.places[x.place];
  return x.spot ? place.spot_usd_per_h[std::min(tick, place.spot_usd_per_h.size() - 1)] : place.on_demand_usd_per_h;
}

bool gang_world::needs(unsigned starts, bool at_once) const {
  const double g = market_.tick_s;
  const double needed_s = std::ceil((left_s() + starts * job_.start_s) / g) * g;
  const double rest_s = std::floor((job_.deadline_s - now_s()) / g) * g;
  return at_once ? needed_s >= rest_s : needed_s > rest_s;
}

bool gang_world::launch(const instance& x) {
  if (x.spot && !is_available(x.place))
    return false;
  running_ = x;
  is_launched_ = true;
  launched_from_ = worked_last_;
  ++bill_.launches;
  return true;
}

bool gang_world::probe(std::size_t place) {
  probed_[place] = is_available(place);
  return probed_[place] != 0;
}

// The tick that has gone by. A probe beside what runs in its place is not billed: on demand that stays as it is, but a
// spot instance is billed as long as the probe.
void gang_world::pay() {
  const auto past = tick_ - 1;
  bill_.last_usd = 0;
  for (std::size_t i = 0; i < probed_.size(); ++i) {
    const bool runs = running_ && running_->place == i;
    if (!runs && !probed_[i])
      continue;
    const instance x = runs ? *running_ : instance{i, true};
    const double billed_s = x.spot && probed_[i] ? probe_s : market_.tick_s;
    const double usd = usd_per_h(x, past) * billed_s / 3600;
    bill_.last_usd += usd;
    if (probed_[i])
      probed_usd_[i] += usd;
    if (runs)
      (x.spot ? bill_.spot_s : bill_.on_demand_s) += market_.tick_s;
    probed_[i] = 0;
  }
  bill_.usd += bill_.last_usd;
}

void gang_world::work() {
  if (running_) {
    if (is_launched_) {
      starting_s_ = job_.start_s;
      if (launched_from_)
        bill_.egress_usd += egress_usd(*launched_from_, running_->place);
    }
    done_s_ += std::min(std::max(market_.tick_s - starting_s_, 0.0), left_s());
    starting_s_ = std::max(starting_s_ - market_.tick_s, 0.0);
    worked_last_ = running_->place;
  }
  is_launched_ = false;
}

void gang_world::go_on_demand() {
  if (running_ && !running_->spot)
    return;
  std::size_t best = 0;
  if (running_) {
    best = running_->place;
  } else {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < market_.places.size(); ++i) {
      const double usd =
          market_.places[i].on_demand_usd_per_h * left_s() / 3600 + (worked_last_ ? egress_usd(*worked_last_, i) : 0);
      if (usd < least) {
        least = usd;
        best = i;
      }
    }
  }
  launch({best, false});
}

gang_bill gang_world::run(gang_policy& policy) {
  bool is_closed = false;
  for (tick_ = 0;; ++tick_) {
    if (tick_ > 0) {
      pay();
      work();
    }
    if (running_ && running_->spot && !is_available(running_->place))
      running_.reset();
    if (left_s() <= nothing_left_s)
      break;
    // Who has no latch is late if it must be; on demand it ends all the same.
    is_closed = is_closed || (policy.is_latched() ? needs(1, true) : tick_ >= ticks_);
    if (is_closed)
      go_on_demand();
    else
      policy.act(*this);
  }
  bill_.usd += bill_.egress_usd;
  if (now_s() <= job_.deadline_s + 1e-6)
    bill_.finish_s = now_s();
  return bill_;
}

} // namespace parcae::market
