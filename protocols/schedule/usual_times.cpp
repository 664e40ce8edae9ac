#include "protocols/schedule/usual_times.hpp"

#include <algorithm>

namespace parcae {

namespace {

constexpr double weight_of_newest = 0.1;

} // namespace

void usual_times::took(std::uint32_t size, double ms) {
  const auto [x, is_new] = usual_.emplace(size, ms);
  if (!is_new)
    x->second += (ms - x->second) * weight_of_newest;
}

std::optional<double> usual_times::of(std::uint32_t size) const {
  if (usual_.empty())
    return std::nullopt;
  const auto above = usual_.lower_bound(size);
  if (above == usual_.end())
    return usual_.rbegin()->second * size / usual_.rbegin()->first;
  if (above->first == size || above == usual_.begin())
    return above->second;
  const auto below = std::prev(above);
  const double share = static_cast<double>(size - below->first) / (above->first - below->first);
  return below->second + share * (above->second - below->second);
}

std::uint32_t size_beside(std::span<const std::uint32_t> sizes, const usual_times& times, std::uint32_t decoding,
                          std::uint32_t beside) {
  const auto size_of = [&](std::uint32_t rows) {
    return *std::ranges::lower_bound(sizes, std::min(rows, sizes.back()));
  };
  const auto least = size_of(decoding), most = size_of(decoding + beside);
  const auto alone = times.of(least), full = times.of(most);
  double share = 1.0 / 3;
  if (alone && full)
    share = *full <= 1.5 * *alone ? 1 : std::max(share, 0.5 * *alone / (*full - *alone));
  const auto limit = least + share * (most - least);
  auto result = size_of(decoding + 1);
  for (const auto size : sizes)
    if (size > result && size <= limit)
      result = size;
  return result;
}

} // namespace parcae
