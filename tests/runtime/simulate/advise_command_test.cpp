// `parcae advise` as a user calls it, in this process.

#include "runtime/child/process.hpp"
#include "tests/runtime/simulate/simulate_run.hpp"

#include <boost/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace parcae {
namespace {

namespace json = boost::json;
using testing::HasSubstr;

class advise_command : public testing::Test {
protected:
  advise_command() {
    write("counts.csv", "0,4\n7200,0\n14400,4\n86400,2\n172800,0\n");
    write("market.toml", pool("cheap", true, 1, "history = \"counts.csv\"\n") + pool("kept", false, 3));
    write("rates.csv", "kind,instances,samples_per_s\nk,1,10\nk,2,20\nk,3,28\nk,4,29\n");
  }

  static std::string pool(const char* name, bool spot, double price, const std::string& more = {}) {
    return "[[pool]]\nname = \"" + std::string(name) +
           "\"\nplace = \"here\"\nkind = \"k\"\nmost = 4\nstart = \"5m\"\n" + (spot ? "spot = true\n" : "") +
           "price = " + std::to_string(price) + "\n" + more;
  }

  void write(const char* name, const std::string& text) { std::ofstream(path(name)) << text; }
  std::string path(const char* name) const { return (scratch_.path() / name).string(); }

  std::string run(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--market", path("market.toml")});
    return simulate_run(std::move(arguments), "advise");
  }

  std::string by_rates(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--rates", path("rates.csv"), "--samples", "864000"});
    return run(std::move(arguments));
  }

  scratch_folder scratch_{"parcae-advise-command-test-"};
};

// given: 12 h of work of two, a day, on demand for 3 $/h / expected: what two and three on demand cost, by hand; the
// knee where the fourth adds little; those in time and within the money first
TEST_F(advise_command, json_by_hand) {
  const auto x = json::parse(by_rates({"--deadline", "24h", "--budget", "75", "--json"})).as_object();
  EXPECT_EQ(x.at("samples").to_number<double>(), 864'000);
  EXPECT_EQ(x.at("knees").at(0).at("instances").to_number<int>(), 3);
  EXPECT_TRUE(x.at("without_history").as_array().empty());
  std::map<std::string, json::object> plans;
  double before = 0;
  for (const auto& y : x.at("plans").as_array()) {
    const double misses = y.at("late").to_number<double>() + y.at("over_budget").to_number<double>();
    EXPECT_GE(misses, before);
    before = misses;
    EXPECT_FALSE(y.at("why").as_string().empty());
    EXPECT_LE(y.at("usd_spread").at("p10").to_number<double>(), y.at("usd").to_number<double>() + 1e-9);
    plans[std::string(y.at("plan").as_string())] = y.as_object();
  }
  const auto& two = plans.at("2 on-demand k in here");
  EXPECT_NEAR(two.at("usd").to_number<double>(), 2 * 3 * (12 + 1.0 / 12), 1e-6);
  EXPECT_NEAR(two.at("finish_h").to_number<double>(), 12 + 1.0 / 12, 1e-6);
  EXPECT_NEAR(two.at("instance_hours").at(0).at("on_demand_h").to_number<double>(), 2 * (12 + 1.0 / 12), 1e-6);
  EXPECT_EQ(two.at("over_budget").to_number<double>(), 0);
  EXPECT_EQ(plans.at("3 on-demand k in here").at("over_budget").to_number<double>(), 1);
  EXPECT_EQ(plans.at("1 on-demand k in here").at("late").to_number<double>(), 1);
  EXPECT_EQ(plans.at("budget policy on k").at("late").to_number<double>(), 0);
}

TEST_F(advise_command, table) {
  const auto text = by_rates({"--deadline", "24h", "--plans", "3"});
  EXPECT_THAT(text, HasSubstr("rates.csv: 8.64e+05 samples in 24 h, 24 windows of market.toml"));
  EXPECT_THAT(text, HasSubstr("\nbudget policy on k "));
  EXPECT_THAT(text, HasSubstr("k: beyond 3 one more adds less than a tenth"));
  EXPECT_THAT(text, HasSubstr("more: --plans, --json"));
  EXPECT_THAT(text, HasSubstr("\nthe first: "));
  EXPECT_THAT(text, testing::Not(HasSubstr("no history")));
}

// given: no history / expected: it says so; what is held all the time is always there
TEST_F(advise_command, without_history) {
  write("market.toml", pool("cheap", true, 1));
  const auto text = by_rates({"--deadline", "24h"});
  EXPECT_THAT(text, HasSubstr("no history of cheap: taken as always to be had"));
  EXPECT_THAT(text, HasSubstr("2 spot k in here"));
}

// given: a job file and its profile, the same for a kind / expected: samples of its steps
TEST_F(advise_command, job_file) {
  const auto profiles = std::string(PARCAE_SOURCE_DIR) + "/deploy/profiles/";
  const auto x = json::parse(run({"--profile", "k=" + profiles + "gpt.json", profiles + "gpt.toml", "--deadline", "24h",
                                  "--json"}))
                     .as_object();
  EXPECT_EQ(x.at("job").as_string(), "gpt.toml");
  EXPECT_GT(x.at("samples").to_number<double>(), 0);
  const auto y = json::parse(run({profiles + "gpt.json", "--gang", "2", "--work", "1h", "--deadline", "24h", "--json"}))
                     .as_object();
  EXPECT_GT(y.at("samples").to_number<double>(), 0);
}

// given: losses of 40/(j + 10) + 1, a batch of 64 / expected: the steps to 1.1, which are 390; none to 0.9
TEST_F(advise_command, until_a_loss) {
  std::string losses = "step,loss\n";
  for (int i = 1; i <= 200; ++i)
    losses += std::to_string(i) + "," + std::to_string(40.0 / (i + 10) + 1) + "\n";
  write("losses.csv", losses);
  const auto profiles = std::string(PARCAE_SOURCE_DIR) + "/deploy/profiles/";
  const auto advised = [&](const char* loss) {
    return run({profiles + "gpt.toml", "--profile", profiles + "gpt.json", "--deadline", "24h", "--loss", loss,
                "--curve", path("losses.csv"), "--json"});
  };
  EXPECT_NEAR(json::parse(advised("1.1")).at("samples").to_number<double>() / 64, 390, 4);
  EXPECT_THAT(advised("0.9"), HasSubstr("so --loss 0.9 is not reached"));
  EXPECT_THAT(by_rates({"--deadline", "24h", "--loss", "1"}), HasSubstr("--loss and --curve need each other"));
}

TEST_F(advise_command, what_is_wrong) {
  EXPECT_THAT(by_rates({}), HasSubstr("advise needs --deadline"));
  EXPECT_THAT(by_rates({"--deadline", "100h"}), HasSubstr("less than the deadline"));
  EXPECT_THAT(by_rates({"--deadline", "24h", "--kind", "j"}), HasSubstr("--kind j is in no pool"));
  EXPECT_THAT(run({"job.toml", "--deadline", "24h"}), HasSubstr("advise needs the job's rates"));
  EXPECT_THAT(run({"none.json", "--deadline", "24h"}), HasSubstr("none.json"));
  EXPECT_THAT(simulate_run({}, "advise"), HasSubstr("advise needs --market"));
  write("rates.csv", "kind,instances,samples_per_s\nj,1,10\n");
  EXPECT_THAT(by_rates({"--deadline", "24h"}), HasSubstr("the kind j is in no pool"));
  EXPECT_THAT(simulate_run({"--fleet"}, "advise"), HasSubstr("--fleet needs --arrivals"));
  EXPECT_THAT(simulate_run({"--fleet", "--arrivals", "20", "--mean", "6h", "--own", "1", "--rent", "3"}, "advise"),
              HasSubstr("--arrivals \"20\" must be like 20/day"));
}

// given: the waiting game's team / expected: its best number, and those beside it
TEST_F(advise_command, fleet) {
  std::vector<std::string> team{"--fleet", "--arrivals", "0.2/s", "--mean", "500s", "--own", "3.84", "--rent", "9.6"};
  EXPECT_THAT(simulate_run(team, "advise"), HasSubstr("best       108                 4.4827     3.49%"));
  team.push_back("--json");
  const auto x = json::parse(simulate_run(team, "advise")).as_object();
  EXPECT_EQ(x.at("best_machines").to_number<int>(), 108);
  EXPECT_EQ(x.at("choices").as_array().size(), 3u);
  EXPECT_NEAR(x.at("choices").at(1).at("usd_per_h").to_number<double>(), 4.48266248609, 1e-10);
  team.insert(team.end(), {"--wait", "5m"});
  const auto y = json::parse(simulate_run(team, "advise")).as_object();
  const auto best = y.at("best_machines").to_number<int>();
  double least = 9.6;
  for (const auto& z : y.at("choices").as_array())
    least = std::min(least, z.at("usd_per_h").to_number<double>());
  EXPECT_LT(least, 4.48266248609);
  EXPECT_LE(best, 108);
  // Machines that cost as much as rented ones are not worth keeping.
  EXPECT_THAT(simulate_run({"--fleet", "--arrivals", "1/day", "--mean", "1h", "--own", "3", "--rent", "3"}, "advise"),
              HasSubstr("to rent all is cheapest: 3.0000 $"));
}

} // namespace
} // namespace parcae
