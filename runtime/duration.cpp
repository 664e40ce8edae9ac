#include "runtime/duration.hpp"

#include <charconv>
#include <cstdint>
#include <utility>

namespace parcae {

namespace {

struct unit {
  std::string_view name;
  std::int64_t ms;
};

constexpr unit units[] = {{"h", 3'600'000}, {"m", 60'000}, {"s", 1000}, {"ms", 1}};

} // namespace

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  std::int64_t count = 0;
  auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc{} || count < 0)
    return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  for (const auto& unit : units)
    if (text == unit.name && count <= INT64_MAX / unit.ms)
      return std::chrono::milliseconds(count * unit.ms);
  return std::nullopt;
}

std::string to_string(std::chrono::milliseconds x) {
  if (x.count() == 0)
    return "0s";
  for (const auto& unit : units)
    if (x.count() % unit.ms == 0)
      return std::to_string(x.count() / unit.ms) + std::string(unit.name);
  return {};
}

std::optional<double> parse_link_rate(std::string_view text) {
  double count = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), count, std::chars_format::fixed);
  if (error != std::errc{} || !(count > 0))
    return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  constexpr std::pair<std::string_view, double> rates[] = {{"kb/s", 1e3 / 8}, {"Mb/s", 1e6 / 8}, {"Gb/s", 1e9 / 8},
                                                           {"kB/s", 1e3},     {"MB/s", 1e6},     {"GB/s", 1e9}};
  for (const auto& [unit, bytes_per_s] : rates)
    if (text == unit && count * bytes_per_s < 1e18)
      return count * bytes_per_s / 1000;
  return std::nullopt;
}

} // namespace parcae
