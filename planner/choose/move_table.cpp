#include "planner/cost/cost_model.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace parcae {

move_table::move_table(const profile& workload, cost_model& costs, std::uint32_t instances, double seconds) :
    costs_(costs), instances_(instances), seconds_(seconds) {
  const auto slots = instances * costs.devices();
  for (std::uint32_t width = 1; width * workload.min_depth <= slots; ++width)
    for (auto depth = workload.min_depth; depth <= workload.max_depth && width * depth <= slots; ++depth)
      if (const shape x{width, depth}; workload.allowed(x) && workload.model_build_ms.contains(depth))
        shapes_.push_back(x);
  std::stable_sort(shapes_.begin(), shapes_.end(), [&](const shape& a, const shape& b) {
    const bool target_a = workload.throughput(a) > 0, target_b = workload.throughput(b) > 0;
    return target_a != target_b ? target_a : a.slots() < b.slots();
  });
  for (const auto& x : shapes_) {
    index_[x] = static_cast<std::uint32_t>(rate_.size());
    rate_.push_back(workload.throughput(x));
    targets_ += rate_.back() > 0 ? 1 : 0;
  }
}

std::uint32_t move_table::fitting(std::uint32_t instances) const {
  const auto slots = instances * costs_.devices();
  return static_cast<std::uint32_t>(std::partition_point(shapes_.begin(), shapes_.begin() + targets_,
                                                         [&](const shape& x) { return x.slots() <= slots; }) -
                                    shapes_.begin());
}

std::uint32_t move_table::index_of(const shape& x) const {
  const auto found = index_.find(x);
  return found == index_.end() ? idle : found->second;
}

std::uint32_t move_table::clipped(std::uint32_t target, std::uint32_t instances) const {
  if (target == idle)
    return idle;
  const auto slots = instances * costs_.devices();
  const auto& x = shapes_[target];
  if (x.slots() <= slots)
    return target;
  const auto width = slots / x.depth;
  return index_of(width > 0 ? shape{width, x.depth} : shape{1, slots});
}

double move_table::gain_of(std::uint32_t from, std::uint32_t to, std::uint32_t held, std::uint32_t lost) const {
  return rate_[to] * (seconds_ - move_ms(from, to, held, lost) / 1000);
}

move_table::gain_cells& move_table::cells_of(std::uint32_t held, std::uint32_t lost) {
  auto& result = cells_[static_cast<std::uint64_t>(held) << 32 | lost];
  if (result.matrix.empty() && shapes_.size() <= dense)
    result.matrix.resize(shapes_.size() * shapes_.size(), std::numeric_limits<double>::quiet_NaN());
  return result;
}

const std::vector<std::uint32_t>& move_table::fastest(std::uint32_t instances, std::uint32_t count) {
  if (fastest_.size() <= instances)
    fastest_.resize(instances + 1);
  auto& result = fastest_[instances];
  const auto wanted = std::min(count, fitting(instances));
  if (result.size() != wanted) {
    result.resize(fitting(instances));
    std::iota(result.begin(), result.end(), 0);
    std::partial_sort(result.begin(), result.begin() + wanted, result.end(),
                      [&](auto a, auto b) { return rate_[a] != rate_[b] ? rate_[a] > rate_[b] : a < b; });
    result.resize(wanted);
  }
  return result;
}

const double* move_table::max_gains(std::uint32_t from, std::uint32_t lost) {
  const auto n = shapes_.size();
  auto& matrix = max_gains_[lost];
  if (matrix.empty())
    for (std::size_t i = 0; i < n * targets_; ++i) {
      const auto to = i % targets_;
      const auto bounds = costs_.move_bounds(shapes_[i / targets_], shapes_[to], lost);
      const bool outlasts = bounds.max_ms >= 1000 * seconds_ && !costs_.real_time();
      // A little more: sums of costs are not exact to the last digit.
      matrix.push_back(outlasts ? std::numeric_limits<double>::infinity()
                                : rate_[to] * ((1 + 1e-9) * seconds_ - bounds.least_ms / 1000));
    }
  return matrix.data() + from * targets_;
}

} // namespace parcae
