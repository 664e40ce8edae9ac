// Readers of tables: what is read, and what is said of what cannot be.

#include "planner/cost/profile.hpp"
#include "planner/market/market_data.hpp"
#include "planner/market/table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace parcae::market {
namespace {

template <class F>
std::string problem(F f) {
  try {
    f();
  } catch (const parse_error& e) {
    return e.what();
  }
  return "nothing";
}

TEST(table, columns_by_name_and_quotes) {
  const table x("# said first\nb,\"a\",c\r\n1,\"x, \"\"y\"\"\",3\n\n2,z\n", {"a", "b"});
  ASSERT_EQ(x.rows().size(), 2u);
  EXPECT_EQ(x.rows()[0].text(0), "x, \"y\"");
  EXPECT_EQ(x.rows()[0].whole(1, 5), 1u);
  EXPECT_EQ(x.rows()[1].text(0), "z");
  EXPECT_EQ(x.rows()[1].line(), 5u);
}

TEST(table, what_is_wrong) {
  EXPECT_EQ(problem([] { table("", {"a"}); }), "is empty, must begin with the names of its columns");
  EXPECT_EQ(problem([] { table("b\n", {"a"}); }), "line 1: has no column \"a\"; the first line must name the columns");
  EXPECT_EQ(problem([] { table("a\n1,2\n", {"a"}); }), "line 2: has 2 fields, must be 1");
  EXPECT_EQ(problem([] { table("a\n\"1\n", {"a"}); }), "line 2: a quoted field has no end; it must be within the line");
  EXPECT_EQ(problem([] { table("a,b\n\"1\"2,\n", {"a"}); }), "line 2: a comma must follow a quoted field");
  const table x("a\n-1\nnan\n1e9\n2x\n", {"a"});
  for (const auto& row : x.rows()) {
    EXPECT_THAT(problem([&] { row.number(0, 0, 1000); }), testing::HasSubstr("must be a number from 0 to 1"));
    EXPECT_THAT(problem([&] { row.whole(0, 1000); }), testing::HasSubstr("must be a whole number from 0 to 1000"));
  }
}

TEST(market_data, rows_hold_until_the_next) {
  const auto x = parse_windows("window,zone,tick,available,spot_usd_per_h\n"
                               "3,a,0,1,0.5\n3,a,2,0,0.6\n3,a,3,,\n3,b,0,0,1\n3,b,1,,\n",
                               3.06);
  ASSERT_EQ(x.at(3).size(), 2u);
  EXPECT_EQ(x.at(3)[0].available, (std::vector<std::uint8_t>{1, 1, 0}));
  EXPECT_EQ(x.at(3)[0].spot_usd_per_h, (std::vector{0.5, 0.5, 0.6}));
  EXPECT_EQ(x.at(3)[1].available.size(), 1u);
  const std::string header = "window,zone,tick,available,spot_usd_per_h\n";
  EXPECT_THAT(problem([&] { parse_windows(header + "3,a,0,1,1\n3,a,0,0,1\n", 3); }), testing::StartsWith("line 3: "));
  EXPECT_THAT(problem([&] { parse_windows(header + "3,a,1,1,1\n", 3); }), testing::StartsWith("line 2: a zone must"));
  EXPECT_THAT(problem([&] { parse_windows(header + "3,a,0,1,1\n3,b,0,1,1\n", 3); }), testing::HasSubstr("has no end"));
  EXPECT_THAT(problem([&] { parse_windows(header + "3,a,0,1,1\n", 3); }), testing::HasSubstr("has no end"));
}

TEST(market_data, counts_at_the_beginning_of_each_tick) {
  const auto x = parse_counts("seconds,zone,count\n0,a,1\n0,b,5\n100,a,2\n600,a,3\n900,a,\n300,b,\n", 300);
  ASSERT_EQ(x.size(), 2u);
  EXPECT_EQ(x[0].available, (std::vector<std::uint32_t>{1, 2, 3}));
  EXPECT_EQ(x[1].available, (std::vector<std::uint32_t>{5}));
  EXPECT_THAT(problem([] { parse_counts("seconds,zone,count\n0,a,1\n0,a,2\n", 300); }),
              testing::StartsWith("line 3: must be later"));
  const fleet_history trace{{0, 1, 0, 1, {}}, {100, 1, 0, 2, {}}, {600, 1, 0, 3, {}}, {660, 0, 0, 3, {}}};
  EXPECT_EQ(sampled(trace, 300), (std::vector<std::uint32_t>{1, 2, 3}));
}

TEST(market_data, prices_of_a_catalog) {
  const auto x = parse_catalog("InstanceType,Price,SpotPrice,Region,AvailabilityZone\n"
                               "g,2,1,us-east-1,us-east-1a\ng,2,0.8,us-east-1,us-east-1b\ng,3,,eu-1,eu-1a\n,9,9,r,z\n");
  EXPECT_EQ(x.size(), 3u);
  EXPECT_EQ(price_in(x, "g", "us-east-1a", true), 1);
  EXPECT_EQ(price_in(x, "g", "us-east-1", true), 0.8);
  EXPECT_EQ(price_in(x, "g", "us-east-1c", true), std::nullopt);
  EXPECT_EQ(price_in(x, "g", "us-east-1c", false), 2);
  EXPECT_EQ(price_in(x, "g", "eu-1a", true), std::nullopt);
  EXPECT_EQ(price_in(x, "h", "us-east-1a", false), std::nullopt);
}

TEST(market_data, regions) {
  EXPECT_EQ(region_of("us-east-2b"), "us-east-2");
  EXPECT_EQ(region_of("us-central1-a"), "us-central1");
  EXPECT_EQ(region_of("us-east-2"), "us-east-2");
  EXPECT_EQ(region_of("home"), "home");
  EXPECT_EQ(region_of(""), "");
}

} // namespace
} // namespace parcae::market
