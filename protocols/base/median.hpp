#pragma once

// The value in the middle.

#include <algorithm>
#include <cstddef>
#include <vector>

namespace parcae {

/// Of an even number the upper of the two. Not empty.
inline double median(std::vector<double> x) {
  const auto middle = x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2);
  std::nth_element(x.begin(), middle, x.end());
  return *middle;
}

} // namespace parcae
