#include "planner/market/progress_price.hpp"

#include <algorithm>
#include <cmath>

namespace parcae::market {

namespace {

// Costs at points of samples left become those before an interval, in which one choice is held all the time.
void take(std::span<double> now, std::span<const double> then, const interval_choice& x, double step) {
  const double moved = x.samples / step;
  const auto whole = static_cast<std::size_t>(moved);
  const double part = moved - std::floor(moved);
  const auto done = std::min(now.size(), whole + 1);
  for (std::size_t k = 1; k < done; ++k) // for a part of the interval
    now[k] = std::min(now[k], x.usd * static_cast<double>(k) / moved);
  for (auto k = done; k < now.size(); ++k)
    now[k] = std::min(now[k], x.usd + (1 - part) * then[k - whole] + part * then[k - whole - 1]);
}

} // namespace

// Progress that is no whole number of points is spread over two of them, interval by interval: the more points, the
// less. With 300 over 720 intervals the price is up to a tenth off, with 1,200 less than a hundredth.
progress_price::progress_price(const progress_setting& x) :
    points_(x.points), states_(x.states), kept_(std::min(x.kept, x.intervals + 1)),
    step_(x.samples / static_cast<double>(x.points - 1)), least_(kept_ * x.states * x.points) {
  std::vector<double> last(states_ * points_), now(states_ * points_), then(points_);
  for (std::size_t i = 0; i < last.size(); ++i)
    last[i] = x.late_usd_per_sample * step_ * static_cast<double>(i % points_);
  const auto keep = [&](std::size_t interval) {
    if (interval < kept_)
      std::copy(last.begin(), last.end(), least_.begin() + static_cast<std::ptrdiff_t>(interval * states_ * points_));
  };
  keep(x.intervals);
  for (auto i = x.intervals; i-- > 0;) {
    for (std::size_t state = 0; state < states_; ++state) {
      std::fill(then.begin(), then.end(), 0);
      const auto chances = x.next(i, state);
      for (std::size_t other = 0; other < states_; ++other)
        if (const double chance = chances[other]; chance > 0)
          for (std::size_t k = 0; k < points_; ++k)
            then[k] += chance * last[other * points_ + k];
      const std::span here(now.data() + state * points_, points_);
      std::copy(then.begin(), then.end(), here.begin()); // nothing is held
      for (const auto& y : x.choices(i, state))
        take(here, then, y, step_);
    }
    last.swap(now);
    keep(i);
  }
}

std::span<const double> progress_price::row(std::size_t interval, std::size_t state) const {
  return std::span(least_).subspan((std::min(interval, kept_ - 1) * states_ + state) * points_, points_);
}

double progress_price::usd(std::size_t interval, std::size_t state, double samples_left) const {
  const double place = std::clamp(samples_left / step_, 0.0, static_cast<double>(points_ - 1));
  const auto low = std::min(static_cast<std::size_t>(place), points_ - 2);
  const double part = place - static_cast<double>(low);
  const auto x = row(interval, state);
  return (1 - part) * x[low] + part * x[low + 1];
}

// Over a hundredth of all that was left: single points differ by how choices fit between them.
double progress_price::usd_per_sample(std::size_t interval, std::size_t state, double samples_left) const {
  const double width = step_ * static_cast<double>(std::max<std::size_t>(points_ / 100, 1));
  const double left = std::clamp(samples_left, width, step_ * static_cast<double>(points_ - 1));
  return (usd(interval, state, left) - usd(interval, state, left - width)) / width;
}

double progress_price::samples_for(std::size_t interval, std::size_t state, double usd) const {
  const auto x = row(interval, state);
  const auto above = std::upper_bound(x.begin(), x.end(), usd) - x.begin();
  return step_ * static_cast<double>(std::max<std::ptrdiff_t>(above - 1, 0));
}

std::vector<interval_choice> corners_of(std::vector<interval_choice> all) {
  std::ranges::sort(
      all, [](const auto& a, const auto& b) { return a.usd < b.usd || (a.usd == b.usd && a.samples > b.samples); });
  std::vector<interval_choice> result{{}};
  for (const auto& x : all) {
    if (x.samples <= result.back().samples)
      continue;
    const auto is_below = [&] { // the line from the one before the last to this one
      const auto &a = result[result.size() - 2], &b = result.back();
      return (b.usd - a.usd) * (x.samples - a.samples) >= (x.usd - a.usd) * (b.samples - a.samples);
    };
    while (result.size() > 1 && is_below())
      result.pop_back();
    result.push_back(x);
  }
  result.erase(result.begin());
  return result;
}

} // namespace parcae::market
