// Market files and feeds: what is read, and what is said of what cannot be.

#include "runtime/child/process.hpp"
#include "runtime/market/market_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace parcae {
namespace {

constexpr const char* whole = R"(fixed_per_hour = 0.35
feed = "prices.csv"
catalog = "vms.csv"
[[pool]]
name = "w2a-spot"
place = "us-west-2a"
kind = "p3.2xlarge"
spot = true
price = 0.918
most = 16
start = "2m"
history = "w2a.csv"
[[pool]]
name = "w2a"
place = "us-west-2a"
kind = "p3.2xlarge"
most = 8
slots = 1
[[pool]]
name = "e2b-spot"
place = "us-east-2b"
kind = "p3.2xlarge"
spot = true
most = 4
[[path]]
from = "us-west-2a"
to = "us-east-2b"
per_gb = 0.02
)";

TEST(market_file, every_key) {
  const auto x = parse_market(whole, "m.toml");
  EXPECT_EQ(x.fixed_usd_per_h, 0.35);
  EXPECT_EQ(x.feed, "prices.csv");
  EXPECT_EQ(x.catalog, "vms.csv");
  ASSERT_EQ(x.pools.size(), 3u);
  EXPECT_EQ(x.pools[0], (instance_pool{"w2a-spot", "us-west-2a", "p3.2xlarge", true, 1, 0.918, 16,
                                       std::chrono::minutes(2), "w2a.csv"}));
  EXPECT_EQ(x.pools[1],
            (instance_pool{"w2a", "us-west-2a", "p3.2xlarge", false, 1, {}, 8, std::chrono::minutes(3), ""}));
  EXPECT_EQ(x.paths, (std::vector{egress_price{"us-west-2a", "us-east-2b", 0.02}}));
}

// given: a change to the file / expected: where and what is wrong, and what to do
TEST(market_file, what_is_wrong) {
  const auto with = [](std::string from, const std::string& to) {
    std::string text = whole;
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    try {
      parse_market(text, "m.toml");
    } catch (const market_file_error& e) {
      return std::string(e.what());
    }
    return std::string("nothing");
  };
  using testing::StartsWith;
  EXPECT_THAT(with("most = 16", "mots = 16"), StartsWith("m.toml:10: \"mots\" is not a key of a pool; did you mean"));
  EXPECT_EQ(with("most = 16\n", ""), "m.toml:4: a pool needs the key most");
  EXPECT_EQ(with("most = 16", "most = 0"), "m.toml:10: most of the pool w2a-spot must be from 1 to 100000");
  EXPECT_EQ(with("most = 16", "most = -1"), "m.toml:10: most must be a whole number, not negative");
  EXPECT_EQ(with("spot = true", "spot = \"yes\""), "m.toml:8: spot must be true or false");
  EXPECT_THAT(with("price = 0.918", "price = nan"), StartsWith("m.toml:9: price must be a number"));
  EXPECT_THAT(with("price = 0.918", "price = 0"),
              StartsWith("m.toml:9: price of the pool w2a-spot must be US-dollars"));
  EXPECT_EQ(with("start = \"2m\"", "start = 120"), "m.toml:11: start must be a duration such as \"90s\" or \"3m\"");
  EXPECT_THAT(with("name = \"w2a\"", "name = \"w2a-spot\""), StartsWith("m.toml: two pools have the name w2a-spot"));
  EXPECT_THAT(with("to = \"us-east-2b\"", "to = \"us-east-2c\""),
              StartsWith("m.toml: a path names the place us-east-2c, but no pool is there; did you mean"));
  EXPECT_THAT(with("[[path]]", "[path]"), StartsWith("m.toml:25: path must be a section with two brackets"));
  EXPECT_THAT(with("fixed_per_hour = 0.35", "fixed_per_hour = -1"), StartsWith("m.toml: fixed_per_hour must be"));
  EXPECT_THAT(with("slots = 1", "history = \"x.csv\""), testing::HasSubstr("history of the pool w2a must be left out"));
  EXPECT_THAT(with("[[pool]]", "[[pool"), StartsWith("m.toml:4: "));
  EXPECT_THROW(parse_market("", "m.toml"), market_file_error);
  EXPECT_THROW(parse_market(std::string(2 << 20, '#'), "m.toml"), market_file_error);
}

// given: no price in the file / expected: the feed's newest, else the catalog's for that zone, else none
TEST(market_file, prices_from_elsewhere) {
  const scratch_folder scratch("parcae-market-test-");
  const auto write = [&](const char* name, const std::string& text) { std::ofstream(scratch.path() / name) << text; };
  write("m.toml", whole);
  write("prices.csv", "w2a-spot,0.7\ne2b-spot,1.0\ne2b-spot,0.9,3\n");
  write("vms.csv", "InstanceType,vCPUs,Price,SpotPrice,Region,AvailabilityZone,GpuInfo\n"
                   "p3.2xlarge,8,3.06,0.95,us-west-2,us-west-2a,\"{'Gpus': [{'Name': 'V100', 'Count': 1}]}\"\n"
                   "p3.2xlarge,8,3.06,0.5,us-east-2,us-east-2b,\n");
  const auto x = read_market(scratch.path() / "m.toml");
  EXPECT_EQ(x.pools[0].usd_per_h, 0.918);
  EXPECT_EQ(x.pools[1].usd_per_h, 3.06);
  EXPECT_EQ(x.pools[2].usd_per_h, 0.9);
  EXPECT_EQ(x.pools[0].history, (scratch.path() / "w2a.csv").string());
  write("prices.csv", "w2a-spot,0.7\ne2b-spot,none\n");
  try {
    read_market(scratch.path() / "m.toml");
    ADD_FAILURE() << "the feed is read";
  } catch (const market_file_error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("prices.csv: line 2: price is \"none\", must be a number"));
  }
  write("prices.csv", "");
  write("vms.csv", "InstanceType,Price\n");
  try {
    read_market(scratch.path() / "m.toml");
    ADD_FAILURE() << "the catalog is read";
  } catch (const market_file_error& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("vms.csv: line 1: has no column \"SpotPrice\""));
  }
  EXPECT_THROW(read_market(scratch.path() / "none.toml"), market_file_error);
}

} // namespace
} // namespace parcae
