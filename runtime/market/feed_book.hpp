#pragma once

// What is believed of a feed of prices. Pure: no file, no network, no clock.

#include "protocols/values/market.hpp"

#include <tl/expected.hpp>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

/// A feed's lines as they are, one bad line does not spoil the others.
struct feed_lines {
  std::vector<pool_quote> quotes; ///< of pools asked for, the last line of each; prices within (0, 10^5)
  std::size_t refused = 0;        ///< lines
  std::string first_problem;      ///< "line 3: price is …"; empty: none was refused
};

/// Lines "pool,price[,available]" of text from elsewhere, of at most a million bytes; `pools`: names, the others are
/// passed over.
feed_lines lines_of_feed(std::string_view text, const std::vector<instance_pool>& pools);

/// What a reading of the feed leaves to be told: all of it each time, so one that is missed does no harm.
struct feed_report {
  std::vector<pool_quote> quotes; ///< last good price of each pool that has one, in the pools' order
  std::string problem;            ///< one line that says what is wrong with the feed now; empty: nothing
};

/// How far a price may rise between two readings, and how long a feed may be silent.
struct feed_rules {
  double max_rise = 10;                  ///< times the last good price; what is more is refused
  std::chrono::seconds silence{15 * 60}; ///< without a good line: said, and availability counts as not known
};

/// Keeps the last good quotes. Not thread-safe.
class feed_book {
public:
  using time_point = std::chrono::steady_clock::time_point;

  /// `source` is for messages. Prices of the market file are good until the feed says others.
  feed_book(std::vector<instance_pool> pools, std::string source, time_point now, feed_rules rules = {});

  /// A reading: the feed's text, or one line that says why there is none.
  feed_report hear(const tl::expected<std::string, std::string>& reading, time_point now);

private:
  /// A price is refused if it is more than ten times the last one, unless it is at most twice what the market file
  /// says: one false low price must not keep the true one out.
  bool is_jump(const instance_pool& pool, double usd_per_h) const;
  std::string take(const feed_lines& lines, time_point now);

  const std::vector<instance_pool> pools_;
  const std::string source_;
  const feed_rules rules_;
  std::map<std::string, pool_quote> good_; ///< by pool
  time_point heard_;                       ///< the last good line, or the beginning
};

} // namespace parcae
