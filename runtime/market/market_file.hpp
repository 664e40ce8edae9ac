#pragma once

// Market files: what can be rented, where, for how much (TOML); feeds of prices. Written by the user who starts the
// manager, and checked key by key nevertheless.

#include "protocols/values/market.hpp"

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

/// A market file, or a file that it names, that cannot be used. what() is one line: file, line, what is wrong, and what
/// would be right.
class market_file_error : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

struct market_description {
  double fixed_usd_per_h = 0;       ///< manager and keepers
  std::string feed, catalog;        ///< files; feed may be an URL; either may be empty
  std::vector<instance_pool> pools; ///< at least one
  std::vector<egress_price> paths;
};

/// Throws market_file_error. `name` stands for the file in errors.
market_description parse_market(std::string_view text, std::string_view name);

/// The same of a file. Prices that it leaves out are those of the feed, if that is a file, else of the catalog; those
/// that none has are left out. Paths of files are relative to it, and are put behind its folder in what is returned.
market_description read_market(const std::filesystem::path& path);

/// Lines "pool,price[,available]"; the last line of a pool counts. Throws market_file_error.
std::vector<pool_quote> parse_feed(std::string_view text, std::string_view name);

/// One such line, for those who go on behind a bad one: nothing if it says nothing. Throws parse_error.
std::vector<pool_quote> parse_feed_line(std::string_view line);

/// Whether a feed or a hook is at an http(s) URL; else it is a file.
bool is_web_url(std::string_view x);

} // namespace parcae
