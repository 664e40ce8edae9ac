#include "planner/market/spot_chain.hpp"

#include <algorithm>
#include <numeric>

namespace parcae::market {

namespace {

// Before anything was seen a state, or a count, lasts three hours; as if so much had been seen of it.
constexpr double prior_s = 3 * 3600;

} // namespace

spot_chain::spot_chain(std::size_t places, std::uint32_t most, double interval_s) :
    most_(most), interval_s_(interval_s),
    places_(places, {std::vector<double>(most + 1, 0), std::vector<double>(most + 1, 0), 0}),
    sizes_(std::min<std::size_t>(max_states, most + 1)), moves_(sizes_.size() * sizes_.size(), 0) {}

// None is a state of its own, the others are as wide as each other.
std::size_t spot_chain::state_of(std::uint32_t count) const {
  const auto others = static_cast<std::uint32_t>(sizes_.size() - 1);
  return count == 0 ? 0 : 1 + (std::min(count, most_) - 1) * others / std::max(most_, 1u);
}

void spot_chain::observe(std::span<const std::uint32_t> available, std::optional<std::uint32_t> of_best) {
  std::uint32_t best = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    auto& x = places_[i];
    const auto now = std::min(available[i], most_);
    best = std::max(best, now);
    if (begun_)
      for (std::uint32_t n = 1; n <= x.available; ++n) {
        x.intervals[n] += 1;
        x.ends[n] += now < n ? 1 : 0;
      }
    x.available = now;
  }
  best = std::min(of_best.value_or(best), most_);
  const auto state = state_of(best);
  if (begun_)
    moves_[state_ * states() + state] += 1;
  sizes_[state].times += 1;
  sizes_[state].sum += best;
  state_ = state;
  begun_ = true;
}

double spot_chain::instances(std::size_t state) const {
  if (state == 0)
    return 0;
  const auto others = static_cast<double>(states() - 1);
  const double middle = (static_cast<double>(state) - 0.5) * most_ / others + 0.5;
  return (middle + sizes_[state].sum) / (1 + sizes_[state].times);
}

// How often each followed each, as seen and as believed before.
std::vector<double> spot_chain::weights() const {
  const auto n = states();
  std::vector<double> result(n * n, 1);
  const double weight = prior_s / interval_s_;
  // Where it goes when it goes: as it went from anywhere.
  std::vector<double> into(n, 1.0 / static_cast<double>(n));
  double all = 1;
  for (std::size_t from = 0; from < n; ++from)
    for (std::size_t to = 0; to < n; ++to)
      if (from != to) {
        into[to] += moves_[from * n + to];
        all += moves_[from * n + to];
      }
  for (std::size_t from = 0; from < n && n > 1; ++from) {
    const double elsewhere = all - into[from];
    for (std::size_t to = 0; to < n; ++to)
      result[from * n + to] = moves_[from * n + to] + (from == to ? weight - 1 : into[to] / elsewhere);
  }
  return result;
}

namespace {

// What weights make of a row each, after so many intervals.
std::vector<double> chances_of(std::vector<double> weights, std::size_t states, std::size_t intervals) {
  for (std::size_t from = 0; from < states; ++from) {
    const std::span row(weights.data() + from * states, states);
    const double total = std::accumulate(row.begin(), row.end(), 0.0);
    for (auto& x : row)
      x /= total;
  }
  auto result = weights;
  for (std::size_t i = 1; i < intervals; ++i) {
    std::vector<double> next(states * states, 0);
    for (std::size_t a = 0; a < states; ++a)
      for (std::size_t b = 0; b < states; ++b)
        for (std::size_t c = 0; c < states; ++c)
          next[a * states + c] += result[a * states + b] * weights[b * states + c];
    result = std::move(next);
  }
  return result;
}

} // namespace

std::vector<double> spot_chain::chances(std::size_t intervals) const {
  return chances_of(weights(), states(), intervals);
}

std::vector<double> spot_chain::chances(std::mt19937_64& random, std::size_t intervals) const {
  auto drawn = weights();
  for (auto& x : drawn)
    x = std::max(std::gamma_distribution<double>(std::max(x, 1e-9))(random), 1e-300);
  return chances_of(std::move(drawn), states(), intervals);
}

double spot_chain::life_s(std::size_t place, std::uint32_t count) const {
  const auto n = std::min(count, most_);
  const auto& x = places_[place];
  return interval_s_ * (x.intervals[n] + prior_s / interval_s_) / (x.ends[n] + 1);
}

} // namespace parcae::market
