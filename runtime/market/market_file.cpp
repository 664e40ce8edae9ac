#include "runtime/market/market_file.hpp"

#include "planner/cost/profile.hpp"
#include "planner/market/market_data.hpp"
#include "planner/market/table.hpp"
#include "protocols/base/duration.hpp"
#include "protocols/base/input_file.hpp"
#include "protocols/base/printable.hpp"
#include "protocols/base/suggestion.hpp"
#include "protocols/base/toml.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <variant>

namespace parcae {

namespace {

constexpr std::size_t max_file_bytes = 1 << 20;
constexpr std::size_t max_pools = 1000;
constexpr std::uint64_t max_instances = 100'000;
constexpr std::chrono::hours max_start{24};

/// A key of a section, and where its value goes.
struct market_key {
  std::string_view name;
  std::variant<std::string*, bool*, double*, std::optional<double>*, std::uint32_t*, std::chrono::milliseconds*> target;
  bool is_needed = false;
};

class reader {
public:
  reader(std::string_view text, std::string_view name) : name_(name) {
    if (text.size() > max_file_bytes)
      fail("is larger than " + std::to_string(max_file_bytes) + " bytes");
    if (dots_in(text) > max_toml_dots)
      fail("has more than " + std::to_string(max_toml_dots) + " dots outside of comments");
    try {
      root_ = toml::parse(text, name);
    } catch (const toml::parse_error& error) {
      fail(printable(error.description(), 300), error.source());
    }
  }

  market_description read() {
    market_description result;
    take(root_, "the market file",
         {{"fixed_per_hour", &result.fixed_usd_per_h}, {"feed", &result.feed}, {"catalog", &result.catalog}},
         {"pool", "path"});
    each("pool", [&](const toml::table& x) { result.pools.push_back(pool(x)); });
    each("path", [&](const toml::table& x) { result.paths.push_back(path(x)); });
    if (result.pools.empty())
      fail("has no pool: [[pool]] with name, place, kind and most");
    check(result);
    return result;
  }

private:
  [[noreturn]] void fail(const std::string& problem, const toml::source_region& where = {}) const {
    const auto place = where.begin.line > 0 ? ":" + std::to_string(where.begin.line) : "";
    throw market_file_error(name_ + place + ": " + problem);
  }

  instance_pool pool(const toml::table& x) {
    instance_pool result;
    take(x, "a pool",
         {{"name", &result.name, true},
          {"place", &result.place, true},
          {"kind", &result.kind, true},
          {"spot", &result.spot},
          {"slots", &result.slots},
          {"price", &result.usd_per_h},
          {"most", &result.most, true},
          {"start", &result.start},
          {"history", &result.history}});
    const auto must = [&](const char* key, bool holds, const std::string& what) {
      if (!holds)
        fail(std::string(key) + " of the pool " + printable(result.name, 60) + " must be " + what,
             x.get(key) ? x.get(key)->source() : x.source());
    };
    for (const auto& [key, text] :
         {std::pair("name", &result.name), std::pair("place", &result.place), std::pair("kind", &result.kind)})
      must(key, !text->empty() && text->size() <= 100 && text->find_first_of(", \t\n\"") == std::string::npos,
           "1 to 100 characters without blanks, commas and quotes");
    must("slots", result.slots >= 1 && result.slots <= 64, "from 1 to 64");
    must("most", result.most >= 1 && result.most <= max_instances, "from 1 to " + std::to_string(max_instances));
    must("price", !result.usd_per_h || (*result.usd_per_h > 0 && *result.usd_per_h < market::max_usd_per_h),
         "US-dollars an hour of an instance, above 0 and below 100000");
    must("start", result.start.count() >= 0 && result.start <= max_start, "from \"0s\" to \"24h\"");
    must("history", result.history.empty() || result.spot, "left out: what is on demand is there when asked for");
    return result;
  }

  egress_price path(const toml::table& x) {
    egress_price result;
    take(x, "a path", {{"from", &result.from, true}, {"to", &result.to, true}, {"per_gb", &result.usd_per_gb, true}});
    if (!(result.usd_per_gb >= 0 && result.usd_per_gb < 1000))
      fail("per_gb of a path must be US-dollars, from 0 and below 1000", x.source());
    return result;
  }

  void check(const market_description& x) const {
    std::set<std::string> names, places;
    for (const auto& pool : x.pools) {
      if (!names.insert(pool.name).second)
        fail("two pools have the name " + printable(pool.name, 60) + "; each must have its own");
      places.insert(pool.place);
    }
    for (const auto& path : x.paths)
      for (const auto& place : {path.from, path.to})
        if (!places.contains(place))
          fail("a path names the place " + printable(place, 60) + ", but no pool is there; " +
               advice(place, {places.begin(), places.end()}));
    if (!(x.fixed_usd_per_h >= 0 && x.fixed_usd_per_h < market::max_usd_per_h))
      fail("fixed_per_hour must be US-dollars, from 0 and below 100000");
  }

  template <class F>
  void each(std::string_view section, F f) {
    const auto* node = root_.get(section);
    if (!node)
      return;
    const auto* all = node->as_array();
    if (!all || !all->is_homogeneous<toml::table>())
      fail(std::string(section) + " must be a section with two brackets: [[" + std::string(section) + "]]",
           node->source());
    if (all->size() > max_pools)
      fail("has more than " + std::to_string(max_pools) + " sections [[" + std::string(section) + "]]");
    for (const auto& x : *all)
      f(*x.as_table());
  }

  // `others`: keys that are read elsewhere.
  void take(const toml::table& x, const char* what, const std::vector<market_key>& keys,
            const std::vector<std::string_view>& others = {}) const {
    auto names = others;
    for (const auto& key : keys)
      names.push_back(key.name);
    for (auto&& [key, value] : x) {
      const auto known = std::ranges::find(keys, key.str(), &market_key::name);
      if (known != keys.end())
        std::visit([&, name = key.str(), &to = value](auto* target) { assign(*target, name, to); }, known->target);
      else if (std::ranges::find(others, key.str()) == others.end())
        fail("\"" + printable(key.str(), 60) + "\" is not a key of " + what + "; " + advice(key.str(), names),
             key.source());
    }
    for (const auto& key : keys)
      if (key.is_needed && !x.contains(key.name))
        fail(std::string(what) + " needs the key " + std::string(key.name), x.source());
  }

  [[noreturn]] void wrong_type(std::string_view key, const toml::node& value, const char* right) const {
    fail(std::string(key) + " must be " + right, value.source());
  }

  void assign(std::string& target, std::string_view key, const toml::node& value) const {
    if (!value.is_string() || value.as_string()->get().find('\0') != std::string::npos)
      wrong_type(key, value, "a string in quotes");
    target = value.as_string()->get();
  }

  void assign(bool& target, std::string_view key, const toml::node& value) const {
    if (!value.is_boolean())
      wrong_type(key, value, "true or false");
    target = value.as_boolean()->get();
  }

  void assign(double& target, std::string_view key, const toml::node& value) const {
    const auto number = value.value<double>();
    if (!value.is_number() || !number || !std::isfinite(*number))
      wrong_type(key, value, "a number");
    target = *number;
  }

  void assign(std::optional<double>& target, std::string_view key, const toml::node& value) const {
    assign(target.emplace(), key, value);
  }

  void assign(std::uint32_t& target, std::string_view key, const toml::node& value) const {
    const auto* whole = value.as_integer();
    if (!whole || whole->get() < 0 || whole->get() > UINT32_MAX)
      wrong_type(key, value, "a whole number, not negative");
    target = static_cast<std::uint32_t>(whole->get());
  }

  void assign(std::chrono::milliseconds& target, std::string_view key, const toml::node& value) const {
    const auto duration = value.is_string() ? parse_duration(value.as_string()->get()) : std::nullopt;
    if (!duration)
      wrong_type(key, value, "a duration such as \"90s\" or \"3m\"");
    target = *duration;
  }

  std::string name_;
  toml::table root_;
};

// Parses a file that the market file names.
template <class F>
auto named(const std::filesystem::path& market, const std::string& file, F parse) {
  const auto path = market.parent_path() / file;
  try {
    return parse(read_file(path.string()));
  } catch (const parse_error& e) {
    throw market_file_error(path.string() + ": " + e.what());
  }
}

pool_quote quote_of(const market::table::row& row) {
  enum : std::size_t { pool, price, available };
  pool_quote x{row.text(pool), row.number(price, 1e-9, std::nextafter(market::max_usd_per_h, 0.0)), {}};
  if (x.pool.empty())
    row.fail("pool is empty, must be a pool's name");
  if (!row.is_empty(available))
    x.available = static_cast<std::uint32_t>(row.whole(available, max_instances));
  return x;
}

} // namespace

bool is_web_url(std::string_view x) {
  return x.starts_with("http://") || x.starts_with("https://");
}

market_description parse_market(std::string_view text, std::string_view name) {
  return reader(text, name).read();
}

market_description read_market(const std::filesystem::path& path) {
  std::string text;
  try {
    text = contents_of(path, max_file_bytes);
  } catch (const input_error& e) {
    throw market_file_error(e.what());
  }
  auto result = parse_market(text, path.string());
  std::map<std::string, double> quoted;
  if (!result.feed.empty() && !is_web_url(result.feed))
    named(path, result.feed, [&](const std::string& x) {
      for (const auto& quote : parse_feed(x, (path.parent_path() / result.feed).string()))
        quoted[quote.pool] = quote.usd_per_h;
      return 0;
    });
  std::vector<market::catalog_entry> catalog;
  if (!result.catalog.empty())
    catalog = named(path, result.catalog, [](const std::string& x) { return market::parse_catalog(x); });
  for (auto& pool : result.pools) {
    if (pool.usd_per_h)
      continue;
    if (const auto found = quoted.find(pool.name); found != quoted.end())
      pool.usd_per_h = found->second;
    else
      pool.usd_per_h = market::price_in(catalog, pool.kind, pool.place, pool.spot);
  }
  for (auto* file : {&result.feed, &result.catalog})
    if (!file->empty() && !is_web_url(*file))
      *file = (path.parent_path() / *file).string();
  for (auto& pool : result.pools)
    if (!pool.history.empty())
      pool.history = (path.parent_path() / pool.history).string();
  return result;
}

std::vector<pool_quote> parse_feed(std::string_view text, std::string_view name) {
  std::vector<pool_quote> result;
  std::map<std::string, std::size_t> places;
  try {
    const market::table all(text, {"pool", "price", "available"}, false);
    for (const auto& row : all.rows()) {
      auto x = quote_of(row);
      if (const auto [place, is_new] = places.try_emplace(x.pool, result.size()); is_new)
        result.push_back(std::move(x));
      else
        result[place->second] = std::move(x);
    }
  } catch (const parse_error& e) {
    throw market_file_error(std::string(name) + ": " + e.what());
  }
  return result;
}

std::vector<pool_quote> parse_feed_line(std::string_view line) {
  constexpr std::string_view always = "line 1: ";
  try {
    const market::table one(line, {"pool", "price", "available"}, false);
    return one.rows().empty() ? std::vector<pool_quote>{} : std::vector{quote_of(one.rows().front())};
  } catch (const parse_error& e) {
    const std::string_view what = e.what();
    throw parse_error(std::string(what.starts_with(always) ? what.substr(always.size()) : what));
  }
}

} // namespace parcae
