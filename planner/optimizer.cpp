#include "planner/optimizer.hpp"

#include <algorithm>

namespace parcae {

namespace {

// Best ways found to the nodes of all layers: c running c, n + c migrating to c, 2·n IDLE.
struct layers {
  std::vector<double> samples; // negative: not reached
  std::vector<double> rest_ms;
  std::vector<std::uint32_t> from; // node of the layer before

  layers(std::size_t nodes, std::size_t count) :
      samples(nodes * count, -1), rest_ms(nodes * count, 0), from(nodes * count, 0) {}

  void reach(std::size_t node, double x, double rest, std::uint32_t origin) {
    if (x < samples[node] || (x == samples[node] && rest >= rest_ms[node]))
      return;
    samples[node] = x;
    rest_ms[node] = rest;
    from[node] = origin;
  }
};

} // namespace

interval_outcome carry_out(move_table& table, const training_state& now, std::uint32_t target, std::uint32_t held,
                           std::uint32_t lost, double seconds) {
  if (target == move_table::idle)
    return {{move_table::idle, now.begun, false, 0}, 0, 0};
  interval_outcome result;
  if (now.at == move_table::idle)
    result.cost_ms = table.costs().start_ms(table.shapes()[target], !now.begun);
  else
    result.cost_ms = table.move_ms(now.at, target, held, lost);
  if (now.migrating && now.at != target)
    result.cost_ms += table.costs().redirect_ms(table.shapes()[target]);
  const double busy_ms = now.rest_ms + result.cost_ms;
  const double samples = table.rate(target) * (seconds - busy_ms / 1000);
  result.next = {target, true, samples < 0, samples < 0 ? busy_ms - 1000 * seconds : 0};
  result.samples = std::max(samples, 0.0);
  return result;
}

std::vector<std::uint32_t> plan_known(move_table& table, const training_state& now, std::uint32_t held,
                                      std::span<const fleet_change> future) {
  const auto n = static_cast<std::uint32_t>(table.shapes().size());
  const auto nodes = 2 * n + 1;
  auto node_of = [&](const training_state& x) {
    return x.at == move_table::idle ? 2 * n : x.at + (x.migrating ? n : 0);
  };
  layers ways(nodes, future.size() + 1);
  ways.samples[node_of(now)] = 0;
  ways.rest_ms[node_of(now)] = now.rest_ms;
  bool begun = now.begun; // IDLE is reached only where nothing fits, so all ways have begun or none
  for (std::size_t h = 0; h < future.size(); ++h) {
    const auto before = h * nodes, after = before + nodes;
    const auto available = held + future[h].joined - future[h].lost;
    const auto targets = table.fitting(available);
    for (std::uint32_t from = 0; from < nodes; ++from) {
      const double so_far = ways.samples[before + from];
      if (so_far < 0)
        continue;
      if (targets == 0) {
        ways.reach(after + 2 * n, so_far, 0, from);
      } else if (from < n) {
        // Running: the common case, in a form that compilers turn into vector code.
        const auto* gains = table.gains(from, targets, held, future[h].lost);
        auto* samples = &ways.samples[after];
        auto* origin = &ways.from[after];
        double least = 0;
        for (std::uint32_t target = 0; target < targets; ++target) {
          const double x = so_far + gains[target];
          least = std::min(least, gains[target]);
          const bool better = gains[target] >= 0 && x > samples[target];
          samples[target] = better ? x : samples[target];
          origin[target] = better ? from : origin[target];
        }
        for (std::uint32_t target = 0; least < 0 && target < targets; ++target)
          if (gains[target] < 0)
            ways.reach(after + n + target, so_far, -1000 * gains[target] / table.rate(target), from);
      } else {
        const training_state state{from == 2 * n ? move_table::idle : from - n, begun, from != 2 * n,
                                   ways.rest_ms[before + from]};
        for (std::uint32_t target = 0; target < targets; ++target) {
          const auto x = carry_out(table, state, target, held, future[h].lost, table.seconds());
          ways.reach(after + node_of(x.next), so_far + x.samples, x.next.rest_ms, from);
        }
      }
    }
    begun = begun || targets > 0;
    held = available;
  }
  const auto last = future.size() * nodes;
  std::uint32_t node = 0;
  for (std::uint32_t x = 1; x < nodes; ++x)
    if (std::pair(ways.samples[last + x], -ways.rest_ms[last + x]) >
        std::pair(ways.samples[last + node], -ways.rest_ms[last + node]))
      node = x;
  std::vector<std::uint32_t> moves(future.size());
  for (auto h = future.size(); h-- > 0;) {
    moves[h] = node == 2 * n ? move_table::idle : node % n;
    node = ways.from[(h + 1) * nodes + node];
  }
  return moves;
}

} // namespace parcae
