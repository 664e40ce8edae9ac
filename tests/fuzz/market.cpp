// Market files, feeds of prices, catalogs, histories of markets, answers of hooks.

#include "planner/cost/profile.hpp"
#include "planner/market/market_data.hpp"
#include "protocols/base/printable.hpp"
#include "runtime/market/feed_book.hpp"
#include "runtime/market/hook_text.hpp"
#include "runtime/market/market_file.hpp"
#include "tests/fuzz/fuzz.hpp"

#include <map>

namespace parcae {
namespace {

bool is_one_line(const std::string& x) {
  return x.size() < 1000 && printable(x) == x;
}

/// The text as a feed that is read again and again, a part of it more each time.
void check_feed(std::string_view text) {
  instance_pool a, b;
  a.name = "w2a-spot";
  a.usd_per_h = 1;
  b.name = "b";
  feed_book::time_point now{std::chrono::hours(1)};
  feed_book book({a, b}, "feed", now);
  std::map<std::string, double> last{{a.name, 1}};
  for (std::size_t end : {text.size() / 3, text.size() / 2, text.size()}) {
    const auto x = book.hear(std::string(text.substr(0, end)), now += std::chrono::minutes(6));
    promise(is_one_line(x.problem), "a problem is one short line");
    for (const auto& quote : x.quotes) {
      promise(quote.usd_per_h > 0 && quote.usd_per_h < 1e5, "prices are within bounds");
      promise(quote.pool == a.name || quote.pool == b.name, "pools are known ones");
      if (const auto before = last.find(quote.pool); before != last.end())
        promise(quote.usd_per_h <= std::max(10 * before->second, 2.0), "a price does not jump");
      last[quote.pool] = quote.usd_per_h;
    }
  }
}

void check_hook(std::string_view text) {
  const provision_request asked{1, {{"w2a-spot", "k", "p", 3, {}, {}}, {"b", "k", "p", 1, {}, {}}}};
  const auto x = hook_answer(text, asked);
  if (!x)
    return promise(is_one_line(x.error()), "an error is one short line");
  promise(x->size() == 2 && x->at(0).pool == "w2a-spot" && x->at(1).pool == "b", "an answer for each pool, in order");
  for (const auto& pool : *x)
    promise(is_one_line(pool.why) && pool.can.value_or(0) <= 100'000, "what is believed has bounds");
}

} // namespace
} // namespace parcae

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  const auto text = as_text(data, size);
  try {
    const auto x = parse_market(text, "market.toml");
    promise(!x.pools.empty(), "a market has pools");
  } catch (const market_file_error&) {
  }
  try {
    for (const auto& x : parse_feed(text, "feed.csv"))
      promise(x.usd_per_h > 0, "prices are above 0");
  } catch (const market_file_error&) {
  }
  try {
    market::parse_catalog(text);
  } catch (const parse_error&) {
  }
  try {
    if (market::is_counts_by_zone(text))
      market::parse_counts(text, 300);
  } catch (const parse_error&) {
  }
  try {
    for (const auto& [window, places] : market::parse_windows(text, 3))
      for (const auto& x : places)
        promise(x.available.size() == x.spot_usd_per_h.size(), "each tick has a price");
  } catch (const parse_error&) {
  }
  parcae::check_feed(text);
  parcae::check_hook(text);
  return 0;
}
