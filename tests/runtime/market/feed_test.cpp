// Feeds of prices: what is believed of one, and its thread.

#include "runtime/child/process.hpp"
#include "runtime/market/feed.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/web_double.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <future>
#include <mutex>

namespace parcae {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

instance_pool pool_of(const std::string& name, std::optional<double> usd_per_h = {}) {
  instance_pool x;
  x.name = name;
  x.usd_per_h = usd_per_h;
  return x;
}

const std::vector<instance_pool> two_pools{pool_of("a", 1.0), pool_of("b")};
constexpr feed_book::time_point start{1'000'000s};

feed_report heard(feed_book& book, const std::string& text, std::chrono::seconds after = 0s) {
  return book.hear(text, start + after);
}

// given: lines good and bad / expected: the last good line of each pool asked for; how many were refused, and the first
TEST(feed_lines, one_bad_line_does_not_spoil_the_others) {
  const auto x =
      lines_of_feed("\xEF\xBB\xBF# pool,price\nb,2,7\r\n\na,nonsense\nelse,3\nb,3\na,-1\na,0.5\nb,100000\n,1\n"
                    "a,1,2,3\na,nan\na,inf\na,0\na,\"0.25\",0\nb,4,x",
                    two_pools);
  EXPECT_THAT(x.quotes, ElementsAre(pool_quote{"a", 0.25, 0u}, pool_quote{"b", 3, {}}));
  EXPECT_EQ(x.refused, 9u);
  EXPECT_EQ(x.first_problem, "line 4: price is \"nonsense\", must be a number from 0 to 100 k");
}

// given: nothing, then prices, then a part of them / expected: all that is known each time, the file's price first
TEST(feed_book, keeps_what_was_said) {
  feed_book book(two_pools, "prices.csv", start);
  auto x = heard(book, "other,5\n");
  EXPECT_THAT(x.quotes, ElementsAre(pool_quote{"a", 1.0, {}}));
  EXPECT_EQ(x.problem, "the feed prices.csv has no line of a pool of the market file; the last good prices stay");
  x = heard(book, "b,2,9\n");
  EXPECT_THAT(x.quotes, ElementsAre(pool_quote{"a", 1.0, {}}, pool_quote{"b", 2, 9u}));
  EXPECT_EQ(x.problem, "");
  x = heard(book, "a,0.9\nb,2.5\n");
  EXPECT_THAT(x.quotes, ElementsAre(pool_quote{"a", 0.9, {}}, pool_quote{"b", 2.5, {}}));
}

// given: prices below, at and over ten times the last / expected: the last of these is refused, the last good one stays
TEST(feed_book, a_price_that_jumps_is_refused) {
  feed_book book(two_pools, "prices.csv", start);
  EXPECT_EQ(heard(book, "b,2\na,1\n").problem, "");
  EXPECT_EQ(heard(book, "b,20\n").quotes.at(1).usd_per_h, 20);
  const auto x = heard(book, "a,1.5\nb,201\n");
  EXPECT_THAT(x.quotes, ElementsAre(pool_quote{"a", 1.5, {}}, pool_quote{"b", 20, {}}));
  EXPECT_EQ(x.problem, "the feed prices.csv says $201 for the pool b, over 10 times its last price; $20 stays");
  EXPECT_EQ(heard(book, "b,21\n").problem, "");
}

// given: one false low price of a pool that has one in the market file / expected: the true one is believed again, but
// no more than twice the file's
TEST(feed_book, one_false_low_price_does_not_keep_the_true_one_out) {
  feed_book book(two_pools, "prices.csv", start);
  heard(book, "a,0.001\n");
  EXPECT_THAT(heard(book, "a,2.5\n").problem, HasSubstr("over 10 times"));
  EXPECT_EQ(heard(book, "a,1.1\n").problem, "");
}

// given: readings that fail, for longer and longer / expected: prices stay; from 15 minutes on it is said, and what is
// available is not known any more; a good line ends it
TEST(feed_book, silence_is_said) {
  feed_book book(two_pools, "https://prices.example/now", start);
  heard(book, "b,2,9\n");
  auto x = book.hear(tl::unexpected(std::string("connection refused\n\x1b[2J")), start + 899s);
  EXPECT_THAT(x.quotes, ElementsAre(pool_quote{"a", 1.0, {}}, pool_quote{"b", 2, 9u}));
  EXPECT_EQ(x.problem, "the feed https://prices.example/now cannot be read: connection refused ?[2J; the last good "
                       "prices stay");
  x = book.hear(tl::unexpected(std::string("connection refused")), start + 900s);
  EXPECT_THAT(x.quotes, ElementsAre(pool_quote{"a", 1.0, {}}, pool_quote{"b", 2, {}}));
  EXPECT_EQ(x.problem, "the feed https://prices.example/now has had no price to use for 15m or more: cannot be read: "
                       "connection refused; the last good prices stay");
  EXPECT_THAT(heard(book, "garbage\n", 1000s).problem, HasSubstr("no price to use for 15m or more: line 1: "));
  EXPECT_EQ(heard(book, "b,3,1\n", 1001s).problem, "");
}

/// What a feed reported last, and how often.
class last_report {
public:
  std::function<void(const feed_report&)> listener() {
    return [this](const feed_report& x) {
      const std::lock_guard held(mutex_);
      last_ = x;
      ++count_;
    };
  }

  bool becomes(const std::function<bool(const feed_report&)>& condition) {
    return eventually([&] {
      const std::lock_guard held(mutex_);
      return count_ > 0 && condition(last_);
    });
  }

  feed_report last() {
    const std::lock_guard held(mutex_);
    return last_;
  }

private:
  std::mutex mutex_;
  feed_report last_;
  int count_ = 0;
};

feed_options quick(const std::string& source) {
  feed_options x{source, two_pools};
  x.every = 5ms;
  x.limits.idle = x.limits.connect = 10s;
  return x;
}

bool has_price(const feed_report& x, double usd_per_h) {
  return !x.quotes.empty() && x.quotes.back() == pool_quote{"b", usd_per_h, {}};
}

// given: a file that is not there, then is, changes, is a folder, too large / expected: reports follow; prices stay
TEST(price_feed, of_a_file) {
  const scratch_folder scratch("parcae-feed-test-");
  const auto file = scratch.path() / "prices.csv";
  const auto write = [&](const std::string& text) {
    std::ofstream(scratch.path() / "next") << text;
    std::filesystem::rename(scratch.path() / "next", file);
  };
  last_report seen;
  const price_feed feed(quick(file.string()), seen.listener());
  EXPECT_TRUE(seen.becomes([](const auto& x) { return !x.problem.empty(); }));
  EXPECT_THAT(seen.last().problem, HasSubstr("prices.csv cannot be read: "));
  write("b,2\n");
  EXPECT_TRUE(seen.becomes([](const auto& x) { return has_price(x, 2) && x.problem.empty(); }));
  write("b,3\n");
  EXPECT_TRUE(seen.becomes([](const auto& x) { return has_price(x, 3); }));
  write(std::string((1 << 20) + 1, '\n'));
  EXPECT_TRUE(seen.becomes([](const auto& x) { return !x.problem.empty() && has_price(x, 3); }));
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  EXPECT_TRUE(seen.becomes([](const auto& x) { return x.problem.find("is a folder") != std::string::npos; }));
  EXPECT_THROW(price_feed(quick("http://"), seen.listener()), std::runtime_error);
}

// given: a server that answers, fails, redirects, says too much, over TLS with a certificate that is trusted, and not
// / expected: its prices, or why not; without the query of its URL
TEST(price_feed, of_a_server) {
  const scratch_folder scratch("parcae-feed-test-");
  const auto identity = make_certificate((scratch.path() / "server").string(), "DNS:localhost");
  std::mutex mutex;
  auto next = web_double::make(200, "b,2\n");
  web_double server(
      [&](const web_double::request& x) {
        const std::lock_guard held(mutex);
        return x.method() == boost::beast::http::verb::get && x.target() == "/now?key=secret" ? next
                                                                                              : web_double::make(400);
      },
      identity);
  const auto answer = [&](const web_double::response& x) {
    const std::lock_guard held(mutex);
    next = x;
  };
  last_report seen, distrusting;
  auto options = quick(server.url() + "/now?key=secret");
  const price_feed stranger(options, distrusting.listener());
  options.authorities = identity;
  const price_feed feed(options, seen.listener());
  EXPECT_TRUE(seen.becomes([](const auto& x) { return has_price(x, 2); }));
  EXPECT_TRUE(distrusting.becomes([](const auto& x) { return !x.problem.empty(); }));
  EXPECT_THAT(distrusting.last().problem, HasSubstr("certificate"));
  answer(web_double::make(503));
  EXPECT_TRUE(seen.becomes([](const auto& x) { return !x.problem.empty() && has_price(x, 2); }));
  EXPECT_EQ(seen.last().problem, "the feed " + server.url() +
                                     "/now cannot be read: it was answered with HTTP status 503; the last good prices "
                                     "stay");
  answer(web_double::make(302));
  EXPECT_TRUE(seen.becomes([](const auto& x) { return x.problem.find("not followed") != std::string::npos; }));
  answer(web_double::make(200, std::string(2 << 20, 'x')));
  EXPECT_TRUE(seen.becomes([](const auto& x) {
    return x.problem.find("not followed") == std::string::npos && !x.problem.empty() && has_price(x, 2);
  }));
  answer(web_double::make(200, "b,4\n"));
  EXPECT_TRUE(seen.becomes([](const auto& x) { return has_price(x, 4) && x.problem.empty(); }));
}

// given: a server that takes the question and says nothing / expected: the feed goes at once nevertheless
TEST(price_feed, ends_in_the_midst_of_a_reading) {
  std::promise<void> asked, over;
  std::once_flag first;
  web_double server([&](const web_double::request&) {
    std::call_once(first, [&] { asked.set_value(); });
    over.get_future().wait();
    return web_double::make(200);
  });
  last_report seen;
  auto feed = std::make_unique<price_feed>(quick(server.url()), seen.listener());
  asked.get_future().wait();
  const auto began = std::chrono::steady_clock::now();
  feed.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 5s) << "not the 10 s of its limits";
  over.set_value();
}

} // namespace
} // namespace parcae
