#pragma once

// Reads a feed of prices again and again, on a thread of its own, until it is destroyed.

#include "protocols/http/http.hpp"
#include "runtime/market/feed_book.hpp"

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace parcae {

struct feed_options {
  std::string source;                      ///< path or http(s) URL, as read_market has it
  std::vector<instance_pool> pools;        ///< whose prices are wanted; theirs are good until the feed says others
  std::chrono::milliseconds every{60'000}; ///< from one reading to the next
  std::filesystem::path authorities{};     ///< PEM file; empty: the system's. Of https.
  http_limits limits{std::chrono::milliseconds(10'000), std::chrono::milliseconds(10'000),
                     std::chrono::milliseconds(30'000), 1 << 20}; ///< of one reading; the bytes are a file's, too
  feed_rules rules{};
};

class price_feed {
public:
  /// Returns at once; the first reading follows. `on_quotes` is called after each, on this object's thread, must be
  /// quick and must not throw; level-triggered: each report has all that is known. Throws std::runtime_error: the
  /// source is no URL, `authorities` cannot be read. A source that is away is no error but a report.
  price_feed(feed_options options, std::function<void(const feed_report&)> on_quotes);

  /// Ends within milliseconds, also in the midst of a reading (but while a server's name is looked up).
  ~price_feed();

private:
  class implementation;
  std::unique_ptr<implementation> implementation_;
};

} // namespace parcae
