#include "planner/optimizer.hpp"

#include <algorithm>

namespace parcae {

namespace {

constexpr std::uint32_t nowhere = UINT32_MAX;

// Best way found to a node of the layer. Nodes: 2·c running c, 2·c + 1 migrating to c, 2·n IDLE.
struct way {
  double samples = -1; ///< negative: not reached
  double rest_ms = 0;
  bool begun = false;
  std::uint32_t from = nowhere;

  bool better_than(const way& x) const {
    return samples > x.samples || (samples == x.samples && rest_ms < x.rest_ms);
  }
};

} // namespace

interval_outcome carry_out(move_table& table, const training_state& now, std::uint32_t target, std::uint32_t held,
                           std::uint32_t lost) {
  if (target == move_table::idle)
    return {{move_table::idle, now.begun, false, 0}, 0, 0};
  interval_outcome result;
  if (now.at == move_table::idle)
    result.cost_ms = table.start_ms(target, !now.begun);
  else
    result.cost_ms = table.move_ms(now.at, target, held, lost);
  if (now.migrating && now.at != target)
    result.cost_ms += table.redirect_ms(target);
  const double busy_ms = now.rest_ms + result.cost_ms;
  const double samples = table.rate(target) * (interval_s - busy_ms / 1000);
  result.next = {target, true, samples < 0, samples < 0 ? busy_ms - 1000 * interval_s : 0};
  result.samples = std::max(samples, 0.0);
  return result;
}

std::vector<std::uint32_t> plan_known(move_table& table, const training_state& now, std::uint32_t held,
                                      std::span<const fleet_change> future) {
  const auto n = static_cast<std::uint32_t>(table.shapes().size());
  const auto nodes = 2 * n + 1;
  auto node_of = [&](const training_state& x) { return x.at == move_table::idle ? 2 * n : 2 * x.at + x.migrating; };
  std::vector<way> ways(nodes * (future.size() + 1));
  std::vector<std::uint32_t> reached{node_of(now)}, next_reached;
  ways[reached[0]] = {0, now.rest_ms, now.begun, nowhere};
  for (std::size_t h = 0; h < future.size(); ++h) {
    const auto* before = &ways[h * nodes];
    auto* after = &ways[(h + 1) * nodes];
    const auto available = held + future[h].joined - future[h].lost;
    const auto& targets = table.fitting(available);
    next_reached.clear();
    auto reach = [&](std::uint32_t node, const way& x) {
      if (after[node].samples < 0)
        next_reached.push_back(node);
      if (x.better_than(after[node]))
        after[node] = x;
    };
    for (auto from : reached) {
      const auto& x = before[from];
      if (targets.empty()) {
        reach(2 * n, {x.samples, 0, x.begun, from});
        continue;
      }
      if (from % 2 == 0 && from < 2 * n) { // running: the common case, without carry_out's branches
        auto* costs = table.row(from / 2, held, future[h].lost);
        for (auto target : targets) {
          if (costs[target] != costs[target])
            table.move_ms(from / 2, target, held, future[h].lost);
          const double samples = table.rate(target) * (interval_s - costs[target] / 1000);
          if (samples >= 0)
            reach(2 * target, {x.samples + samples, 0, true, from});
          else
            reach(2 * target + 1, {x.samples, costs[target] - 1000 * interval_s, true, from});
        }
        continue;
      }
      const training_state state{from == 2 * n ? move_table::idle : from / 2, x.begun, from != 2 * n, x.rest_ms};
      for (auto target : targets) {
        const auto y = carry_out(table, state, target, held, future[h].lost);
        reach(node_of(y.next), {x.samples + y.samples, y.next.rest_ms, true, from});
      }
    }
    std::swap(reached, next_reached);
    held = available;
  }
  const auto* last = &ways[future.size() * nodes];
  auto node = *std::min_element(reached.begin(), reached.end());
  for (auto x : reached)
    if (last[x].better_than(last[node]) || (!last[node].better_than(last[x]) && x < node))
      node = x;
  std::vector<std::uint32_t> moves(future.size());
  for (auto h = future.size(); h-- > 0;) {
    moves[h] = node == 2 * n ? move_table::idle : node / 2;
    node = ways[(h + 1) * nodes + node].from;
  }
  return moves;
}

} // namespace parcae
