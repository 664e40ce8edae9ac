#include "protocols/openai/stop_texts.hpp"

#include <algorithm>
#include <utility>

namespace parcae {

std::string stop_texts::add(std::string_view text) {
  if (found_)
    return {};
  held_ += text;
  std::pair first{std::string::npos, std::string::npos}; // where a stop ends, where it begins
  for (const auto& stop : stops_)
    if (const auto at = held_.find(stop); at != held_.npos)
      first = std::min(first, std::pair(at + stop.size(), at));
  found_ = first.first != held_.npos;
  const auto size = found_ ? first.second : held_.size() - held_back();
  auto result = held_.substr(0, size);
  held_.erase(0, found_ ? held_.size() : size);
  return result;
}

std::string stop_texts::end() {
  return std::exchange(held_, {});
}

/// Bytes at the end that a stop begins with.
std::size_t stop_texts::held_back() const {
  std::size_t result = 0;
  for (const std::string_view stop : stops_)
    for (auto size = std::min(stop.size() - 1, held_.size()); size > result; --size)
      if (held_.ends_with(stop.substr(0, size)))
        result = size;
  return result;
}

} // namespace parcae
