#include "runtime/market/feed_book.hpp"

#include "planner/cost/profile.hpp"
#include "planner/market/table.hpp"
#include "protocols/base/printable.hpp"
#include "protocols/base/text.hpp"
#include "runtime/market/market_file.hpp"

#include <algorithm>

namespace parcae {

namespace {

constexpr std::size_t max_problem = 300;

/// The next line, without its end.
std::string_view next_line(std::string_view& text) {
  const auto end = text.find('\n');
  const auto result = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  return result;
}

std::string dollars(double x) {
  return "$" + text_of_quantity(x);
}

} // namespace

feed_lines lines_of_feed(std::string_view text, const std::vector<instance_pool>& pools) {
  feed_lines result;
  std::map<std::string_view, pool_quote> last;
  for (const auto& x : pools)
    last[x.name];
  for (std::size_t line = 1; !text.empty(); ++line)
    try {
      for (auto& x : parse_feed_line(next_line(text)))
        if (const auto of = last.find(x.pool); of != last.end())
          of->second = std::move(x);
    } catch (const parse_error& e) {
      if (++result.refused == 1)
        result.first_problem = "line " + std::to_string(line) + ": " + printable(e.what(), max_problem);
    }
  for (const auto& x : pools)
    if (auto& quote = last.at(x.name); !quote.pool.empty())
      result.quotes.push_back(std::exchange(quote, {}));
  return result;
}

feed_book::feed_book(std::vector<instance_pool> pools, std::string source, time_point now, feed_rules rules) :
    pools_(std::move(pools)), source_(printable(source, max_problem)), rules_(rules), heard_(now) {
  for (const auto& x : pools_)
    if (x.usd_per_h)
      good_[x.name] = {x.name, *x.usd_per_h, {}};
}

bool feed_book::is_jump(const instance_pool& pool, double usd_per_h) const {
  const auto last = good_.find(pool.name);
  return last != good_.end() && usd_per_h > rules_.max_rise * last->second.usd_per_h &&
         !(pool.usd_per_h && usd_per_h <= 2 * *pool.usd_per_h);
}

// What is wrong, as a sentence's end; empty: nothing.
std::string feed_book::take(const feed_lines& lines, time_point now) {
  std::string jump;
  for (const auto& x : lines.quotes) {
    const auto pool = std::ranges::find(pools_, x.pool, &instance_pool::name);
    if (is_jump(*pool, x.usd_per_h)) {
      jump = "says " + dollars(x.usd_per_h) + " for the pool " + printable(x.pool, 60) + ", over " +
             text_of_quantity(rules_.max_rise) + " times its last price; " + dollars(good_.at(x.pool).usd_per_h) +
             " stays";
      continue;
    }
    good_[x.pool] = x;
    heard_ = now;
  }
  if (!jump.empty())
    return jump;
  if (lines.refused > 0)
    return lines.first_problem +
           (lines.refused > 1 ? ", and " + counted(lines.refused - 1, "other line") + " like it" : "") +
           "; the last good prices stay";
  return lines.quotes.empty() ? "has no line of a pool of the market file; the last good prices stay" : "";
}

feed_report feed_book::hear(const tl::expected<std::string, std::string>& reading, time_point now) {
  auto wrong = reading ? take(lines_of_feed(*reading, pools_), now)
                       : "cannot be read: " + printable(reading.error(), max_problem) + "; the last good prices stay";
  if (now - heard_ >= rules_.silence) {
    for (auto& [name, x] : good_)
      x.available.reset();
    wrong = "has had no price to use for " + text_of_duration(rules_.silence) + " or more" +
            (wrong.empty() ? "" : ": " + wrong);
  }
  feed_report result;
  for (const auto& x : pools_)
    if (const auto good = good_.find(x.name); good != good_.end())
      result.quotes.push_back(good->second);
  if (!wrong.empty())
    result.problem = "the feed " + source_ + " " + wrong;
  return result;
}

} // namespace parcae
