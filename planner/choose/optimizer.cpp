#include "planner/choose/optimizer.hpp"

#include <algorithm>

namespace parcae {

namespace {

constexpr double never = -1e300;

// Best ways found to the nodes of all layers: c running c, n + c migrating to c, 2·n IDLE, 2·n + 1 IDLE before the
// first configuration.
struct layers {
  std::vector<double> samples; // `never`: not reached
  std::vector<double> rest_ms;
  std::vector<std::uint32_t> from; // node of the layer before

  layers(std::size_t nodes, std::size_t count) :
      samples(nodes * count, never), rest_ms(nodes * count, 0), from(nodes * count, 0) {}

  void reach(std::size_t node, double x, double rest, std::uint32_t origin) {
    // Of equal ways the one with the least rest, then from the lowest node, in whatever order they are tried.
    if (x < samples[node] || (x == samples[node] && std::pair(rest, origin) >= std::pair(rest_ms[node], from[node])))
      return;
    samples[node] = x;
    rest_ms[node] = rest;
    from[node] = origin;
  }
};

// Which configuration runs or is migrated to in each interval, on the best way to the last layer.
std::vector<std::uint32_t> best_way(const layers& ways, std::uint32_t n, std::size_t intervals) {
  const auto nodes = 2 * n + 2;
  const auto last = intervals * nodes;
  std::uint32_t node = 0;
  for (std::uint32_t x = 1; x < nodes; ++x)
    if (std::pair(ways.samples[last + x], -ways.rest_ms[last + x]) >
        std::pair(ways.samples[last + node], -ways.rest_ms[last + node]))
      node = x;
  std::vector<std::uint32_t> moves(intervals);
  for (auto h = intervals; h-- > 0;) {
    moves[h] = node >= 2 * n ? move_table::idle : node % n;
    node = ways.from[(h + 1) * nodes + node];
  }
  return moves;
}

} // namespace

double unfinished_ms(move_table& table, const interval_state& now, std::uint32_t target, double move_ms) {
  if (!now.migrating)
    return 0;
  const auto& to = table.shapes()[target];
  if (!table.costs().real_time())
    return now.rest_ms + (now.at != target ? table.costs().redirect_ms(to) : 0);
  return move_ms > 0 ? std::min(now.rest_ms, std::max(0.0, table.costs().start_ms(to, false) - move_ms)) : now.rest_ms;
}

interval_outcome carry_out(move_table& table, const interval_state& now, std::uint32_t target, std::uint32_t held,
                           std::uint32_t lost, double seconds) {
  if (target == move_table::idle)
    return {{move_table::idle, now.begun, false, 0}, 0, 0, false};
  const double move_ms = now.at == move_table::idle ? table.costs().start_ms(table.shapes()[target], !now.begun)
                                                    : table.move_ms(now.at, target, held, lost);
  const double carried_ms = unfinished_ms(table, now, target, move_ms);
  interval_outcome result;
  result.anew = carried_ms < now.rest_ms;
  result.cost_ms = move_ms + carried_ms - (result.anew ? 0 : now.rest_ms);
  const double busy_ms = move_ms + carried_ms;
  const double samples = table.rate(target) * (seconds - busy_ms / 1000);
  result.samples = std::max(0.0, samples);
  result.next = {target, true, samples < 0, samples < 0 ? busy_ms - 1000 * seconds : 0};
  return result;
}

std::vector<std::uint32_t> plan_known(move_table& table, const interval_state& now, std::uint32_t held,
                                      std::span<const fleet_change> future) {
  const auto n = static_cast<std::uint32_t>(table.shapes().size());
  const auto nodes = 2 * n + 2;
  auto node_of = [&](const interval_state& x) {
    return x.at == move_table::idle ? 2 * n + (x.begun ? 0 : 1) : x.at + (x.migrating ? n : 0);
  };
  layers ways(nodes, future.size() + 1);
  ways.samples[node_of(now)] = 0;
  ways.rest_ms[node_of(now)] = now.rest_ms;
  const bool real_time = table.costs().real_time();
  const double least_gain = real_time ? never : 0; // less is carried over
  std::vector<std::uint32_t> order;
  for (std::size_t h = 0; h < future.size(); ++h) {
    const auto before = h * nodes, after = before + nodes;
    const auto available = held + future[h].joined - future[h].lost;
    const auto targets = table.fitting(available);
    // The best ways so far come first, and staying before all else, so that most moves need not be worked out.
    order.clear();
    for (std::uint32_t from = 0; from < nodes; ++from)
      if (ways.samples[before + from] != never)
        order.push_back(from);
    std::sort(order.begin(), order.end(), [&](auto a, auto b) {
      return std::pair(-ways.samples[before + a], a) < std::pair(-ways.samples[before + b], b);
    });
    auto run = [&](std::uint32_t from, std::uint32_t target, double gain) {
      const double so_far = ways.samples[before + from];
      if (gain >= least_gain)
        ways.reach(after + target, so_far + gain, 0, from);
      else
        ways.reach(after + n + target, so_far, -1000 * gain / table.rate(target), from);
    };
    for (auto from : order)
      if (from < targets)
        run(from, from, table.gain(from, from, held, future[h].lost));
    for (auto from : order) {
      const double so_far = ways.samples[before + from];
      if (targets == 0 || real_time)
        ways.reach(after + (from == 2 * n + 1 ? from : 2 * n), so_far, 0, from);
      if (from < n) {
        table.each_gain_from(
            from, targets, held, future[h].lost,
            [&](auto target, double bound) { return so_far + bound >= ways.samples[after + target]; },
            [&](auto target, double gain) { run(from, target, gain); });
      } else {
        const bool idle = from >= 2 * n;
        const interval_state state{idle ? move_table::idle : from - n, from != 2 * n + 1, !idle,
                                   ways.rest_ms[before + from]};
        for (std::uint32_t target = 0; target < targets; ++target) {
          const auto x = carry_out(table, state, target, held, future[h].lost, table.seconds());
          if (real_time)
            ways.reach(after + target, so_far + x.samples - table.rate(target) * x.next.rest_ms / 1000, 0, from);
          else
            ways.reach(after + node_of(x.next), so_far + x.samples, x.next.rest_ms, from);
        }
      }
    }
    held = available;
  }
  return best_way(ways, n, future.size());
}

} // namespace parcae
