#include "forecast/regime_chain.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace parcae {

namespace {

// Observations that a coarser regime is worth in a finer one: as many as there are outcomes, and one.
constexpr double shrinkage = 4;

// Half of what was seen so many intervals ago is forgotten: markets change over hours.
constexpr double half_life = 240;

// Calls f(size, probability) for sizes of at least this share, rarer neighbours joined at their mean; none if all are
// rarer.
template <class F>
void each_size(const std::vector<double>& p, std::uint32_t most, double least_share, F f) {
  if (least_share > 1.001) // most nodes of a lattice
    return;
  double share = 0, mean = 0, rest = 0;
  for (std::uint32_t n = 1; n < p.size() && n <= most; ++n)
    rest += p[n];
  if (rest < least_share)
    return;
  for (std::uint32_t n = 1; n < p.size() && n <= most; ++n) {
    share += p[n];
    mean += p[n] * n;
    rest -= p[n];
    const bool last = n + 1 >= p.size() || n == most;
    if (share >= least_share ? rest >= least_share || last : last) {
      f(static_cast<std::uint32_t>(std::lround(mean / share)), share);
      share = mean = 0;
    }
  }
}

} // namespace

regime_chain::regime_chain() = default;

std::size_t regime_chain::group_of(std::uint32_t age) {
  return age <= 5 ? age : age <= 9 ? 6 : age < oldest ? 7 : 8;
}

std::array<double, 3> regime_chain::probabilities(const regime& x, bool full) const {
  std::array<double, 3> p{0.9, 0.05, 0.05};
  const auto group = group_of(x.age);
  for (const auto* seen : {&all_, &by_last_[x.last], &by_group_[x.last][group], &by_full_[full][x.last][group]}) {
    const double n = (*seen)[0] + (*seen)[1] + (*seen)[2];
    for (std::size_t i = 0; i < 3; ++i)
      p[i] = ((*seen)[i] + shrinkage * p[i]) / (n + shrinkage);
  }
  return p;
}

std::vector<double> regime_chain::sizes(outcome x) const {
  // Seen sizes and, worth two of them, a geometric law of the same mean.
  const auto& seen = size_counts_[x];
  double events = 0, instances = 0;
  for (std::size_t i = 1; i < seen.size(); ++i) {
    events += seen[i];
    instances += seen[i] * static_cast<double>(i);
  }
  const double mean = std::max((instances + 2) / (events + 1), 1.01);
  std::vector<double> p(std::max<std::size_t>(seen.size(), 6) + 2, 0);
  double geometric = 1 / mean, sum = 0;
  for (std::size_t i = 1; i < p.size(); ++i) {
    p[i] = 2 * geometric + (i < seen.size() ? seen[i] : 0);
    geometric *= 1 - 1 / mean;
    sum += p[i];
  }
  for (auto& q : p)
    q /= sum;
  return p;
}

void regime_chain::forget() {
  static const double kept = std::exp2(-1 / half_life);
  auto fade = [](counts& x) {
    for (auto& n : x)
      n *= kept;
  };
  fade(all_);
  for (auto& x : by_last_)
    fade(x);
  for (auto& last : by_group_)
    for (auto& x : last)
      fade(x);
  for (auto& room : by_full_)
    for (auto& last : room)
      for (auto& x : last)
        fade(x);
  for (auto& sizes : size_counts_)
    for (auto& n : sizes)
      n *= kept;
}

void regime_chain::observe(const fleet_interval& x) {
  const auto lost = x.lost > x.joined ? x.lost - x.joined : 0;
  const auto grown = x.joined > x.lost ? std::min(x.joined - x.lost, peak_ - available_) : 0; // back to the peak
  const bool larger_than_ever = x.available > peak_;
  const auto happened = grown > 0 ? growth : lost > 0 ? loss : nothing;
  if (happened != nothing || !larger_than_ever) {
    forget();
    const auto group = group_of(now_.age);
    ++all_[happened];
    ++by_last_[now_.last][happened];
    ++by_group_[now_.last][group][happened];
    ++by_full_[full(available_)][now_.last][group][happened];
  }
  if (happened != nothing) {
    // Sizes beyond any sensible resolution count as the largest one kept.
    const auto size = std::min<std::size_t>(grown + lost, 4096);
    auto& seen = size_counts_[happened];
    if (seen.size() <= size)
      seen.resize(size + 1, 0);
    ++seen[size];
  }
  now_ = happened == nothing ? regime{now_.last, std::min(now_.age + 1, oldest)} : regime{happened, 1};
  available_ = x.available;
  peak_ = std::max(peak_, x.available);
}

availability_lattice regime_chain::forecast(std::size_t look_ahead, double detail) const {
  struct state {
    regime where;
    double weight; // probability to get there
  };
  // What does not depend on the node: probabilities by regime, sizes by the room left below the peak, where growth
  // ends.
  std::array<std::array<std::array<std::array<double, 3>, oldest + 1>, 3>, 2> chances;
  for (std::uint8_t full = 0; full < 2; ++full)
    for (std::uint8_t last = 0; last < 3; ++last)
      for (std::uint32_t age = 0; age <= oldest; ++age)
        chances[full][last][age] = probabilities({static_cast<outcome>(last), age}, full != 0);
  const auto growths = sizes(growth), losses = sizes(loss);
  std::vector<std::vector<double>> growths_by_room(growths.size());
  auto growths_within = [&](std::uint32_t room) -> const std::vector<double>& {
    if (room >= growths.size())
      return growths;
    auto& result = growths_by_room[room];
    if (result.empty()) {
      result.assign(growths.begin(), growths.begin() + room + 1);
      result[room] += std::accumulate(growths.begin() + room + 1, growths.end(), 0.0);
    }
    return result;
  };

  availability_lattice result;
  result.start = {1};
  result.stages.push_back({{available_, {}}});
  std::vector<state> now{{now_, 1}}, later;
  // Nodes of the next stage, by availability + 1, 0: none. Regimes meet only in new events and in the oldest age.
  std::array<std::vector<std::uint32_t>, 3> fresh_events, oldest_quiet;
  for (std::size_t h = 0; h < look_ahead; ++h) {
    std::vector<lattice_node> nodes;
    later.clear();
    for (outcome x : {nothing, growth, loss}) {
      fresh_events[x].clear();
      oldest_quiet[x].clear();
    }
    for (std::uint32_t i = 0; i < now.size(); ++i) {
      const auto [last, age] = now[i].where;
      const double weight = now[i].weight;
      const auto here = result.stages[h][i].available;
      const auto& p = chances[full(here)][last][age];
      auto& branches = result.stages[h][i].branches;
      branches.reserve(8);
      double kept = 0;
      auto add = [&](std::uint32_t joined, std::uint32_t lost, double probability, const regime& to) {
        const auto then = here + joined - lost;
        auto next = static_cast<std::uint32_t>(nodes.size());
        auto* known = joined + lost > 0 ? &fresh_events[to.last] : to.age == oldest ? &oldest_quiet[to.last] : nullptr;
        if (known) {
          if (known->size() <= then)
            known->resize(then + 1, 0);
          if ((*known)[then] == 0)
            (*known)[then] = next + 1;
          next = (*known)[then] - 1;
        }
        if (next == nodes.size()) {
          nodes.push_back({then, {}});
          later.push_back({to, 0});
        }
        branches.push_back({joined, lost, probability, next});
        kept += probability;
      };
      add(0, 0, p[nothing], {last, std::min(age + 1, oldest)});
      if (!full(here))
        each_size(growths_within(peak_ - here), peak_ - here, detail / (weight * p[growth]),
                  [&](std::uint32_t n, double share) {
                    add(n, 0, p[growth] * share, {growth, 1});
                  });
      each_size(losses, here, detail / (weight * p[loss]), [&](std::uint32_t n, double share) {
        add(0, n, p[loss] * share, {loss, 1});
      });
      for (auto& b : branches) {
        b.probability /= kept;
        later[b.next].weight += weight * b.probability;
      }
    }
    result.stages.push_back(std::move(nodes));
    std::swap(now, later);
  }
  return result;
}

} // namespace parcae
