#include "planner/market/purchase.hpp"

#include "planner/market/worth.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace parcae::market {

namespace {

constexpr double again_s = 3600;     // between two times that progress is priced
constexpr double late_worth = 6;     // times its price is a sample that comes too late
constexpr double another_rate = 0.1; // than progress was priced with: else measurements that waver change V
constexpr double gain = 0.02;        // of what is trained: less is not worth a change

// Instances of a place as so many of the fastest ones: progress is priced in these.
std::uint32_t of_fastest(std::uint32_t instances, const place_offer& place) {
  return instances == 0 ? 0 : std::max(static_cast<std::uint32_t>(std::lround(instances * place.speed)), 1u);
}

std::uint32_t max_spot(const std::vector<place_offer>& places) {
  std::uint32_t result = 0;
  for (const auto& x : places)
    result = std::max(result, x.max_spot);
  return result;
}

std::string text_of(const holding& h, const std::vector<place_offer>& places) {
  if (h.instances() == 0)
    return "nothing";
  std::string result;
  if (h.spot > 0)
    result = std::to_string(h.spot) + " spot";
  if (h.on_demand > 0)
    result += (result.empty() ? "" : " and ") + std::to_string(h.on_demand) + " on demand";
  return result + " in " + places[h.place].name;
}

std::string number(const char* format, double x) {
  char text[64];
  std::snprintf(text, sizeof text, format, x);
  return text;
}

// "6 spot in us-west-2a: a sample is worth 31 µ$, 8 spot in us-west-2a would cost 34 µ$ each"
std::string sentence(const purchase_option& chosen, const purchase& x, const std::vector<purchase_option>& others,
                     const purchase_state& now, const purchase_options& options) {
  auto result = text_of(chosen.what, now.places) + ": a sample is worth " + number("%.3g µ$", 1e6 * x.usd_per_sample);
  if (x.is_reserve)
    return result + ", and only on demand is in time for sure";
  if (others.empty())
    return result;
  const auto& other = others.front();
  const double more = rate_of(other.what, options, now.places) - rate_of(chosen.what, options, now.places);
  const double usd = other.usd_per_h - chosen.usd_per_h;
  if (more > 0 && usd > 0)
    return result + ", " + text_of(other.what, now.places) + " would cost " +
           number("%.3g µ$ each", 1e6 * usd / more / 3600);
  return result + ", " + text_of(other.what, now.places) +
         number(" would be worth %.2f $ an hour less", chosen.worth_per_h - other.worth_per_h);
}

// On demand, within the money of an hour.
std::uint32_t max_on_demand(const place_offer& x, const purchase_options& options) {
  const auto most = std::min(x.on_demand, max_of(options));
  if (!options.hourly_usd || most * x.on_demand_usd_per_h <= *options.hourly_usd)
    return most;
  return static_cast<std::uint32_t>(*options.hourly_usd / x.on_demand_usd_per_h);
}

} // namespace

purchaser::purchaser(purchase_options options, const std::vector<place_offer>& places) :
    options_(std::move(options)),
    chain_(places.size(), std::min(max_spot(places), max_of(options_)), options_.interval_s) {
  take_rates(places);
}

bool purchaser::has_deadline() const {
  return std::isfinite(options_.deadline_s);
}

bool purchaser::is_total_first() const {
  return options_.total_usd && (options_.total_first || !has_deadline());
}

void purchaser::know(purchase_options options, const std::vector<place_offer>& places) {
  const auto is_alike = [](double now, double then) { return std::abs(now - then) <= another_rate * then; };
  if (options.courses != options_.courses || !std::ranges::equal(options.samples_per_s, priced_rates_, is_alike))
    choices_.clear();
  options_ = std::move(options);
  take_rates(places);
}

void purchaser::take_rates(const std::vector<place_offer>& places) {
  fastest_ = late_usd_per_sample_ = change_s_ = 0;
  std::uint32_t fastest = 0;
  for (const auto& x : places) {
    const auto n = max_on_demand(x, options_);
    const double rate = x.speed * options_.samples_per_s[n];
    if (rate > fastest_) {
      fastest_ = rate;
      fastest = n;
    }
    if (rate > 0) {
      const double usd = n * x.on_demand_usd_per_h / 3600 / rate;
      late_usd_per_sample_ = late_usd_per_sample_ > 0 ? std::min(late_usd_per_sample_, usd) : usd;
    }
  }
  if (options_.change_s)
    for (std::uint32_t n = 0; n <= max_of(options_); ++n)
      change_s_ = std::max(change_s_, options_.change_s(n, fastest));
}

void purchaser::learn(const purchase_state& x) {
  std::vector<std::uint32_t> available;
  const place_offer* best = nullptr;
  const auto is_better = [](const place_offer& a, const place_offer& b) {
    const double more = a.spot * a.speed - b.spot * b.speed;
    return more > 0 || (more == 0 && a.spot_usd_per_h / a.speed < b.spot_usd_per_h / b.speed);
  };
  for (const auto& y : x.places) {
    available.push_back(y.spot);
    if (y.spot > 0 && (!best || is_better(y, *best)))
      best = &y;
  }
  chain_.observe(available, best ? of_fastest(best->spot, *best) : 0);
  if (best) {
    spot_usd_sum_ += best->spot_usd_per_h / best->speed;
    spot_seen_ += 1;
  }
}

// A start is priced as in the choice: else a sample is worth what spot costs once started, and nothing is started.
double purchaser::planned_share(const purchase_state& x) const {
  return std::min(x.share_used, std::max(1 - options_.start_s / look_ahead_s, 0.05));
}

std::vector<std::vector<interval_choice>> purchaser::choices_of(const purchase_state& x) const {
  double spot_usd = spot_seen_ > 0 ? spot_usd_sum_ / spot_seen_ : 0, on_demand_usd = 0;
  std::uint32_t on_demand = 0;
  for (const auto& y : x.places) {
    if (spot_seen_ == 0)
      spot_usd = spot_usd == 0 ? y.spot_usd_per_h / y.speed : std::min(spot_usd, y.spot_usd_per_h / y.speed);
    if (y.on_demand > 0 && (on_demand == 0 || y.on_demand_usd_per_h / y.speed < on_demand_usd))
      on_demand_usd = y.on_demand_usd_per_h / y.speed;
    on_demand = std::max(on_demand, of_fastest(y.on_demand, y));
  }
  const double share = planned_share(x);
  std::vector<std::vector<interval_choice>> result;
  for (std::size_t state = 0; state < chain_.states(); ++state) {
    std::vector<interval_choice> list;
    const auto spot = static_cast<std::uint32_t>(std::lround(chain_.instances(state)));
    for (std::uint32_t n = 1; n <= std::min(max_of(options_), spot + on_demand); ++n) {
      const auto first = std::min(n, spot);
      const double usd = first * spot_usd + (n - first) * on_demand_usd;
      if (!options_.hourly_usd || usd <= *options_.hourly_usd)
        list.push_back({share * options_.samples_per_s[n] * priced_interval_s_, usd * priced_interval_s_ / 3600});
    }
    result.push_back(corners_of(std::move(list)));
  }
  return result;
}

// Until the reserve; without a deadline, four times as long as all takes as it is.
double purchaser::horizon_s(const purchase_state& x) const {
  if (!has_deadline())
    return 4 * x.samples_left /
           std::max(x.share_used * x.places[x.held.place].speed *
                        options_.samples_per_s[std::clamp(x.held.instances(), 1u, max_of(options_))],
                    1e-12);
  return fastest_ > 0 ? spare_s(x, options_.start_s) + x.samples_left / fastest_ : options_.deadline_s - x.now_s;
}

void purchaser::price_progress(const purchase_state& x) {
  const auto all = static_cast<std::size_t>(std::clamp(horizon_s(x) / options_.interval_s - 1, 0.0, 1e9));
  const auto joined = std::max<std::size_t>((all + options_.price_intervals - 1) / options_.price_intervals, 1);
  priced_s_ = x.now_s;
  priced_interval_s_ = options_.interval_s * static_cast<double>(joined);
  const auto states = chain_.states();
  chances_ = chain_.chances(joined);
  choices_ = choices_of(x);
  priced_rates_ = options_.samples_per_s;
  intervals_ = all / joined;
  if (!has_deadline())
    return;
  double late = late_usd_per_sample_;
  if (late <= 0) // there is spot alone
    for (const auto& y : choices_)
      for (const auto& z : y)
        late = std::max(late, z.usd / z.samples);
  price_.emplace(progress_setting{
      x.samples_left, intervals_, states, late_worth * late,
      [&](std::size_t, std::size_t state) { return std::span<const interval_choice>(choices_[state]); },
      [&](std::size_t, std::size_t state) { return std::span(chances_).subspan(state * states, states); },
      options_.price_points,
      options_.courses > 0 ? intervals_ + 1 : static_cast<std::size_t>(again_s / priced_interval_s_) + 2});
}

std::size_t purchaser::interval_of(const purchase_state& x) const {
  return static_cast<std::size_t>((x.now_s - priced_s_) / priced_interval_s_);
}

double purchaser::price_of(const purchase_state& x) const {
  if (options_.usd_per_sample)
    return options_.usd_per_sample(x);
  if (!has_deadline())
    return price_without_deadline(x);
  double samples = x.samples_left;
  if (is_total_first()) // what the rest of the money is enough for
    samples = std::min(samples, price_->samples_for(interval_of(x), chain_.state(), *options_.total_usd - x.spent_usd));
  return price_->usd_per_sample(interval_of(x), chain_.state(), samples) * slower();
}

// The fastest holding whose samples cost no more, each, than there is money for: halfway between the price at which it
// begins to be worth it, and that at which the next faster one does. What is saved or lost until the next decision
// makes it another one.
double purchaser::price_without_deadline(const purchase_state& x) const {
  std::vector<interval_choice> all;
  for (const auto& place : x.places)
    for (std::uint32_t m = 0; m <= std::min(place.on_demand, max_of(options_)); ++m)
      for (std::uint32_t s = m == 0 ? 1 : 0; s <= place.spot && s + m <= max_of(options_); ++s)
        if (const double usd = s * place.spot_usd_per_h + m * place.on_demand_usd_per_h;
            !options_.hourly_usd || usd <= *options_.hourly_usd)
          all.push_back({x.share_used * place.speed * options_.samples_per_s[s + m], usd / 3600});
  const auto corners = corners_of(std::move(all));
  if (corners.empty())
    return 0;
  const auto usd_per_sample = [](const interval_choice& c) { return c.usd / c.samples; };
  if (!options_.total_usd) // as much as what comes too late is worth where there is a deadline
    return late_worth * usd_per_sample(corners.front());
  // Two intervals are kept back: what is paid for and does not train while something changes, and the last one's rest.
  const double kept_usd = 2 * options_.interval_s / 3600 * usd_per_h(x.held, x.places);
  const double money = (*options_.total_usd - x.spent_usd - kept_usd) / std::max(x.samples_left, 1e-12);
  std::size_t best = 0;
  while (best + 1 < corners.size() && usd_per_sample(corners[best + 1]) <= money)
    ++best;
  if (best + 1 == corners.size())
    return late_worth * usd_per_sample(corners.back());
  const auto before = best == 0 ? interval_choice() : corners[best - 1];
  const auto slope = [](const interval_choice& a, const interval_choice& b) {
    return (b.usd - a.usd) / (b.samples - a.samples);
  };
  return (slope(before, corners[best]) + slope(corners[best], corners[best + 1])) / 2;
}

// The same, where a start costs more than it would be worth: something is trained as long as there is money.
std::vector<purchase_option> purchaser::options_without_deadline(const purchase_state& x,
                                                                 double& usd_per_sample) const {
  auto result = options_of(x, usd_per_sample);
  for (int i = 0; i < 24 && result.size() > 1 && result[0].what.instances() == 0; ++i)
    result = options_of(x, usd_per_sample *= 1.25);
  return result;
}

// What the rest may cost, and when it ends. With the money first, or without a deadline, at this price all the time.
void purchaser::look_ahead(const purchase_state& x, purchase& to) const {
  if (options_.courses == 0 || choices_.empty())
    return;
  const bool is_priced = price_ && !is_total_first();
  const auto interval = interval_of(x);
  const auto joined = static_cast<std::size_t>(std::lround(priced_interval_s_ / options_.interval_s));
  outlook_setting setting;
  setting.samples = x.samples_left;
  setting.interval_s = priced_interval_s_;
  setting.intervals = to.is_reserve ? 0 : intervals_ - std::min(interval, intervals_);
  setting.state = chain_.state();
  setting.choices = choices_;
  setting.chances = [&](std::mt19937_64& random) { return chain_.chances(random, joined); };
  setting.usd_per_sample = [&](std::size_t i, std::size_t state, double samples) {
    return is_priced ? price_->usd_per_sample(interval + i, state, samples) : to.usd_per_sample;
  };
  setting.gain = gain;
  // From twice as much lost as on average so far to nothing.
  setting.least_speed = std::max(2 * x.share_used - 1, 0.1) / planned_share(x);
  setting.most_speed = 1 / planned_share(x);
  if (has_deadline()) {
    setting.kept_s = to.is_reserve ? 0 : options_.start_s + options_.interval_s;
    setting.behind = {fastest_ * priced_interval_s_, usd_per_h(reserve_of(x), x.places) * priced_interval_s_ / 3600};
  }
  const auto seen = outlook_of(setting, options_.courses);
  const double from_s = x.now_s + (to.is_reserve ? x.on_demand_starting_s : 0);
  const auto& s = seen.finish_s_spread;
  to.usd_spread = seen.usd_spread;
  to.finish_s_spread = {from_s + s.p10, from_s + s.p50, from_s + s.p90};
  to.expected_finish_s = from_s + seen.finish_s;
}

// That on demand alone, once it is there, could yet lose without being late.
double purchaser::spare_s(const purchase_state& x, double until_there_s) const {
  return options_.deadline_s - x.now_s - until_there_s - std::max(change_s_, options_.move_s) -
         x.samples_left / fastest_;
}

// Where on demand is fastest; where the job is, if it is so there.
holding purchaser::reserve_of(const purchase_state& x) const {
  holding result;
  double best = -1;
  const auto here = x.working.instances() > 0 ? x.working.place : x.held.place;
  for (std::size_t i = 0; i < x.places.size(); ++i) {
    const auto n = max_on_demand(x.places[i], options_);
    const double rate = x.places[i].speed * options_.samples_per_s[n];
    if (rate > best || (rate == best && i == here)) {
      best = rate;
      result = {i, 0, n};
    }
  }
  return result;
}

bool purchaser::is_affordable(const holding& h, const purchase_state& x) const {
  double usd = usd_per_h(h, x.places);
  if (h.instances() == 0)
    return true;
  if (options_.hourly_usd && usd > *options_.hourly_usd + 1e-9)
    return false;
  if (!is_total_first())
    return true;
  // What trains elsewhere until then is paid as well, and the way.
  double way_usd = 0;
  const auto from = x.working.instances() > 0 ? std::optional(x.working.place) : x.last_place;
  if (from && *from != h.place) {
    usd += usd_per_h(x.working, x.places);
    if (!options_.move_usd.empty())
      way_usd = options_.move_usd[*from][h.place];
  }
  return x.spent_usd + way_usd + usd * options_.interval_s / 3600 <= *options_.total_usd;
}

// Whether on demand alone is in time if all that is spot is lost at once, or comes and goes so that nothing is
// trained until the next decision.
bool purchaser::is_safe(const holding& h, const purchase_state& x) const {
  if (fastest_ <= 0 || is_total_first() || !has_deadline())
    return true;
  if (x.is_reserve) {
    const bool is_asked = x.held.place == h.place && x.held.on_demand >= h.on_demand;
    const double until_there_s = is_asked ? x.on_demand_starting_s : options_.start_s;
    const double spare = spare_s(x, until_there_s);
    const bool is_late = spare < -std::max(change_s_, options_.move_s) - 1; // whatever is held
    return h.spot == 0 || until_there_s >= options_.interval_s || is_late || spare >= options_.interval_s + change_s_;
  }
  // Too slow from the beginning, with what may be paid an hour: there is nothing to keep.
  if (spare_s(x, options_.start_s) < -std::max(change_s_, options_.move_s) - 1)
    return true;
  double trained_s = 0;
  if (h.place == x.working.place && h.spot == 0)
    trained_s = std::max(options_.interval_s - 2 * change_s_, 0.0);
  const auto kept = std::min({h.on_demand, x.working.on_demand, max_of(options_)});
  const double rate = x.places[h.place].speed * options_.samples_per_s[kept];
  return spare_s(x, options_.start_s) + trained_s * rate / fastest_ >= options_.interval_s;
}

// Those that may be had, best first.
std::vector<purchase_option> purchaser::options_of(const purchase_state& x, double usd_per_sample) const {
  const appraiser worth(options_, x, chain_, usd_per_sample);
  const auto reserve = reserve_of(x);
  std::vector<purchase_option> result;
  const auto add = [&](const holding& h) {
    const auto n = h.instances();
    const bool is_corner = n == 0 || options_.samples_per_s[n] > options_.samples_per_s[n - 1] || h == x.held;
    if ((is_corner || x.is_reserve) && is_affordable(h, x) && is_safe(h, x))
      result.push_back(worth(h));
  };
  if (!x.is_reserve)
    add({x.held.place, 0, 0});
  for (std::size_t place = 0; place < x.places.size(); ++place) {
    if (x.is_reserve && place != reserve.place)
      continue;
    const auto most = max_on_demand(x.places[place], options_);
    for (auto m = x.is_reserve ? reserve.on_demand : 0; m <= most; ++m)
      for (auto s = m == 0 && !x.is_reserve ? 1u : 0u; s <= x.places[place].spot && s + m <= max_of(options_); ++s)
        add({place, s, m});
  }
  std::ranges::stable_sort(result, std::greater<>(), &purchase_option::worth_per_h);
  return result;
}

// The fastest that there are, within the money of an hour, once they have started.
double purchaser::late_s(const purchase_state& x) const {
  double best = 0;
  for (const auto& place : x.places)
    for (std::uint32_t m = 0; m <= std::min(place.on_demand, max_of(options_)); ++m)
      for (std::uint32_t s = 0; s <= place.spot && s + m <= max_of(options_); ++s)
        if (const double usd = s * place.spot_usd_per_h + m * place.on_demand_usd_per_h;
            !options_.hourly_usd || usd <= *options_.hourly_usd)
          best = std::max(best, place.speed * options_.samples_per_s[s + m]);
  const double left_s = options_.deadline_s - x.now_s;
  if (best <= 0)
    return std::max(-left_s, 0.0);
  const double now = rate_of(x.working, options_, x.places);
  const double until_s = now >= best                                   ? 0
                         : rate_of(x.held, options_, x.places) >= best ? x.starting_s
                                                                       : options_.start_s;
  return std::max(until_s + std::max(x.samples_left - now * until_s, 0.0) / best - left_s, 0.0);
}

purchase purchaser::decide(const purchase_state& x) {
  learn(x);
  if (!options_.usd_per_sample && (has_deadline() || options_.courses > 0) &&
      (choices_.empty() || x.now_s - priced_s_ >= std::max(again_s, priced_interval_s_)))
    price_progress(x);
  purchase result;
  auto now = x;
  result.usd_per_sample = price_of(x);
  auto options = x.is_reserve     ? std::vector<purchase_option>()
                 : has_deadline() ? options_of(now, result.usd_per_sample)
                                  : options_without_deadline(now, result.usd_per_sample);
  if (options.empty()) { // only the reserve is sure
    now.is_reserve = true;
    result.usd_per_sample = std::max(late_usd_per_sample_, x.is_reserve ? 0 : result.usd_per_sample);
    options = options_of(now, result.usd_per_sample);
  }
  result.is_reserve = now.is_reserve;
  result.late_s = late_s(x);
  if (price_)
    result.expected_usd = price_->usd(interval_of(x), chain_.state(), x.samples_left);
  auto best = options.begin();
  const auto present = std::ranges::find(options, x.held, &purchase_option::what);
  const double rate = rate_of(x.held, options_, x.places);
  // Who waits hopes for spot. Where it is there, V, which knows rates to a tenth, cannot tell waiting from training.
  const double least = best->what.instances() == 0 && x.held.on_demand == 0 ? another_rate : gain;
  if (present != options.end() &&
      best->worth_per_h - present->worth_per_h <= least * result.usd_per_sample * rate * 3600)
    best = present;
  result.what = best->what;
  const auto chosen = *best;
  if (const double speed = x.share_used * rate_of(chosen.what, options_, x.places); !has_deadline() && speed > 0) {
    result.expected_usd = chosen.usd_per_h / 3600 * x.samples_left / speed;
    result.expected_finish_s = x.now_s + x.samples_left / speed;
  }
  options.erase(best);
  options.resize(std::min<std::size_t>(options.size(), 3));
  result.why = sentence(chosen, result, options, x, options_);
  result.runners_up = std::move(options);
  return result;
}

} // namespace parcae::market
