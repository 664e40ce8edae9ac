#pragma once

// When requests come, and how long they are: from files, or drawn. Pure: the same seed gives the same bits everywhere.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace parcae::serving {

struct request_lengths {
  std::uint32_t prompt = 512; ///< positions, at least 1
  std::uint32_t tokens = 128; ///< new ones, at least 1

  friend bool operator==(const request_lengths&, const request_lengths&) = default;
};

struct arrival {
  double ms = 0; ///< from the beginning
  request_lengths lengths;
};

/// In order of time.
using arrival_list = std::vector<arrival>;

/// Lines "seconds[,prompt[,tokens]]", or SpotServe's "number,seconds,prompt,offset", told apart by the first one; what
/// a line does not say is `usual`. Throws parse_error with the line, also if times go back or there are none.
arrival_list parse_arrivals(std::string_view text, const request_lengths& usual);

/// Gaps between arrivals: gamma-distributed, which is exponential with cv 1.
struct arrival_law {
  double per_s = 0; ///< above 0
  double cv = 1;    ///< coefficient of variation: standard deviation over mean; above 0
};

/// "poisson:RATE", "gamma:RATE,CV"; none: it is neither, but may be a file. Throws parse_error if numbers are wrong.
std::optional<arrival_law> parse_arrival_law(std::string_view text);

/// Until `end_ms`.
arrival_list draw_arrivals(const arrival_law& law, const request_lengths& lengths, double end_ms, std::uint64_t seed);

/// That many, with lengths drawn from `lengths` (not empty).
arrival_list draw_arrivals(const arrival_law& law, const std::vector<request_lengths>& lengths, std::size_t count,
                           std::uint64_t seed);

} // namespace parcae::serving
