#include "forecast/regime_chain.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

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

std::array<double, 3> regime_chain::probabilities(const regime& x, std::uint32_t available) const {
  std::array<double, 3> p{0.9, 0.05, 0.05};
  const auto group = group_of(x.age);
  for (const auto* seen : {&all_, &by_last_[x.last], &by_group_[x.last][group], &by_full_[full(available)][x.last][group]}) {
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

std::vector<double> regime_chain::growth_from(std::uint32_t available, const std::vector<double>& sizes) const {
  auto p = sizes;
  const auto room = peak_ > available ? peak_ - available : 0;
  const double beyond = (grew_beyond_ + 1) / (grew_below_ + 2);
  for (auto n = room + 1; room > 0 && n < p.size(); ++n) {
    p[room] += p[n] * (1 - beyond);
    p[n] *= beyond;
  }
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
  grew_below_ *= kept;
  grew_beyond_ *= kept;
}

void regime_chain::observe(const fleet_interval& x) {
  const auto happened = x.joined > x.lost ? growth : x.lost > x.joined ? loss : nothing;
  if (begun_) {
    forget();
    ++all_[happened];
    ++by_last_[now_.last][happened];
    ++by_group_[now_.last][group_of(now_.age)][happened];
    ++by_full_[full(available_)][now_.last][group_of(now_.age)][happened];
    if (happened == growth && !full(available_)) {
      ++grew_below_;
      grew_beyond_ += x.available > peak_ ? 1 : 0;
    }
    if (happened != nothing) {
      // Sizes beyond any sensible resolution count as the largest one kept.
      const auto size = std::min<std::size_t>(happened == growth ? x.joined - x.lost : x.lost - x.joined, 4096);
      auto& seen = size_counts_[happened];
      if (seen.size() <= size)
        seen.resize(size + 1, 0);
      ++seen[size];
    }
  }
  // The first interval only says how many there are.
  begun_ = true;
  now_ = happened == nothing ? regime{now_.last, std::min(now_.age + 1, oldest)} : regime{happened, 1};
  available_ = x.available;
  peak_ = std::max(peak_, x.available);
}

availability_lattice regime_chain::forecast(std::size_t look_ahead, double detail) const {
  using key = std::tuple<outcome, std::uint32_t, std::uint32_t>; // last event, its age, available
  availability_lattice result;
  result.start = {1};
  result.stages.push_back({{available_, {}}});
  std::map<key, std::uint32_t> now{{{now_.last, now_.age, available_}, 0}};
  std::vector<double> weight{1};
  const auto growths = sizes(growth), losses = sizes(loss);
  for (std::size_t h = 0; h < look_ahead; ++h) {
    std::map<key, std::uint32_t> later;
    std::vector<lattice_node> nodes;
    std::vector<double> next_weight;
    for (const auto& [from, i] : now) {
      const auto [last, age, available] = from;
      const auto p = probabilities({last, age}, available);
      auto& branches = result.stages[h][i].branches;
      double kept = 0;
      auto add = [&](std::uint32_t joined, std::uint32_t lost, double probability, const key& to) {
        const auto [found, fresh] = later.try_emplace(to, static_cast<std::uint32_t>(nodes.size()));
        if (fresh) {
          nodes.push_back({std::get<2>(to), {}});
          next_weight.push_back(0);
        }
        branches.push_back({joined, lost, probability, found->second});
        kept += probability;
      };
      add(0, 0, p[nothing], {last, std::min(age + 1, oldest), available});
      const auto here = available;
      each_size(growth_from(here, growths), UINT32_MAX - here, detail / (weight[i] * p[growth]), [&](std::uint32_t n, double share) {
        add(n, 0, p[growth] * share, {growth, 1, here + n});
      });
      each_size(losses, here, detail / (weight[i] * p[loss]), [&](std::uint32_t n, double share) {
        add(0, n, p[loss] * share, {loss, 1, here - n});
      });
      for (auto& b : branches) {
        b.probability /= kept;
        next_weight[b.next] += weight[i] * b.probability;
      }
    }
    result.stages.push_back(std::move(nodes));
    now = std::move(later);
    weight = std::move(next_weight);
  }
  return result;
}

} // namespace parcae
