#include "forecast/survival.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace parcae {

std::size_t survival_method::group_of(std::uint32_t age) {
  return std::min<std::size_t>(std::bit_width(age), groups - 1);
}

double survival_method::hazard(std::uint32_t age) const {
  // Shrunk towards the rate over all ages, worth one hour of one instance.
  const double all = (std::accumulate(lost_.begin(), lost_.end(), 0.0) + 0.5) /
                     (std::accumulate(at_risk_.begin(), at_risk_.end(), 0.0) + 60);
  const auto g = group_of(age);
  return (lost_[g] + 60 * all) / (at_risk_[g] + 60);
}

void survival_method::observe(const fleet_interval& x) {
  for (const auto& [joined, count] : cohorts_)
    at_risk_[group_of(interval_ - joined)] += count;
  auto remove_one = [&](std::uint32_t joined) {
    auto found = cohorts_.find(joined);
    if (found == cohorts_.end())
      found = cohorts_.begin(); // without names: the oldest
    if (found == cohorts_.end())
      return;
    lost_[group_of(interval_ - std::min(interval_, found->first))] += 1;
    if (--found->second == 0)
      cohorts_.erase(found);
  };
  for (auto joined : x.lost_joined_in)
    remove_one(joined);
  for (auto i = static_cast<std::uint32_t>(x.lost_joined_in.size()); i < x.lost; ++i)
    remove_one(UINT32_MAX);
  if (x.joined > 0)
    cohorts_[interval_] += x.joined;
  if (interval_ > 0) {
    const auto joined = std::min<std::size_t>(x.joined, 4096);
    if (joins_.size() <= joined)
      joins_.resize(joined + 1, 0);
    ++joins_[joined];
  }
  ++interval_;
  available_ = x.available;
}

availability_lattice survival_method::forecast(std::size_t look_ahead, double detail) const {
  availability_lattice result;
  result.start = {1};
  result.stages.push_back({{available_, {}}});
  auto joins = joins_;
  if (joins.empty())
    joins = {1};
  const double intervals = std::accumulate(joins.begin(), joins.end(), 0.0);
  std::vector<double> weight{1};
  for (std::size_t h = 0; h < look_ahead; ++h) {
    // The mean hazard of those here now, h intervals older.
    double sum = 0, instances = 0;
    for (const auto& [joined, count] : cohorts_) {
      sum += count * hazard(interval_ + static_cast<std::uint32_t>(h) - joined);
      instances += count;
    }
    const double rate = std::clamp(instances > 0 ? sum / instances : 0, 0.0, 1.0);
    std::map<std::uint32_t, std::uint32_t> later; // availability -> node
    std::vector<lattice_node> nodes;
    std::vector<double> next_weight;
    for (std::size_t i = 0; i < result.stages[h].size(); ++i) {
      const auto available = result.stages[h][i].available;
      auto& branches = result.stages[h][i].branches;
      double kept = 0;
      double lose = std::pow(1 - rate, available); // binomial, from 0 lost upwards
      for (std::uint32_t lost = 0; lost <= available; ++lost) {
        for (std::uint32_t joined = 0; joined < joins.size(); ++joined) {
          const double p = lose * joins[joined] / intervals;
          if (p <= 0 || (weight[i] * p < detail && lost + joined > 0))
            continue;
          const auto to = available + joined - lost;
          const auto [found, fresh] = later.try_emplace(to, static_cast<std::uint32_t>(nodes.size()));
          if (fresh) {
            nodes.push_back({to, {}});
            next_weight.push_back(0);
          }
          branches.push_back({joined, lost, p, found->second});
          kept += p;
        }
        if (rate >= 1 || (lost > rate * available && lose < 1e-12))
          break;
        lose *= (available - lost) * rate / ((lost + 1) * (1 - rate));
      }
      if (branches.empty()) { // everything is improbable: nothing happens
        const auto [found, fresh] = later.try_emplace(available, static_cast<std::uint32_t>(nodes.size()));
        if (fresh) {
          nodes.push_back({available, {}});
          next_weight.push_back(0);
        }
        branches.push_back({0, 0, 1, found->second});
        kept = 1;
      }
      for (auto& b : branches) {
        b.probability /= kept;
        next_weight[b.next] += weight[i] * b.probability;
      }
    }
    result.stages.push_back(std::move(nodes));
    weight = std::move(next_weight);
  }
  return result;
}

} // namespace parcae
