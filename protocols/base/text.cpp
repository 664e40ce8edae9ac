#include "protocols/base/text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace parcae {

namespace {

/// With at most that many digits behind the point, and no zeros at the end of them.
std::string trimmed(double x, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, x);
  std::string result = text;
  if (result.find('.') != result.npos) {
    result.erase(result.find_last_not_of('0') + 1);
    if (result.back() == '.')
      result.pop_back();
  }
  return result == "-0" ? "0" : result;
}

} // namespace

std::optional<host_and_port> parse_host_and_port(std::string_view text) {
  const bool bracketed = text.starts_with('[');
  const auto end = bracketed ? text.find(']') : std::min(text.find(':'), text.size());
  if (end == text.npos)
    return std::nullopt;
  host_and_port result{std::string(bracketed ? text.substr(1, end - 1) : text.substr(0, end)), {}};
  auto rest = text.substr(end + (bracketed ? 1 : 0));
  if (result.host.empty() || (!rest.empty() && rest.front() != ':'))
    return std::nullopt;
  if (rest.empty())
    return result;
  rest.remove_prefix(1);
  const auto [last, bad] = std::from_chars(rest.data(), rest.data() + rest.size(), result.port.emplace());
  return bad == std::errc{} && last == rest.data() + rest.size() ? std::optional(std::move(result)) : std::nullopt;
}

std::string text_of_duration(std::chrono::milliseconds x) {
  const auto ms = x.count();
  if (ms < 0)
    return "-" + text_of_duration(-x);
  if (ms == 0)
    return "0s";
  if (ms < 1000)
    return std::to_string(ms) + "ms";
  if (ms < 60'000)
    return trimmed(static_cast<double>(ms / 100) / 10, 1) + "s";
  constexpr struct {
    std::int64_t seconds;
    const char* name;
    std::int64_t below; ///< seconds of the unit that follows
    const char* name_below;
  } units[] = {{86'400, "d", 3600, "h"}, {3600, "h", 60, "m"}, {60, "m", 1, "s"}};
  const auto s = ms / 1000;
  for (const auto& unit : units) {
    if (s < unit.seconds)
      continue;
    const auto rest = s % unit.seconds / unit.below;
    auto result = std::to_string(s / unit.seconds) + unit.name;
    if (rest > 0)
      result += (rest < 10 ? "0" : "") + std::to_string(rest) + unit.name_below;
    return result;
  }
  return {};
}

std::string text_of_ms(double x) {
  return text_of_duration(std::chrono::milliseconds(std::llround(x)));
}

std::string text_of_quantity(double x) {
  if (!std::isfinite(x))
    return std::isnan(x) ? "not a number" : x > 0 ? "infinite" : "-infinite";
  const auto size = std::abs(x);
  if (size < 9999.5)
    return trimmed(x, size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
  constexpr const char* units[] = {" k", " M", " G", " T", " P", " E"};
  auto scaled = x / 1000;
  std::size_t unit = 0;
  while (std::abs(scaled) >= 999.5 && unit + 1 < std::size(units)) {
    scaled /= 1000;
    ++unit;
  }
  return trimmed(scaled, std::abs(scaled) < 9.95 ? 1 : 0) + units[unit];
}

} // namespace parcae
