#include "planner/market/worth.hpp"

#include <algorithm>
#include <cmath>

namespace parcae::market {

double usd_per_h(const holding& h, const std::vector<place_offer>& places) {
  const auto& x = places[h.place];
  return h.spot * x.spot_usd_per_h + h.on_demand * x.on_demand_usd_per_h;
}

holding replaced_by(const holding& h, const purchase_state& now, const purchase_options& options) {
  const auto& working = now.working;
  holding result{h.place, 0, 0};
  if (now.is_reserve || working.place != h.place || options.total_first || !std::isfinite(options.deadline_s))
    return result;
  const auto left_usd = options.hourly_usd ? std::max(*options.hourly_usd - usd_per_h(h, now.places), 0.0) : 0;
  const auto more = [](std::uint32_t a, std::uint32_t b) { return a - std::min(a, b); };
  const auto allowed = [&](std::uint32_t n, double usd) {
    return !options.hourly_usd || n * usd <= left_usd ? n : static_cast<std::uint32_t>(left_usd / usd);
  };
  const auto& x = now.places[h.place];
  result.spot = allowed(std::min(more(working.spot, h.spot), more(h.on_demand, working.on_demand)), x.spot_usd_per_h);
  result.on_demand =
      allowed(std::min(more(working.on_demand, h.on_demand), more(h.spot, working.spot)), x.on_demand_usd_per_h);
  return result;
}

std::uint32_t max_of(const purchase_options& x) {
  return static_cast<std::uint32_t>(x.samples_per_s.size() - 1);
}

double rate_of(const holding& h, const purchase_options& options, const std::vector<place_offer>& places) {
  return places[h.place].speed * options.samples_per_s[std::min(h.instances(), max_of(options))];
}

purchase_option appraiser::operator()(const holding& h) const {
  purchase_option result{h, usd_per_h(h, now_.places), 0};
  const double life = h.spot == 0 ? look_ahead_s : chain_.life_s(h.place, h.spot);
  const double seconds = std::clamp(life, options_.interval_s, look_ahead_s);
  double usd = result.usd_per_h * seconds / 3600;
  const auto& working = now_.working;
  const bool moves = working.instances() > 0 && working.place != h.place;
  std::uint32_t first = 0, second = 0; // that train at once, and once those that start already are there
  if (!moves) {
    first = std::min(working.spot, h.spot) + std::min(working.on_demand, h.on_demand);
    second = first;
    if (now_.held.place == h.place)
      second = std::min(now_.held.spot, h.spot) + std::min(now_.held.on_demand, h.on_demand);
  }
  const auto all = h.instances();
  const double soon = second > first ? std::min(now_.starting_s, seconds) : 0;
  const double late = all > second ? std::min(options_.start_s, seconds) : soon;
  double samples = 0;
  if (moves) {
    second = now_.held.place == h.place && now_.held == h ? all : 0;
    const double until = std::min(second == all ? now_.starting_s : options_.start_s, seconds);
    if (options_.meanwhile) {
      samples += rate(working.place, working.instances()) * until;
      usd += usd_per_h(working, now_.places) * until / 3600;
    }
    samples += rate(h.place, all) * (seconds - until - std::min(seconds - until, options_.move_s));
  } else {
    samples += rate(h.place, first) * soon + rate(h.place, second) * std::max(late - soon, 0.0) +
               rate(h.place, all) * (seconds - std::max(late, soon));
    samples -= lost(h.place, working.instances(), first) + lost(h.place, first, second) + lost(h.place, second, all);
  }
  const auto from = working.instances() > 0 ? std::optional(working.place) : now_.last_place;
  if (from && *from != h.place && all > 0 && !options_.move_usd.empty())
    usd += options_.move_usd[*from][h.place];
  result.worth_per_h = (usd_per_sample_ * samples - usd) * 3600 / seconds;
  return result;
}

double appraiser::rate(std::size_t place, std::uint32_t instances) const {
  return now_.places[place].speed * options_.samples_per_s[std::min(instances, max_of(options_))];
}

double appraiser::lost(std::size_t place, std::uint32_t from, std::uint32_t to) const {
  return from == to || to == 0 || !options_.change_s ? 0 : options_.change_s(from, to) * rate(place, to);
}

} // namespace parcae::market
