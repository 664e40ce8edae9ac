// The mean cost of a move over all subsets of instances that may be lost.

#include "planner/cost/hypergeometric.hpp"
#include "planner/simulation/published_cost.hpp"

#include <boost/math/special_functions/binomial.hpp>
#include <boost/unordered/unordered_flat_map.hpp>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

namespace parcae {

namespace {

double choose(std::uint32_t n, std::uint32_t k) {
  return k > n ? 0 : boost::math::binomial_coefficient<double>(n, k);
}

struct asked_set {
  std::uint64_t mask = 0;
  double ways = 0;
};

// Sets of slots with their ways, in the order in which they came, so that sums do not depend on hashes.
class asked_sets {
public:
  void add(std::uint64_t mask, double ways) {
    const auto [at, is_new] = index_.try_emplace(mask, all_.size());
    if (is_new)
      all_.push_back({mask, 0});
    all_[at->second].ways += ways;
  }

  void take(std::vector<asked_set>& all) {
    all.swap(all_);
    all_.clear();
    index_.clear();
  }

private:
  boost::unordered_flat_map<std::uint64_t, std::size_t> index_;
  std::vector<asked_set> all_;
};

} // namespace

struct published_cost::asked_memory {
  std::vector<std::vector<asked_set>> now; // by losses, before a stage
  std::vector<asked_sets> next;            // after it; empty between enumerations
};

published_cost::published_cost(const profile& workload, const network_profile& network, std::uint32_t devices) :
    workload_(workload), network_(network), devices_(devices), asked_(std::make_unique<asked_memory>()) {}

published_cost::~published_cost() = default;

double published_cost::move_ms(const shape& from, const shape& to, std::uint32_t held, std::uint32_t lost) {
  if (from == to && lost == 0)
    return 0;
  if (devices_ > 1 && lost > 0)
    return by_instance_ms(from, to, held, lost);
  // Rows of moves from one configuration are asked for together.
  if (const std::tuple key{held, from.slots(), lost}; key != in_grid_key_) {
    in_grid_ = hypergeometric(held * devices_, from.slots(), lost);
    in_grid_key_ = key;
  }
  const auto& in_grid = in_grid_;
  const auto most = static_cast<std::uint32_t>(in_grid.size() - 1);
  const double restart = restart_ms(to, kind_of(from, to, lost));
  double mean = 0;
  if (from.depth == to.depth) {
    const double intra = rebuild_ms(to, change::remove) + workload_.process_ms;
    // Most losses first: the table for them serves the others too.
    for (auto k = most + 1; k-- > 0;)
      if (in_grid[k] > 0) {
        const auto& x = same_depth(from, to.width, k);
        mean += in_grid[k] * (x.enough * intra + x.ms + (1 - x.enough) * restart);
      }
    return mean;
  }
  for (auto k = most + 1; k-- > 0;)
    if (in_grid[k] > 0)
      mean += in_grid[k] * other_depth_ms(from, to.depth, k);
  return mean + (to.width > 1 ? cut_of(to.depth).largest_ms : 0) + restart;
}

const published_cost::transfer_case& published_cost::same_depth(const shape& from, std::uint32_t to_width,
                                                                std::uint32_t losses) {
  auto& table = same_depth_[{from, to_width}];
  if (table.size() <= losses)
    table.resize(losses + 1);
  if (table[losses].enough >= 0)
    return table[losses];
  // Transfers add up only where a stage loses all its replicas, or the last one all but one: two such stages together
  // lose 2·width − 1. Less likely than rounding errors is as good as impossible.
  constexpr double impossible = 1e-15;
  const auto together = hypergeometric(from.slots(), std::min(2u, from.depth) * from.width, losses);
  double two_stages = 0;
  for (std::size_t k = 2 * from.width - 1; k < together.size(); ++k)
    two_stages += together[k];
  if (from.depth == 1 || two_stages * from.depth * from.depth < impossible)
    return table[losses] = slowest_transfer(from, to_width, losses);
  enumerate_same_depth(table, from, to_width);
  return table[losses];
}

published_cost::transfer_case published_cost::slowest_transfer(const shape& from, std::uint32_t to_width,
                                                               std::uint32_t losses) {
  const auto& cut = cut_of(from.depth);
  if (to_width > from.width)
    return {0, cut.largest_ms};
  const auto spare = from.width - to_width;
  auto& stages = replica_losses_.try_emplace({from.width, spare}, from.width, spare).first->second;
  // The slowest transfer is that of one of the j slowest stages unless none of these lacks a replica.
  auto order = cut.transfer_ms;
  std::sort(order.begin(), order.end(), std::greater<>());
  transfer_case result{1, 0};
  for (std::uint32_t j = 1; j <= from.depth; ++j) {
    const double next_ms = j < from.depth ? order[j] : 0;
    if (next_ms == order[j - 1] && j < from.depth)
      continue;
    result.enough = stages.none_lacks(j, from.depth, losses);
    result.ms += (order[j - 1] - next_ms) * (1 - result.enough);
  }
  return result;
}

void published_cost::enumerate_same_depth(std::vector<transfer_case>& table, const shape& from,
                                          std::uint32_t to_width) {
  const auto losses = static_cast<std::uint32_t>(table.size() - 1);
  // One pass over the stages; a case is (slowest transfer, serial transfers, all stages have enough replicas), weighted
  // by the number of ways to lose that many.
  struct outcome {
    double slowest_ms, serial_ms, ways;
    bool enough;
  };
  const auto& cut = cut_of(from.depth);
  std::vector<std::vector<outcome>> now(losses + 1), next(losses + 1);
  now[0] = {{0, 0, 1, true}};
  for (std::uint32_t stage = 0; stage < from.depth; ++stage) {
    for (auto& x : next)
      x.clear();
    const bool last = stage + 1 == from.depth;
    for (std::uint32_t before = 0; before <= losses; ++before)
      for (const auto& x : now[before])
        for (std::uint32_t here = 0; here <= std::min(from.width, losses - before); ++here) {
          const auto left = from.width - here;
          const auto lacking = to_width > left ? to_width - left : 0;
          auto y = x;
          y.ways *= choose(from.width, here);
          if (lacking > 0) {
            y.enough = false;
            y.slowest_ms = std::max(y.slowest_ms, cut.transfer_ms[stage]);
            if (lacking == to_width || (last && lacking == to_width - 1))
              y.serial_ms += cut.transfer_ms[stage];
          }
          auto& bucket = next[before + here];
          auto same = std::find_if(bucket.begin(), bucket.end(), [&](const outcome& z) {
            return z.slowest_ms == y.slowest_ms && z.serial_ms == y.serial_ms && z.enough == y.enough;
          });
          if (same == bucket.end())
            bucket.push_back(y);
          else
            same->ways += y.ways;
        }
    std::swap(now, next);
    std::size_t outcomes = 0;
    for (const auto& x : now)
      outcomes += x.size();
    if (outcomes > max_outcomes)
      return sample_same_depth(table, from, to_width);
  }
  for (std::uint32_t k = 0; k <= losses; ++k) {
    table[k] = {0, 0};
    double all = 0;
    for (const auto& x : now[k]) {
      all += x.ways;
      table[k].enough += x.enough ? x.ways : 0;
      table[k].ms += x.ways * std::max(x.slowest_ms, x.serial_ms);
    }
    if (all > 0) {
      table[k].enough /= all;
      table[k].ms /= all;
    }
  }
}

void published_cost::sample_same_depth(std::vector<transfer_case>& table, const shape& from, std::uint32_t to_width) {
  std::mt19937_64 random(1);
  const auto& transfer_ms = cut_of(from.depth).transfer_ms;
  std::vector<std::uint32_t> slots(from.slots());
  std::iota(slots.begin(), slots.end(), 0);
  for (std::uint32_t k = 0; k < table.size(); ++k) {
    table[k] = {0, 0};
    for (std::size_t i = 0; i < samples; ++i) {
      std::vector<std::uint32_t> left(from.depth, from.width);
      for (std::uint32_t drawn = 0; drawn < k; ++drawn) {
        std::swap(slots[drawn], slots[drawn + random() % (slots.size() - drawn)]);
        --left[slots[drawn] % from.depth];
      }
      bool enough = true;
      const double ms = same_depth_transfer_ms(left, to_width, transfer_ms, enough);
      table[k].enough += enough ? 1.0 / samples : 0;
      table[k].ms += ms / samples;
    }
  }
}

double published_cost::same_depth_transfer_ms(const std::vector<std::uint32_t>& left, std::uint32_t to_width,
                                              const std::vector<double>& transfer_ms, bool& enough) {
  double slowest_ms = 0, serial_ms = 0;
  for (std::size_t stage = 0; stage < left.size(); ++stage) {
    const auto lacking = to_width > left[stage] ? to_width - left[stage] : 0;
    if (lacking == 0)
      continue;
    enough = false;
    slowest_ms = std::max(slowest_ms, transfer_ms[stage]);
    if (lacking == to_width || (stage + 1 == left.size() && lacking == to_width - 1))
      serial_ms += transfer_ms[stage];
  }
  return std::max(slowest_ms, serial_ms);
}

const published_cost::greedy_order& published_cost::order_of(const shape& from, std::uint32_t to_depth) {
  // The order depends on how the layers overlap and on the number of slots.
  auto& result = orders_[{from, to_depth}];
  if (!result.groups.empty())
    return result;
  const auto& old_cut = cut_of(from.depth);
  const auto& new_cut = cut_of(to_depth);
  std::vector<double> up_to{0}; // parameters of the layers before
  for (const auto& layer : workload_.layers)
    up_to.push_back(up_to.back() + layer.parameters);
  for (std::uint32_t stage = 0; stage < to_depth; ++stage) {
    std::vector<double> missing(from.depth);
    for (std::uint32_t old = 0; old < from.depth; ++old) {
      const auto begin = std::max(new_cut.first_layer[stage], old_cut.first_layer[old]);
      const auto end = std::min(new_cut.first_layer[stage + 1], old_cut.first_layer[old + 1]);
      missing[old] = new_cut.parameters[stage] - (begin < end ? up_to[end] - up_to[begin] : 0);
    }
    std::vector<std::uint32_t> stages(from.depth);
    std::iota(stages.begin(), stages.end(), 0);
    std::stable_sort(stages.begin(), stages.end(), [&](auto a, auto b) { return missing[a] < missing[b]; });
    auto& groups = result.groups.emplace_back();
    for (auto old : stages) {
      if (groups.empty() || missing[old] != groups.back().parameters)
        groups.push_back(
            {missing[old], network_.transfer_ms(missing[old] * workload_.state_bytes_per_parameter()), {}, 0});
      groups.back().stages.push_back(old);
      for (auto slot = old; slot < std::min(from.slots(), 64u); slot += from.depth)
        groups.back().slots |= std::uint64_t{1} << slot;
    }
  }
  return result;
}

double published_cost::other_depth_ms(const shape& from, std::uint32_t to_depth, std::uint32_t losses) {
  const auto slots = from.slots();
  if (losses >= slots)
    return 0;
  auto& table = other_depth_[{from, to_depth}];
  if (table.mean_ms.size() <= losses)
    table.mean_ms.resize(losses + 1, -1);
  auto& mean = table.mean_ms[losses];
  if (mean >= 0)
    return mean;
  if (losses >= table.cases && losses < table.too_many && slots <= 64)
    enumerate(table, from, to_depth, losses);
  if (losses >= table.cases)
    return mean = sampled_ms(from, to_depth, losses);
  const auto stage = std::min(to_depth, slots - losses) - 1;
  mean = 0;
  for (std::uint32_t asked = 0; asked <= losses; ++asked)
    if (asked + stage + 1 <= slots)
      mean += choose(slots - asked - stage - 1, losses - asked) * table.sums[stage][asked];
  return mean /= choose(slots, losses);
}

// An instance's fate is drawn only when the greedy choice asks for it. Asked ones are lost or taken and one is taken
// per stage, so the set of asked ones is the whole state, and the weight of a set is a number of ways that does not
// depend on how many are lost in all.
void published_cost::enumerate(other_depth& table, const shape& from, std::uint32_t to_depth, std::uint32_t losses) {
  const auto& order = order_of(from, to_depth);
  std::vector<std::vector<double>> sums(to_depth, std::vector<double>(losses + 1, 0));
  auto& now = asked_->now;
  auto& next = asked_->next;
  if (next.size() <= losses) {
    now.resize(losses + 1);
    next.resize(losses + 1);
  }
  for (auto& x : now)
    x.clear();
  now[0] = {{0, 1}};
  for (std::uint32_t stage = 0; stage < to_depth; ++stage) {
    const bool last = stage + 1 == to_depth; // nobody asks after it
    std::size_t states = 0;
    for (std::uint32_t before = 0; before <= losses; ++before)
      for (const auto& x : now[before]) {
        auto asked = x.mask;
        auto lost = before;
        for (const auto& group : order.groups[stage]) {
          auto open = group.slots & ~x.mask;
          for (; open != 0 && lost <= losses; open &= open - 1, ++lost) {
            sums[stage][lost] += x.ways * group.missing_ms;
            if (last)
              continue;
            asked |= open & -open;
            next[lost].add(asked, x.ways);
          }
          if (lost > losses)
            break;
        }
      }
    for (std::uint32_t lost = 0; lost <= losses; ++lost) {
      next[lost].take(now[lost]);
      states += now[lost].size();
    }
    if (states > max_states) {
      table.too_many = losses;
      return;
    }
  }
  table.sums = std::move(sums);
  table.cases = losses + 1;
}

double published_cost::last_transfer_ms(const shape& from, std::uint32_t to_depth,
                                        const std::vector<bool>& lost_of_grid) {
  const auto& order = order_of(from, to_depth);
  // Slots of an old stage are taken in order: the next one of each that may be left.
  std::vector<std::uint32_t> next(from.depth);
  std::iota(next.begin(), next.end(), 0);
  auto settle = [&](std::uint32_t old) {
    while (next[old] < from.slots() && lost_of_grid[next[old]])
      next[old] += from.depth;
  };
  for (std::uint32_t old = 0; old < from.depth; ++old)
    settle(old);
  double last_ms = 0;
  for (const auto& groups : order.groups) {
    bool found = false;
    for (const auto& group : groups) {
      const auto old = *std::min_element(group.stages.begin(), group.stages.end(),
                                         [&](auto a, auto b) { return next[a] < next[b]; });
      if (next[old] >= from.slots())
        continue;
      next[old] += from.depth;
      settle(old);
      last_ms = group.missing_ms;
      found = true;
      break;
    }
    if (!found)
      break;
  }
  return last_ms;
}

double published_cost::sampled_ms(const shape& from, std::uint32_t to_depth, std::uint32_t losses) {
  std::mt19937_64 random(1);
  std::vector<std::uint32_t> slots(from.slots());
  std::iota(slots.begin(), slots.end(), 0);
  double sum = 0;
  const auto rounds = losses == 0 ? 1 : samples;
  for (std::size_t i = 0; i < rounds; ++i) {
    std::vector<bool> gone(from.slots(), false);
    for (std::uint32_t k = 0; k < losses; ++k) {
      std::swap(slots[k], slots[k + random() % (slots.size() - k)]);
      gone[slots[k]] = true;
    }
    sum += last_transfer_ms(from, to_depth, gone);
  }
  return sum / static_cast<double>(rounds);
}

} // namespace parcae
