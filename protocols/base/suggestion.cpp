#include "protocols/base/suggestion.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace parcae {

namespace {

/// Number of single-character changes between two words (Levenshtein).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j)
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])}));
  }
  return row.back();
}

} // namespace

std::string listed(const std::vector<std::string_view>& words) {
  std::string result;
  for (auto word : words)
    result += (result.empty() ? "" : ", ") + std::string(word);
  return result;
}

std::string suggestion(std::string_view word, const std::vector<std::string_view>& known) {
  if (word.size() > 40 || known.empty())
    return {};
  const auto nearest = std::ranges::min_element(known, {}, [&](auto x) { return distance(word, x); });
  if (distance(word, *nearest) > std::max<std::size_t>(2, nearest->size() / 3))
    return {};
  return "did you mean \"" + std::string(*nearest) + "\"?";
}

std::string advice(std::string_view word, const std::vector<std::string_view>& known) {
  auto result = suggestion(word, known);
  return result.empty() ? "known are " + listed(known) : result;
}

} // namespace parcae
