// `parcae simulate --serve` as a user calls it, in this process.

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
using testing::Not;
using testing::StartsWith;

class serve_command : public testing::Test {
protected:
  serve_command() {
    write("model.json", R"({"name": "small", "layer_num": 10, "padded_layer_num": 12, "hidden_size": 64,
      "max_tp": 1, "final_fix_factor": 1, "pp_init_comm": 20, "pp_incr_comm": 0.5, "embed": [0, 0],
      "tp-1": {"bsz-1": {"init": 8, "incr": 2}, "bsz-2": {"init": 8, "incr": 2}}})");
    write("passes.json", R"({"name": "gpt", "layers": 12, "hop_ms": 0, "cache_bytes": 2048,
      "passes": [{"rows": 16, "ms": 1}, {"rows": 96, "ms": 3}]})");
    write("trace.csv", "0,2\n30,1\n60,2\n120,2\n");
    write("arrivals.csv", "1\n2,512,10\n100,32,4\n500\n");
  }

  void write(const char* name, const std::string& text) { std::ofstream(path(name)) << text; }
  std::string path(const char* name) const { return (scratch_.path() / name).string(); }

  // Standard output; the error's text if it fails. An option given twice is the last one's.
  std::string run(std::vector<std::string> more, const std::string& profile = "model.json") {
    std::vector<std::string> arguments{"--serve", "--profile", path(profile.c_str()), "--trace", path("trace.csv")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return simulate_run(std::move(arguments));
  }

  json::object json_of(std::vector<std::string> more, const std::string& profile = "model.json") {
    more.push_back("--json");
    const auto text = run(std::move(more), profile);
    EXPECT_THAT(text, StartsWith("{"));
    return json::parse(text).as_object();
  }

  scratch_folder scratch_{"parcae-serve-command-test-"};
};

// given: requests far apart, two instances / expected: static batches of one as published, cost by hand
TEST_F(serve_command, json_by_hand) {
  const auto x = json_of({"--arrivals", path("arrivals.csv"), "--price", "3.6", "--policy", "spotserve,service"});
  EXPECT_EQ(x.at("profile").as_string(), "small");
  EXPECT_EQ(x.at("accounting").as_string(), "published");
  EXPECT_EQ(x.at("requests").to_number<int>(), 3); // one comes after the trace
  EXPECT_EQ(x.at("asked_per_s").to_number<double>(), 3.0 / 120);
  const auto& runs = x.at("runs").as_array();
  ASSERT_EQ(runs.size(), 2u);
  const auto& spotserve = runs[0].as_object();
  EXPECT_EQ(spotserve.at("policy").as_string(), "spotserve");
  EXPECT_EQ(spotserve.at("batches").as_string(), "static");
  EXPECT_EQ(spotserve.at("latency_ms").at("max").to_number<double>(), 80 + 128 * 20);
  EXPECT_EQ(spotserve.at("latency_ms").at("p50").to_number<double>(), 80 + 10 * 20);
  EXPECT_EQ(spotserve.at("tokens").to_number<int>(), 128 + 10 + 4);
  EXPECT_EQ(spotserve.at("instance_hours").to_number<double>(), 210.0 / 3600);
  EXPECT_NEAR(spotserve.at("usd").to_number<double>(), 0.21, 1e-12);
  EXPECT_NEAR(spotserve.at("usd_per_million_tokens").to_number<double>(), 0.21 / 142 * 1e6, 1e-6);
  EXPECT_NEAR(spotserve.at("instance_s_per_token").to_number<double>(), 210.0 / 142, 1e-12);
  const auto& steps = spotserve.at("steps").as_array();
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[1].at("at_s").to_number<double>(), 30);
  EXPECT_EQ(steps[1].at("slots").to_number<int>(), 1);
  EXPECT_EQ(steps[1].at("pipelines").to_number<int>(), 1);
  EXPECT_THAT(std::string(steps[1].at("why").as_string()), HasSubstr("1 pipeline of 1 stage"));
  EXPECT_EQ(runs[1].at("batches").as_string(), "continuous");
  EXPECT_EQ(runs[1].at("positions_computed_twice").to_number<int>(), 0);
}

TEST_F(serve_command, the_same_each_time) {
  const std::vector<std::string> arguments{"--arrivals", "gamma:0.8,2", "--seed", "7", "--json"};
  const auto text = run(arguments);
  EXPECT_EQ(run(arguments), text);
  auto other = arguments;
  other[3] = "8";
  EXPECT_NE(run(other), text);
}

TEST_F(serve_command, table) {
  const auto text = run({"--arrivals", "poisson:0.5"});
  EXPECT_THAT(text, HasSubstr("requests of poisson:0.5 to small on "));
  EXPECT_THAT(text, HasSubstr("\nspotserve  static "));
  EXPECT_THAT(text, HasSubstr("\nservice    continuous "));
  EXPECT_THAT(text, HasSubstr("inst s/k"));
  EXPECT_THAT(run({"--arrivals", "poisson:0.5", "--price", "1"}), HasSubstr("$/M tokens"));
  EXPECT_THAT(run({"--arrivals", "poisson:0.5", "--batches", "continuous", "--policy", "spotserve"}),
              HasSubstr("\nspotserve  continuous "));
}

// given: passes that were measured, caches that move / expected: changes cost time; SpotServe has no figures there
TEST_F(serve_command, passes_in_real_time) {
  const auto text = run({"--arrivals", "poisson:0.5"}, "passes.json");
  EXPECT_THAT(text, HasSubstr("realistic accounting"));
  EXPECT_THAT(text, Not(HasSubstr("\nspotserve")));
  const std::vector<std::string> dear{"--arrivals", "poisson:2", "--least-slots", "2",
                                      "--devices",  "2",         "--stall",       "3s"};
  const auto x = json_of(dear, "passes.json");
  const auto& all = x.at("runs").at(0);
  EXPECT_GE(all.at("steps").at(1).at("stall_ms").to_number<double>(), 3000);
  EXPECT_EQ(all.at("unserved").to_number<int>(), 0);
}

TEST_F(serve_command, what_is_wrong) {
  const std::vector<std::string> poisson{"--arrivals", "poisson:1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), poisson.begin(), poisson.end());
    return run(std::move(more));
  };
  EXPECT_THAT(run({}), HasSubstr("--serve needs --profile, --trace and --arrivals"));
  EXPECT_THAT(run({"--arrivals", "poisson:often"}), HasSubstr("--arrivals \"poisson:often\": the rate must be"));
  EXPECT_THAT(run({"--arrivals", "gamma:1"}), HasSubstr("must be gamma:RATE,CV"));
  EXPECT_THAT(run({"--arrivals", "none.csv"}), HasSubstr("none.csv cannot be opened; arrivals are a file, poisson:"));
  EXPECT_THAT(with({"--policy", "liveput"}), HasSubstr("--policy liveput is for training"));
  EXPECT_THAT(with({"--plot", "x.svg"}), HasSubstr("--plot and --plan-out are of training"));
  EXPECT_THAT(with({"--market", "x.toml"}), HasSubstr("--serve and --market exclude each other"));
  EXPECT_THAT(with({"--link", "10Gb/s"}), HasSubstr("--link needs --accounting realistic"));
  write("arrivals.csv", "1\nx\n");
  EXPECT_EQ(run({"--arrivals", path("arrivals.csv")}),
            path("arrivals.csv") + ": line 2: seconds is \"x\", must be a number from 0 to 316 M");
  write("arrivals.csv", "130\n");
  EXPECT_THAT(run({"--arrivals", path("arrivals.csv")}), HasSubstr("no request comes before"));
  write("trace.csv", "0,4\n60,many\n");
  EXPECT_THAT(with({}), StartsWith(path("trace.csv") + ": line 2: "));
  EXPECT_THAT(with({"--trace", path("model.json")}), Not(StartsWith("{")));
  write("trace.csv", "0,4\n60,4\n120,4\n");
  write("model.json", "{\n\"name\": \"x\",\n}");
  EXPECT_THAT(with({}), StartsWith(path("model.json") + ": line 3: not JSON"));
  write("model.json", R"({"name": "x", "layers": [1, 2]})"); // as of training
  EXPECT_EQ(with({}), path("model.json") + ": the document lacks the key \"layer_num\"");
  write("model.json", "[1]");
  EXPECT_EQ(with({}), path("model.json") + ": the document must be an object");
  EXPECT_THAT(run({"--arrivals", "poisson:1", "--policy", "spotserve"}, "passes.json"),
              HasSubstr("--policy spotserve needs a profile of SpotServe's"));
  EXPECT_THAT(run({"--arrivals", "poisson:1", "--batches", "static"}, "passes.json"),
              HasSubstr("static batches need a profile of SpotServe's"));
  EXPECT_THAT(simulate_run({"--profile", path("model.json"), "--trace", "p3:1", "--policy", "service"}),
              HasSubstr("--policy service is for models that are served: --serve"));
  EXPECT_THAT(simulate_run({"--profile", path("model.json"), "--trace", "p3:1", "--arrivals", "poisson:1"}),
              HasSubstr("--arrivals is of a model that is served: --serve"));
}

} // namespace
} // namespace parcae
