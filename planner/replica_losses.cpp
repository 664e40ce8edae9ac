#include "planner/replica_losses.hpp"

#include <algorithm>
#include <numeric>

namespace parcae {

std::vector<double> hypergeometric(std::uint32_t all, std::uint32_t marked, std::uint32_t drawn) {
  const auto most = std::min(marked, drawn);
  const auto least = drawn > all - marked ? drawn - (all - marked) : 0;
  std::vector<double> p(most + 1, 0);
  // Ratios of neighbours from the mode outwards, then normalised: no overflow for any size.
  const auto mode = std::clamp(
      static_cast<std::uint32_t>((static_cast<std::uint64_t>(drawn) + 1) * (marked + 1) / (all + 2)), least, most);
  p[mode] = 1;
  for (auto k = mode; k < most; ++k)
    p[k + 1] = p[k] * (marked - k) * (drawn - k) / ((k + 1.0) * (all - marked - drawn + k + 1.0));
  for (auto k = mode; k > least; --k)
    p[k - 1] = p[k] * k * (static_cast<double>(all) - marked - drawn + k) / ((marked - k + 1.0) * (drawn - k + 1.0));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (auto& x : p)
    x /= sum;
  return p;
}

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
