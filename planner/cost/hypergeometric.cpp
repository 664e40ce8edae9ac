#include "planner/cost/hypergeometric.hpp"

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

} // namespace parcae
