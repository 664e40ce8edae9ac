// The mean cost of a move where the devices of an instance vanish together, which ties the stages to each other.

#include "planner/cost/hypergeometric.hpp"
#include "planner/simulation/published_cost.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

namespace parcae {

namespace {

using instance_kinds = std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::uint32_t>>;

// Instances that are alike: at the same depth those that hold the same stages; else the choice of survivors goes by
// their numbers, and each is a kind of its own.
instance_kinds kinds_of(const shape& from, bool same_depth, std::uint32_t devices) {
  instance_kinds result;
  for (std::uint32_t i = 0; i * devices < from.slots(); ++i)
    result[{same_depth ? i * devices % from.depth : i, std::min(devices, from.slots() - i * devices)}].push_back(i);
  return result;
}

// How many of each kind are lost: in how many ways.
double ways_to_lose(std::uint32_t lost, const instance_kinds& kinds) {
  std::vector<double> ways(lost + 1, 0); // by losses
  ways[0] = 1;
  for (const auto& [stages, members] : kinds)
    for (auto k = lost + 1; k-- > 0;)
      for (std::uint32_t here = 1; here <= std::min<std::size_t>(k, members.size()); ++here)
        ways[k] += ways[k - here];
  return ways[lost];
}

} // namespace

published_cost::transfer_case published_cost::given(const shape& from, const shape& to,
                                                    const std::vector<bool>& lost_of_grid) {
  if (from.depth != to.depth)
    return {0, last_transfer_ms(from, to.depth, lost_of_grid)};
  std::vector<std::uint32_t> left(from.depth, 0);
  for (std::uint32_t slot = 0; slot < from.slots(); ++slot)
    left[slot % from.depth] += lost_of_grid[slot] ? 0 : 1;
  bool enough = true;
  const double ms = same_depth_transfer_ms(left, to.width, cut_of(to.depth).transfer_ms, enough);
  return {enough ? 1.0 : 0.0, ms};
}

double published_cost::total_ms(const shape& from, const shape& to, std::uint32_t lost, const transfer_case& x) {
  const double restart = restart_ms(to, kind_of(from, to, lost));
  if (from.depth != to.depth)
    return x.ms + (to.width > 1 ? cut_of(to.depth).largest_ms : 0) + restart;
  return x.enough * (rebuild_ms(to, change::remove) + workload_.process_ms) + x.ms + (1 - x.enough) * restart;
}

double published_cost::move_given_ms(const shape& from, const shape& to, const std::vector<bool>& lost_of_grid,
                                     std::uint32_t lost) {
  return from == to && lost == 0 ? 0 : total_ms(from, to, lost, given(from, to, lost_of_grid));
}

const published_cost::transfer_case& published_cost::mean_by_instance(const shape& from, const shape& to,
                                                                      std::uint32_t lost_instances) {
  // Transfers of a re-cut do not depend on the width.
  const bool same_depth = from.depth == to.depth;
  const auto [found, fresh] =
      by_instance_.try_emplace({from, shape{same_depth ? to.width : 0, to.depth}, lost_instances});
  auto& mean = found->second;
  if (!fresh)
    return mean;
  mean.enough = 0;
  const auto instances = (from.slots() + devices_ - 1) / devices_;
  const auto kinds = kinds_of(from, same_depth, devices_);
  std::vector<bool> gone(from.slots(), false);
  auto set = [&](std::uint32_t instance, bool value) {
    for (auto slot = instance * devices_; slot < std::min((instance + 1) * devices_, from.slots()); ++slot)
      gone[slot] = value;
  };
  double all = 0;
  auto add = [&](double ways) {
    const auto x = given(from, to, gone);
    mean.enough += ways * x.enough;
    mean.ms += ways * x.ms;
    all += ways;
  };
  if (ways_to_lose(lost_instances, kinds) <= max_subsets) {
    using iterator = instance_kinds::const_iterator;
    std::function<void(iterator, std::uint32_t, double)> lose = [&](iterator kind, std::uint32_t rest, double ways) {
      if (kind == kinds.end()) {
        if (rest == 0)
          add(ways);
        return;
      }
      const auto& members = kind->second;
      for (std::uint32_t here = 0;; ++here) {
        lose(std::next(kind), rest - here, ways);
        if (here == rest || here == members.size())
          break;
        set(members[here], true);
        ways = ways * static_cast<double>(members.size() - here) / (here + 1);
      }
      for (auto i : members)
        set(i, false);
    };
    lose(kinds.begin(), lost_instances, 1);
  } else {
    std::mt19937_64 random(1);
    std::vector<std::uint32_t> order(instances);
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t n = 0; n < samples; ++n) {
      std::fill(gone.begin(), gone.end(), false);
      for (std::uint32_t k = 0; k < lost_instances; ++k) {
        std::swap(order[k], order[k + random() % (instances - k)]);
        set(order[k], true);
      }
      add(1);
    }
  }
  mean.enough /= all;
  mean.ms /= all;
  return mean;
}

double published_cost::by_instance_ms(const shape& from, const shape& to, std::uint32_t held, std::uint32_t lost) {
  const auto p = hypergeometric(held, (from.slots() + devices_ - 1) / devices_, lost);
  transfer_case mean{0, 0};
  for (std::uint32_t k = 0; k < p.size(); ++k)
    if (p[k] > 0) {
      const auto& x = mean_by_instance(from, to, k);
      mean.enough += p[k] * x.enough;
      mean.ms += p[k] * x.ms;
    }
  return total_ms(from, to, lost * devices_, mean);
}

} // namespace parcae
