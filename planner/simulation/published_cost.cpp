#include "planner/simulation/published_cost.hpp"

#include <algorithm>

namespace parcae {

std::vector<std::uint32_t> published_partition(std::uint32_t layers, std::uint32_t depth) {
  const auto base = (layers - 1) / depth, rest = (layers - 1) % depth;
  std::vector<std::uint32_t> count(depth, base);
  count[0] = base + 1;
  for (std::uint32_t i = 0; i < rest; ++i)
    ++count[depth - 2 - i];
  std::vector<std::uint32_t> first{0};
  for (auto x : count)
    first.push_back(first.back() + x);
  return first;
}

const published_cost::cut& published_cost::cut_of(std::uint32_t depth) {
  auto& result = cuts_[depth];
  if (!result.first_layer.empty())
    return result;
  result.first_layer = published_partition(static_cast<std::uint32_t>(workload_.layers.size()), depth);
  for (std::uint32_t stage = 0; stage < depth; ++stage) {
    double parameters = 0;
    for (auto i = result.first_layer[stage]; i < result.first_layer[stage + 1]; ++i)
      parameters += workload_.layers[i].parameters;
    result.parameters.push_back(parameters);
    result.transfer_ms.push_back(network_.transfer_ms(parameters * workload_.state_bytes_per_parameter()));
    result.largest_ms = std::max(result.largest_ms, result.transfer_ms.back());
    result.all_ms += result.transfer_ms.back();
    for (const auto& x : network_.points)
      if (x.bytes <= parameters * workload_.state_bytes_per_parameter())
        result.max_ms = std::max(result.max_ms, x.ms);
  }
  result.max_ms = std::max({result.max_ms, result.largest_ms, network_.points.front().ms});
  return result;
}

cost_bounds published_cost::move_bounds(const shape& from, const shape& to, std::uint32_t lost) {
  if (from == to && lost == 0)
    return {0, 0};
  const auto& cut = cut_of(to.depth);
  const double restart = restart_ms(to, kind_of(from, to, lost * devices_));
  if (from.depth != to.depth) {
    const double least = restart + (to.width > 1 ? cut.largest_ms : 0);
    return {least, least + cut.max_ms};
  }
  if (to.width > from.width) // every stage lacks replicas
    return {restart + cut.largest_ms, restart + cut.all_ms};
  const double intra = rebuild_ms(to, change::remove) + workload_.process_ms;
  return {std::min(intra, restart), std::max(intra, restart + cut.all_ms)};
}

double published_cost::rebuild_ms(const shape& to, change kind) const {
  const auto& x = workload_.rebuild;
  const double unit = kind == change::add ? x.add_ms : x.remove_ms;
  const double d = to.width, p = to.depth;
  switch (x.kind) {
  case rebuild_costs::law::per_group:
    return x.setup_ms + (d + p + 1 + d * p) * unit;
  case rebuild_costs::law::per_rank:
    return x.setup_ms + d * p * unit;
  case rebuild_costs::law::steps:
    break;
  }
  auto step = std::find_if(x.steps.begin(), x.steps.end(), [&](const auto& s) { return to.width >= s.min_width; });
  if (step == x.steps.end())
    --step;
  return x.setup_ms + step->remove_ms * (kind == change::add ? x.add_factor : 1);
}

double published_cost::restart_ms(const shape& to, change kind) const {
  const double meeting = kind == change::add ? workload_.rendezvous_ms + workload_.extra_restart_ms : 0;
  return meeting + rebuild_ms(to, kind) + workload_.process_ms + workload_.model_build_ms.at(to.depth);
}

double published_cost::start_ms(const shape& to, bool beginning) {
  return restart_ms(to, change::add) + (to.width > 1 ? cut_of(to.depth).largest_ms : 0) +
         (beginning ? 0 : workload_.checkpoint_ms);
}

double published_cost::redirect_ms(const shape& to) {
  return restart_ms(to, change::none);
}

double published_cost::reload_ms(const shape& to, change kind, bool checkpoint) {
  return restart_ms(to, kind) + (checkpoint ? workload_.checkpoint_ms : 0) + cut_of(to.depth).all_ms;
}

} // namespace parcae
