// `parcae simulate --market` as a user calls it, in this process.

#include "runtime/child/process.hpp"
#include "runtime/simulate/trace_input.hpp"
#include "tests/runtime/simulate/simulate_run.hpp"

#include <boost/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace parcae {
namespace {

namespace json = boost::json;

class market_command : public testing::Test {
protected:
  market_command() {
    write("counts.csv", "0,4\n7200,0\n14400,4\n86400,0\n172800,0\n");
    write("market.toml", market("counts.csv"));
  }

  static std::string market(const std::string& history, const std::string& most = "4") {
    return "[[pool]]\nname = \"spot\"\nplace = \"us-east-1a\"\nkind = \"k\"\nspot = true\nprice = 1\nmost = " + most +
           "\nstart = \"5m\"\nhistory = \"" + history +
           "\"\n[[pool]]\nname = \"kept\"\nplace = \"us-east-1a\"\nkind = \"k\"\nprice = 3\nmost = " + most + "\n";
  }

  void write(const char* name, const std::string& text) { std::ofstream(path(name)) << text; }
  std::string path(const char* name) const { return (scratch_.path() / name).string(); }

  // Standard output; the error's text if it fails.
  std::string run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--market", path("market.toml")});
    return simulate_run(std::move(arguments));
  }

  scratch_folder scratch_{"parcae-market-command-test-"};
};

// given: two days of history, a deadline of a day, 10 hours of work of 4 / expected: by hand
TEST_F(market_command, json_by_window) {
  const auto x = json::parse(run({"--deadline", "24h", "--work", "10h", "--gang", "4", "--total", "100", "--policy",
                                  "optimum,on-demand,uniform", "--json"}))
                     .as_object();
  EXPECT_EQ(x.at("gang_instances").as_int64(), 4);
  EXPECT_EQ(x.at("deadline_h").to_number<double>(), 24);
  const auto& runs = x.at("runs").as_array();
  ASSERT_EQ(runs.size(), 3u);
  const auto usd = [&](std::size_t run, std::size_t window) {
    return runs[run].at("windows").at(window).at("usd").to_number<double>();
  };
  // With starts of a tick: spot from the fourth hour on, or in both spells; then there is none at all.
  EXPECT_NEAR(usd(0, 0), 4 * (10 + 1.0 / 12), 1e-9);
  EXPECT_NEAR(usd(0, 1), 12 * (10 + 1.0 / 12), 1e-9);
  EXPECT_NEAR(usd(1, 0), 12 * (10 + 1.0 / 12), 1e-9);
  EXPECT_EQ(runs[1].at("over_total").to_number<int>(), 2);
  EXPECT_EQ(runs[2].at("policy").as_string(), "uniform:us-east-1a");
  EXPECT_GE(usd(2, 0), usd(0, 0));
  EXPECT_EQ(runs[0].at("late").to_number<int>(), 0);
}

TEST_F(market_command, table) {
  const auto text = run({"--deadline", "24h", "--work", "10h", "--gang", "4"});
  for (const char* name :
       {"budget", "optimum", "skynomad-oracle", "skynomad", "failover", "on-demand", "uniform:us-east-1a"})
    EXPECT_THAT(text, testing::HasSubstr(std::string("\n") + name + " "));
  EXPECT_THAT(text, testing::HasSubstr("10 h of work of 4 k in 24 h, 2 windows of market.toml"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("bound"))); // without a profile
}

// given: generated traces of up to 32, a gang of 24 / expected: never late, never dearer than on demand alone by more
// than 3 %
TEST_F(market_command, budget_on_generated_traces) {
  std::vector<std::string> traces{"bursty:1", "calm:1"};
  for (int seed = 1; seed <= 20; ++seed)
    traces.push_back("p3:" + std::to_string(seed));
  for (const auto& trace : traces) {
    std::ostringstream counts;
    counts << "0,0\n"; // as nothing is there yet
    for (const auto& x : load_trace(trace).intervals)
      if (x.seconds >= 1)
        counts << static_cast<std::uint64_t>(x.seconds) << ',' << x.available << '\n';
    write("trace.csv", counts.str());
    write("market.toml", market("trace.csv", "32"));
    const auto text =
        run({"--deadline", "9h", "--work", "6h", "--gang", "24", "--policy", "budget,on-demand", "--json"});
    ASSERT_THAT(text, testing::StartsWith("{")) << trace;
    const auto runs = json::parse(text).at("runs").as_array();
    EXPECT_EQ(runs[0].at("late").to_number<int>(), 0) << trace;
    EXPECT_LE(runs[0].at("mean_usd").to_number<double>(), 1.03 * runs[1].at("mean_usd").to_number<double>()) << trace;
  }
}

TEST_F(market_command, what_is_wrong) {
  using testing::HasSubstr;
  EXPECT_THAT(run({}), HasSubstr("--market needs --deadline"));
  EXPECT_THAT(run({"--deadline", "24h", "--policy", "liveput"}), HasSubstr("--policy liveput is for traces"));
  EXPECT_THAT(run({"--deadline", "24h", "--policy", "bound"}), HasSubstr("the bound needs --profile"));
  EXPECT_THAT(run({"--deadline", "24h", "--first", "total"}), HasSubstr("--first total needs --total"));
  EXPECT_THAT(run({"--deadline", "24h", "--hourly", "4"}), HasSubstr("need --profile"));
  EXPECT_THAT(run({"--deadline", "24h", "--trace", "p3:1"}), HasSubstr("exclude each other"));
  EXPECT_THAT(run({"--deadline", "24h", "--gang", "8", "--policy", "optimum"}), HasSubstr("a gang needs 8"));
  EXPECT_THAT(run({"--deadline", "24h", "--kind", "j"}), HasSubstr("--kind j is in no pool"));
  EXPECT_THAT(run({"--deadline", "100h", "--gang", "4", "--policy", "optimum"}), HasSubstr("less than the deadline"));
  write("market.toml", market("none.csv"));
  EXPECT_THAT(run({"--deadline", "24h"}), HasSubstr("none.csv cannot be opened"));
  write("counts.csv", "0,4\nx\n");
  write("market.toml", market("counts.csv"));
  EXPECT_THAT(run({"--deadline", "24h"}), HasSubstr("counts.csv: line 2"));
}

TEST_F(market_command, plot) {
  const auto said = run({"--deadline", "24h", "--work", "10h", "--gang", "4", "--plot", path("out.svg")});
  if (said.find("install gnuplot") != std::string::npos)
    GTEST_SKIP() << said;
  std::ostringstream text;
  text << std::ifstream(path("out.svg")).rdbuf();
  for (const char* word : {"us-east-1a", "optimum", "on-demand", "US-dollars"})
    EXPECT_THAT(text.str(), testing::HasSubstr(word)) << said;
}

// given: the counts of 16 V100, as a market file has them, and 18.7 GB of each / expected: the bound, and what the
// rules of others give
TEST_F(market_command, published_counts) {
  const auto shared = std::filesystem::path(PARCAE_SOURCE_DIR).parent_path() / "shared";
  const auto counts = shared / "market" / "v100_16_counts.csv", profile = shared / "profiles" / "gpt2-1.5b.json";
  if (!std::filesystem::exists(counts) || !std::filesystem::exists(profile))
    GTEST_SKIP() << "needs " << counts << " and " << profile;
  std::string text;
  const std::string zones[] = {"us-east-2b", "us-west-2a", "us-west-2c"};
  for (const auto& zone : zones) {
    const auto pool = "[[pool]]\nplace = \"" + zone + "\"\nkind = \"p3.2xlarge\"\nmost = 16\nstart = \"12m\"\n";
    text += pool + "name = \"" + zone + "-spot\"\nspot = true\nprice = 0.918\nhistory = \"" + counts.string() + "\"\n";
    text += pool + "name = \"" + zone + "\"\nprice = 3.06\n";
    for (const auto& other : zones)
      if (other.substr(0, 9) != zone.substr(0, 9))
        text += "[[path]]\nfrom = \"" + zone + "\"\nto = \"" + other + "\"\nper_gb = 0.02\n";
  }
  write("market.toml", text);
  const auto runs = json::parse(run({"--deadline", "36h", "--profile", profile.string(), "--checkpoint-gb", "299.2",
                                     "--policy", "bound,optimum,failover,skynomad,budget", "--json"}))
                        .at("runs")
                        .as_array();
  const double expected[] = {311.97, 497.95, 649.63, 733.19};
  ASSERT_EQ(runs.size(), 5u);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(runs[i].at("mean_usd").to_number<double>(), expected[i], i == 0 ? 0.05 : 0.01);
  const auto& own = runs[4];
  EXPECT_LE(own.at("mean_usd").to_number<double>(), 0.87 * expected[1]);
  EXPECT_EQ(own.at("late").to_number<int>(), 0);
  const auto& first = own.at("windows").at(0).at("decisions").at(0);
  EXPECT_GT(first.at("usd_per_sample").to_number<double>(), 0);
  EXPECT_GT(first.at("expected_usd").to_number<double>(), 0);
  EXPECT_EQ(first.at("runners_up").as_array().size(), 3u);
  for (const char* what : {"expected_usd_spread", "expected_finish_spread_h"}) {
    const auto& spread = first.at(what).as_object();
    EXPECT_GT(spread.at("p10").to_number<double>(), 0) << what;
    EXPECT_LT(spread.at("p10").to_number<double>(), spread.at("p90").to_number<double>()) << what;
  }
  EXPECT_THAT(std::string(first.at("why").as_string()), testing::HasSubstr("a sample is worth"));
  // More money an hour makes nothing later, also where on demand alone would be too slow for it.
  auto late = runs[0].at("windows").as_array().size();
  for (const char* hourly : {"15", "20", "30"}) {
    const auto limited = json::parse(
        run({"--deadline", "36h", "--profile", profile.string(), "--policy", "budget", "--hourly", hourly, "--json"}));
    const auto now = limited.at("runs").at(0).at("late").to_number<std::size_t>();
    EXPECT_LE(now, late) << hourly;
    late = now;
  }
}

} // namespace
} // namespace parcae
