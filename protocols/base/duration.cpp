#include "protocols/base/duration.hpp"

#include <algorithm>
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

struct size_unit {
  std::string_view name;
  std::uint64_t bytes;
};

constexpr size_unit size_units[] = {{"TiB", std::uint64_t{1} << 40},
                                    {"GiB", std::uint64_t{1} << 30},
                                    {"MiB", std::uint64_t{1} << 20},
                                    {"KiB", std::uint64_t{1} << 10},
                                    {"B", 1}};

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

std::optional<std::uint64_t> parse_size(std::string_view text) {
  std::uint64_t count = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc{})
    return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  for (const auto& unit : size_units)
    if (text == unit.name && count <= UINT64_MAX / unit.bytes)
      return count * unit.bytes;
  return std::nullopt;
}

std::string text_of_size(std::uint64_t bytes) {
  for (const auto& unit : size_units)
    if (bytes > 0 && bytes % unit.bytes == 0)
      return std::to_string(bytes / unit.bytes) + std::string(unit.name);
  return "0B";
}

std::string text_of_age(std::int64_t us) {
  const auto s = std::max<std::int64_t>(0, us / 1'000'000);
  if (s < 60)
    return std::to_string(s) + "s";
  constexpr struct {
    std::int64_t seconds;
    char name;
    std::int64_t below; ///< seconds of the unit that follows
    char name_below;
  } steps[] = {{86'400, 'd', 3600, 'h'}, {3600, 'h', 60, 'm'}, {60, 'm', 1, 's'}};
  for (const auto& x : steps)
    if (s >= x.seconds) {
      const auto rest = std::to_string(s % x.seconds / x.below);
      return std::to_string(s / x.seconds) + x.name + (rest.size() < 2 ? "0" : "") + rest + x.name_below;
    }
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
