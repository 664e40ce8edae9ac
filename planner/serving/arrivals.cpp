#include "planner/serving/arrivals.hpp"

#include "planner/cost/profile.hpp"
#include "planner/market/table.hpp"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <random>

namespace parcae::serving {

namespace {

constexpr double longest_s = 10.0 * 366 * 86'400;
constexpr std::uint32_t most_positions = 1 << 20;
constexpr double least_rate = 1e-6, most_rate = 1e6;
constexpr double least_cv = 1e-3, most_cv = 1e3;
constexpr std::size_t most_arrivals = 5'000'000;

// The standard library's distributions differ between libraries; its engine does not.
class gaps {
public:
  gaps(const arrival_law& law, std::uint64_t seed) :
      random_(seed), shape_(1 / (law.cv * law.cv)), scale_ms_(1000 / law.per_s / shape_), exponential_(law.cv == 1) {}

  double next_ms() { return scale_ms_ * (exponential_ ? -std::log(1 - uniform()) : gamma()); }

  std::size_t below(std::size_t n) { return static_cast<std::size_t>(uniform() * static_cast<double>(n)); }

private:
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  double normal() { return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(2 * std::numbers::pi * uniform()); }

  // Marsaglia and Tsang (2000); below a shape of 1 that of shape + 1, times u^(1 / shape).
  double gamma() {
    const double boost = shape_ < 1 ? std::pow(1 - uniform(), 1 / shape_) : 1;
    const double d = (shape_ < 1 ? shape_ + 1 : shape_) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = normal(), v = std::pow(1 + c * x, 3);
      if (v > 0 && std::log(1 - uniform()) < x * x / 2 + d - d * v + d * std::log(v))
        return boost * d * v;
    }
  }

  std::mt19937_64 random_;
  double shape_, scale_ms_;
  bool exponential_;
};

double number(std::string_view law, std::string_view text, const char* what, double least, double most) {
  double x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (error != std::errc() || end != text.data() + text.size() || !(x >= least && x <= most)) {
    char bounds[60];
    std::snprintf(bounds, sizeof bounds, "%g to %g", least, most);
    throw parse_error("\"" + std::string(law.substr(0, 40)) + "\": the " + what + " must be a number from " + bounds);
  }
  return x;
}

std::uint32_t length(const market::table::row& row, std::size_t column, std::uint32_t usual) {
  if (row.is_empty(column))
    return usual;
  const auto x = row.whole(column, most_positions);
  if (x == 0)
    row.fail("a request has at least one position of each kind");
  return static_cast<std::uint32_t>(x);
}

} // namespace

arrival_list parse_arrivals(std::string_view text, const request_lengths& usual) {
  const bool spotserve = market::table::header(text).size() > 3;
  const market::table table(text,
                            spotserve ? std::vector<std::string>{"number", "seconds", "prompt", "offset"}
                                      : std::vector<std::string>{"seconds", "prompt", "tokens"},
                            false);
  const std::size_t first = spotserve ? 1 : 0;
  arrival_list result;
  for (const auto& row : table.rows()) {
    const arrival x{row.number(first, 0, longest_s) * 1000,
                    {length(row, first + 1, usual.prompt), spotserve ? usual.tokens : length(row, 2, usual.tokens)}};
    if (!result.empty() && x.ms < result.back().ms)
      row.fail("goes back in time");
    result.push_back(x);
  }
  if (result.empty())
    throw parse_error("has no arrivals; a line is seconds[,prompt[,tokens]]");
  return result;
}

std::optional<arrival_law> parse_arrival_law(std::string_view text) {
  const auto colon = text.find(':');
  const auto kind = text.substr(0, colon);
  if (colon == std::string_view::npos || (kind != "poisson" && kind != "gamma"))
    return {};
  const auto numbers = text.substr(colon + 1);
  const auto comma = kind == "gamma" ? numbers.find(',') : std::string_view::npos;
  if (kind == "gamma" && comma == std::string_view::npos)
    throw parse_error("\"" + std::string(text.substr(0, 40)) + "\" must be gamma:RATE,CV");
  arrival_law result;
  result.per_s = number(text, numbers.substr(0, comma), "rate", least_rate, most_rate);
  if (comma != std::string_view::npos)
    result.cv = number(text, numbers.substr(comma + 1), "coefficient of variation", least_cv, most_cv);
  return result;
}

arrival_list draw_arrivals(const arrival_law& law, const request_lengths& lengths, double end_ms, std::uint64_t seed) {
  gaps gaps(law, seed);
  arrival_list result;
  for (double ms = gaps.next_ms(); ms < end_ms; ms += gaps.next_ms()) {
    if (result.size() == most_arrivals)
      throw parse_error("more than " + std::to_string(most_arrivals) + " requests; ask for fewer a second");
    result.push_back({ms, lengths});
  }
  return result;
}

arrival_list draw_arrivals(const arrival_law& law, const std::vector<request_lengths>& lengths, std::size_t count,
                           std::uint64_t seed) {
  gaps gaps(law, seed);
  arrival_list result;
  double ms = 0;
  while (result.size() < count) {
    ms += gaps.next_ms();
    result.push_back({ms, lengths[gaps.below(lengths.size())]});
  }
  return result;
}

} // namespace parcae::serving
