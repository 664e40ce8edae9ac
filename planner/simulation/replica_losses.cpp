#include "planner/simulation/replica_losses.hpp"

#include "planner/cost/hypergeometric.hpp"

#include <algorithm>
#include <numeric>

namespace parcae {

double replica_losses::none_lacks(std::uint32_t stages, std::uint32_t depth, std::uint32_t lost) {
  if (lost <= spare_)
    return 1;
  if (lost > stages * spare_ + (depth - stages) * width_)
    return 0;
  const auto here = hypergeometric(depth * width_, stages * width_, lost);
  const auto most = std::min(static_cast<std::uint32_t>(here.size() - 1), stages * spare_);
  const auto& p = by_losses(stages, most);
  return std::inner_product(here.begin(), here.begin() + most + 1, p.begin(), 0.0);
}

const std::vector<double>& replica_losses::by_losses(std::uint32_t stages, std::uint32_t lost) {
  for (auto n = static_cast<std::uint32_t>(known_.size()); n <= stages; ++n)
    known_.emplace_back();
  for (std::uint32_t n = 0; n <= stages; ++n) {
    auto& p = known_[n];
    for (auto a = static_cast<std::uint32_t>(p.size()); a <= std::min(lost, n * spare_); ++a) {
      if (a <= spare_) {
        p.push_back(1);
        continue;
      }
      const auto in_last = hypergeometric(n * width_, width_, a);
      const auto& before = known_[n - 1];
      double sum = 0;
      for (std::uint32_t k = 0; k <= spare_; ++k)
        if (a - k < before.size())
          sum += in_last[k] * before[a - k];
      p.push_back(sum);
    }
  }
  return known_[stages];
}

} // namespace parcae
