// What instances have cost: while the manager is away, where they end between two looks, or return.

#include "planner/market/ledger.hpp"

#include <gtest/gtest.h>

namespace parcae::market {
namespace {

// given: a ledger that was in a journal / expected: what ran while the manager was away counts; a clock that goes back
// bills nothing twice
TEST(ledger, counts_while_the_manager_is_away) {
  ledger first(0.5, {});
  first.set_price("p", 2);
  first.advance(1'000);
  first.begin("i", "p", 1'000 - 1'800);
  EXPECT_DOUBLE_EQ(first.record().usd, 1);
  first.advance(1'000 + 3'600);
  EXPECT_DOUBLE_EQ(first.record().usd, 1 + 2 + 0.5);
  ledger second(0.5, first.record());
  second.advance(1'000 + 2 * 3'600);
  EXPECT_DOUBLE_EQ(second.record().usd, 1 + 4 + 1);
  second.advance(1'000);
  EXPECT_DOUBLE_EQ(second.record().usd, 1 + 4 + 1);
  second.keep_only({{"i", "p"}});
  second.keep_only({});
  second.advance(1'000 + 3 * 3'600);
  EXPECT_DOUBLE_EQ(second.record().pools.at("p").usd, 5) << "nothing runs any more";
}

// given: an instance that ended between two looks, one that nobody had seen before it did / expected: each is billed
// until it ended
TEST(ledger, bills_until_an_instance_ends) {
  ledger x(0, {});
  x.set_price("p", 3'600);
  x.advance(1'000);
  x.begin("i", "p", 1'000);
  x.advance(1'010);
  x.end("i", 1'025);
  x.end("unknown", 1'025);
  x.advance(1'060);
  EXPECT_DOUBLE_EQ(x.record().usd, 25);
  EXPECT_TRUE(x.record().running.empty());
  x.add("p", 7);
  EXPECT_DOUBLE_EQ(x.record().usd, 32);
  EXPECT_DOUBLE_EQ(x.record().pools.at("p").hours * 3'600, 32);
}

// given: a manager that begins again, which its nodes find one by one / expected: who returns is billed through, not
// from a start again; who does not return in time has gone
TEST(ledger, waits_for_those_who_return) {
  ledger first(0, {});
  first.set_price("p", 3'600);
  first.advance(1'000);
  first.begin("i", "p", 1'000);
  first.begin("j", "p", 1'000);
  constexpr double return_s = 120;
  ledger second(0, first.record(), return_s);
  second.advance(1'010);
  second.keep_only({});
  second.advance(1'070);
  second.begin("i", "p", 1'070 - 180);
  second.keep_only({{"i", "p"}});
  EXPECT_DOUBLE_EQ(second.record().usd, 2 * 70);
  second.advance(1'010 + return_s);
  second.keep_only({{"i", "p"}});
  EXPECT_DOUBLE_EQ(second.record().usd, 2 * (10 + return_s));
  second.advance(1'020 + return_s);
  EXPECT_DOUBLE_EQ(second.record().usd, 2 * (10 + return_s) + 10) << "j has gone";
}

// given: a record whose clock was ahead / expected: it is billed from now on, for what runs
TEST(ledger, takes_over_from_a_clock_that_was_ahead) {
  ledger_record past;
  past.until_s = 9'000;
  past.running = {{"i", "p"}};
  past.usd_per_h = {{"p", 2}};
  ledger x(0, past);
  x.advance(1'000);
  x.advance(1'000 + 3'600);
  EXPECT_DOUBLE_EQ(x.record().usd, 2);
}

} // namespace
} // namespace parcae::market
