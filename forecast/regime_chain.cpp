#include "forecast/regime_chain.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace parcae {

namespace {

// Observations that a coarser regime is worth in a finer one: as many as there are outcomes, and one.
constexpr double shrinkage = 4;

// After this number of intervals half of what was seen is forgotten: markets change over hours.
constexpr double half_life = 240;

// Calls f(size, probability) for sizes of at least this probability, rarer neighbours joined at their mean; none if all
// are rarer.
template <class F>
void each_size(const std::vector<double>& p, std::uint32_t most, double least_fraction, F f) {
  if (least_fraction > 1.001) // most nodes of a lattice
    return;
  double fraction = 0, mean = 0, rest = 0;
  for (std::uint32_t n = 1; n < p.size() && n <= most; ++n)
    rest += p[n];
  if (rest < least_fraction)
    return;
  for (std::uint32_t n = 1; n < p.size() && n <= most; ++n) {
    fraction += p[n];
    mean += p[n] * n;
    rest -= p[n];
    const bool last = n + 1 >= p.size() || n == most;
    if (fraction >= least_fraction ? rest >= least_fraction || last : last) {
      f(static_cast<std::uint32_t>(std::lround(mean / fraction)), fraction);
      fraction = mean = 0;
    }
  }
}

// Probabilities of sizes that are cut at the largest that fits, which stands for all beyond.
class capped_sizes {
public:
  explicit capped_sizes(std::vector<double> all) : all_(std::move(all)), by_room_(all_.size()) {}

  const std::vector<double>& within(std::uint32_t room) {
    if (room >= all_.size())
      return all_;
    auto& result = by_room_[room];
    if (result.empty()) {
      result.assign(all_.begin(), all_.begin() + room + 1);
      result[room] += std::accumulate(all_.begin() + room + 1, all_.end(), 0.0);
    }
    return result;
  }

private:
  const std::vector<double> all_;
  std::vector<std::vector<double>> by_room_; // made when first asked for
};

} // namespace

regime_chain::regime_chain() = default;

std::size_t regime_chain::group_of(std::uint32_t age) {
  return age <= 5 ? age : age <= 9 ? 6 : age < oldest ? 7 : 8;
}

regime_chain::counts regime_chain::probabilities(const regime& x, bool full) const {
  counts p{0.9, 0.05, 0.05};
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

regime_chain::chances regime_chain::all_probabilities() const {
  chances result;
  for (std::uint8_t full = 0; full < 2; ++full)
    for (std::uint8_t last = 0; last < 3; ++last)
      for (std::uint32_t age = 0; age <= oldest; ++age)
        result[full][last][age] = probabilities({static_cast<outcome>(last), age}, full != 0);
  return result;
}

// The nodes behind those of the last stage, while the branches to them are made. Regimes meet only in new events and in
// the oldest age.
class regime_chain::next_stage {
public:
  struct state {
    regime where;
    double weight; // probability to get there
  };

  void begin() {
    nodes.clear();
    states.clear();
    for (outcome x : {nothing, growth, loss}) {
      fresh_events_[x].clear();
      oldest_quiet_[x].clear();
    }
  }

  // Index of the node with that number of instances.
  std::uint32_t find(std::uint32_t available, bool is_event, const regime& where) {
    const auto fresh = static_cast<std::uint32_t>(nodes.size());
    auto* known = is_event ? &fresh_events_[where.last] : where.age == oldest ? &oldest_quiet_[where.last] : nullptr;
    if (known) {
      if (known->size() <= available)
        known->resize(available + 1, 0);
      if (const auto found = (*known)[available]; found != 0)
        return found - 1;
      (*known)[available] = fresh + 1;
    }
    nodes.push_back({available, {}});
    states.push_back({where, 0});
    return fresh;
  }

  std::vector<lattice_node> nodes;
  std::vector<state> states; // by node

private:
  std::array<std::vector<std::uint32_t>, 3> fresh_events_, oldest_quiet_; // nodes by availability + 1, 0: none
};

availability_lattice regime_chain::forecast(std::size_t look_ahead, double detail) const {
  // Does not depend on the node, but for the room left below the peak, where growth ends.
  const auto chances = all_probabilities();
  capped_sizes growths(sizes(growth));
  const auto losses = sizes(loss);
  availability_lattice result;
  result.start = {1};
  result.stages.push_back({{available_, {}}});
  std::vector<next_stage::state> now{{now_, 1}};
  next_stage next;
  for (std::size_t h = 0; h < look_ahead; ++h) {
    next.begin();
    for (std::uint32_t i = 0; i < now.size(); ++i) {
      const auto [last, age] = now[i].where;
      const double weight = now[i].weight;
      const auto here = result.stages[h][i].available;
      const auto& p = chances[full(here)][last][age];
      auto& branches = result.stages[h][i].branches;
      branches.reserve(8);
      double kept = 0;
      auto add = [&](std::uint32_t joined, std::uint32_t lost, double probability, const regime& to) {
        branches.push_back({joined, lost, probability, next.find(here + joined - lost, joined + lost > 0, to)});
        kept += probability;
      };
      add(0, 0, p[nothing], {last, std::min(age + 1, oldest)});
      if (!full(here))
        each_size(growths.within(peak_ - here), peak_ - here, detail / (weight * p[growth]),
                  [&](std::uint32_t n, double fraction) {
                    add(n, 0, p[growth] * fraction, {growth, 1});
                  });
      each_size(losses, here, detail / (weight * p[loss]), [&](std::uint32_t n, double fraction) {
        add(0, n, p[loss] * fraction, {loss, 1});
      });
      for (auto& b : branches) {
        b.probability /= kept;
        next.states[b.next].weight += weight * b.probability;
      }
    }
    result.stages.push_back(std::move(next.nodes));
    std::swap(now, next.states);
  }
  return result;
}

} // namespace parcae
