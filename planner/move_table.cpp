#include "planner/cost_model.hpp"

#include <algorithm>

namespace parcae {

move_table::move_table(const profile& workload, cost_model& costs, std::uint32_t instances) : costs_(costs) {
  const auto slots = instances * costs.devices();
  for (std::uint32_t width = 1; width * workload.min_depth <= slots; ++width)
    for (auto depth = workload.min_depth; depth <= workload.max_depth && width * depth <= slots; ++depth)
      if (const shape x{width, depth}; workload.allowed(x) && workload.model_build_ms.contains(depth)) {
        shapes_.push_back(x);
        rate_.push_back(workload.throughput(x));
        if (rate_.back() > 0)
          by_slots_.push_back(static_cast<std::uint32_t>(shapes_.size() - 1));
      }
  std::stable_sort(by_slots_.begin(), by_slots_.end(),
                   [&](auto a, auto b) { return shapes_[a].slots() < shapes_[b].slots(); });
}

const std::vector<std::uint32_t>& move_table::fitting(std::uint32_t instances) {
  if (fitting_.size() <= instances)
    fitting_.resize(instances + 1);
  auto& result = fitting_[instances];
  if (result.empty())
    for (auto x : by_slots_)
      if (shapes_[x].slots() <= instances * costs_.devices())
        result.push_back(x);
  return result;
}

std::uint32_t move_table::index_of(const shape& x) const {
  const auto found = std::lower_bound(shapes_.begin(), shapes_.end(), x);
  return found != shapes_.end() && *found == x ? static_cast<std::uint32_t>(found - shapes_.begin()) : idle;
}

double* move_table::row(std::uint32_t from, std::uint32_t held, std::uint32_t lost) {
  auto& cells = cells_[static_cast<std::uint64_t>(held) << 32 | lost];
  if (cells.empty())
    cells.resize(shapes_.size() * shapes_.size(), std::numeric_limits<double>::quiet_NaN());
  return cells.data() + static_cast<std::size_t>(from) * shapes_.size();
}

} // namespace parcae
