// `parcae simulate` as a user calls it, in this process.
//
//   given                                     expected
//   all policies, JSON                        one object each, shares and losses that add up
//   rows, events, names in another order      the same plan
//   --plot                                    an SVG that names the policies
//   peers that cannot be run, two plans       one line that says why

#include "protocols/base/duration.hpp"
#include "runtime/child/process.hpp"
#include "tests/runtime/simulate/simulate_run.hpp"

#include <boost/json.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace parcae {
namespace {

namespace json = boost::json;

json::object small_profile() {
  json::array layers, throughput;
  for (int i = 0; i < 4; ++i)
    layers.push_back({{"parameters", 3e7}, {"forward_ms", 1}, {"backward_ms", 2}, {"optimizer_ms", 0.1}});
  json::object build;
  for (int depth = 1; depth <= 4; ++depth) {
    build[std::to_string(depth)] = 500;
    for (int width = 1; width * depth <= 32; ++width)
      throughput.push_back({{"data_parallel", width},
                            {"pipeline_depth", depth},
                            {"samples_per_second", width * depth / (1 + 0.05 * depth)}});
  }
  return {{"name", "small"},
          {"global_batch_samples", 64},
          {"micro_batch_samples", 1},
          {"optimizer_state_tensors_per_parameter", 2},
          {"bytes_per_value", 4},
          {"layers", layers},
          {"pipeline_depth", {{"min", 1}, {"max", 4}}},
          {"throughput", throughput},
          {"reconfiguration",
           {{"model_build_ms_by_depth", build},
            {"rendezvous_ms", 6600},
            {"process_ms", 100},
            {"checkpoint_save_and_load_ms", 14000},
            {"communicator_rebuild",
             {{"setup_ms", 35}, {"model", "per_rank"}, {"per_rank_ms", {{"add", 40}, {"remove", 30}}}}}}}};
}

json::object small_peers(const char* model) {
  const json::object rates{{"12", 10}, {"30", 20}};
  const json::object system{
      {"samples_per_second_by_nodes", rates}, {"restart_s", 60},       {"global_rendezvous_s", 10}, {"checkpoint_s", 5},
      {"checkpoint_every_steps", 10},         {"reconfiguration_s", 2}};
  return {{"models",
           {{{"model", model},
             {"global_batch_samples", 64},
             {"varuna", system},
             {"bamboo", system},
             {"oobleck", system}}}}};
}

class simulate_command : public testing::Test {
protected:
  simulate_command() {
    write("small.json", json::serialize(small_profile()));
    write("network-10gbps.json",
          R"({"point_to_point": [{"bytes": 1024, "microseconds": 140}, {"bytes": 1e9, "microseconds": 1.2e6}]})");
    write("peers.json", json::serialize(small_peers("small")));
  }

  void write(const char* name, const std::string& text) { std::ofstream(path(name)) << text; }
  std::string path(const char* name) const { return (scratch_.path() / name).string(); }
  std::string read(const char* name) const {
    std::ostringstream text;
    text << std::ifstream(path(name)).rdbuf();
    return text.str();
  }

  // Standard output; the error's text if it fails.
  std::string run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--profile", path("small.json"), "--peers", path("peers.json")});
    return simulate_run(std::move(arguments));
  }

  json::array runs(const std::vector<std::string>& arguments) {
    return json::parse(run(arguments)).at("runs").as_array();
  }

  scratch_folder scratch_{"parcae-simulate-test-"};
};

TEST_F(simulate_command, all_policies) {
  for (const std::string accounting : {"published", "realistic"}) {
    const auto all =
        runs({"--trace", "p3:1", "--policy", "all", "--forecast", "last", "--accounting", accounting, "--json"});
    ASSERT_EQ(all.size(), 6u);
    const double ideal = all[0].at("samples").to_number<double>();
    const char* names[] = {"ideal", "throughput", "liveput", "varuna", "bamboo", "oobleck"};
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto& x = all[i].as_object();
      EXPECT_EQ(x.at("policy").as_string(), names[i]);
      EXPECT_EQ(x.at("accounting").as_string(), accounting);
      const double fraction = x.at("share_of_ideal").to_number<double>();
      EXPECT_GT(fraction, 0) << names[i];
      EXPECT_LE(fraction, 1 + 1e-12) << names[i];
      if (i >= 3)
        continue;
      EXPECT_NEAR(fraction, x.at("samples").to_number<double>() / ideal, 1e-12);
      ASSERT_EQ(x.contains("lost_samples"), accounting == "realistic");
      if (accounting == "realistic") {
        double sum = x.at("samples").to_number<double>();
        for (const auto& [part, samples] : x.at("lost_samples").as_object())
          sum += samples.to_number<double>();
        EXPECT_NEAR(sum, ideal, 1e-9 * ideal) << names[i];
      }
    }
    EXPECT_GT(all[2].at("samples").to_number<double>(), all[1].at("samples").to_number<double>() * 0.999);
  }
}

// Rows of the profile's table, events of the same moment and names of nodes come in any order.
TEST_F(simulate_command, does_not_depend_on_order_or_names) {
  write("trace.csv", "0,add,a\n0,add,b\n0,add,c\n0,add,d\n0,add,e\n600000,remove,b\n600000,add,f\n"
                     "900000,remove,c\n900000,remove,a\n1500000,add,g\n2000000,add,h\n");
  write("renamed.csv", "0,add,5\n0,add,3\n0,add,4\n0,add,1\n0,add,2\n600000,add,0\n600000,remove,4\n"
                       "900000,remove,1\n900000,remove,2\n1500000,add,9\n2000000,add,8\n");
  const auto plan = [&](const char* trace, const char* accounting) {
    run({"--trace", path(trace), "--accounting", accounting, "--plan-out", path("plan.json")});
    return read("plan.json");
  };
  auto reversed = small_profile();
  std::reverse(reversed["throughput"].as_array().begin(), reversed["throughput"].as_array().end());
  for (const char* accounting : {"published", "realistic"}) {
    write("small.json", json::serialize(small_profile()));
    const auto expected = plan("trace.csv", accounting);
    EXPECT_EQ(json::parse(expected).as_array().size(), 35u);
    EXPECT_EQ(plan("renamed.csv", accounting), expected);
    write("small.json", json::serialize(reversed));
    EXPECT_EQ(plan("trace.csv", accounting), expected);
  }
}

// A faster link moves state faster, and more of it behind a step; notice spares the work computed again.
TEST_F(simulate_command, realistic_options) {
  auto lost = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--trace", "p3:2", "--policy", "throughput", "--accounting", "realistic", "--json"});
    return json::parse(run(more)).at("lost_samples").as_object();
  };
  auto part = [](const json::object& x, const char* name) { return x.at(name).to_number<double>(); };
  const auto base = lost({}), slow = lost({"--link", "1Gb/s"}), told = lost({"--notice", "1"}),
             late = lost({"--detect", "10s"});
  // At 10 Gb/s parameters alone are waited for, a third of the bytes; at 1 Gb/s a step hides little of the rest.
  EXPECT_NEAR(part(slow, "bytes"), 26 * part(base, "bytes"), 0.2 * part(slow, "bytes"));
  EXPECT_GT(part(base, "replayed"), 0);
  EXPECT_EQ(part(told, "replayed"), 0);
  EXPECT_GT(part(late, "messages"), 2 * part(base, "messages"));
}

// given: a trace with notices / expected: in real time they count where no other notice is asked for; who is told goes
// then; as published it is said that they do not count
TEST_F(simulate_command, notices_of_a_trace) {
  const std::string joins = "0,add,a\n0,add,b\n0,add,c\n0,add,d\n0,add,e\n";
  write("told.csv", joins + "600000,remove,b,120000\n900000,remove,a,120000\n1500000,add,g\n");
  write("early.csv", joins + "480000,remove,b\n780000,remove,a\n1500000,add,g\n");
  const auto simulated = [&](const char* trace, std::vector<std::string> more) {
    more.insert(more.end(), {"--trace", path(trace), "--accounting", "realistic", "--policy", "throughput", "--json"});
    return json::parse(run(more)).as_object();
  };
  const auto told = simulated("told.csv", {}), unheard = simulated("told.csv", {"--notice", "0"});
  EXPECT_EQ(told.at("notice").as_string(), "trace");
  EXPECT_EQ(unheard.at("notice").to_number<int>(), 0);
  EXPECT_EQ(told.at("lost_samples").at("replayed").to_number<double>(), 0);
  EXPECT_GT(unheard.at("lost_samples").at("replayed").to_number<double>(), 0);
  EXPECT_EQ(told.at("samples"), simulated("early.csv", {"--notice", "1"}).at("samples"));
  EXPECT_EQ(simulated("early.csv", {}).at("notice").to_number<int>(), 0);
  // Nothing can be prepared in 5 ms.
  write("late.csv", joins + "600000,remove,b,5\n900000,remove,a,5\n1500000,add,g\n");
  EXPECT_EQ(simulated("late.csv", {}).at("lost_samples"), unheard.at("lost_samples"));
  const auto said = [&](const char* trace, const char* accounting) {
    testing::internal::CaptureStderr();
    run({"--trace", path(trace), "--accounting", accounting});
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(said("late.csv", "realistic").find("count as none"), std::string::npos);
  EXPECT_NE(said("told.csv", "published").find("need --accounting realistic"), std::string::npos);
  EXPECT_EQ(said("told.csv", "realistic"), "");
  // With the true future plans know which losses are announced.
  const auto both = json::parse(run({"--trace", path("told.csv"), "--accounting", "realistic", "--policy",
                                     "throughput,liveput", "--forecast", "oracle", "--json"}))
                        .at("runs")
                        .as_array();
  EXPECT_GE(both[1].at("samples").to_number<double>(), both[0].at("samples").to_number<double>());
  // Who stays trains on while the last one is under notice; told before they come, or gone before they start, is
  // nobody.
  write("tail.csv", joins + "3600000,remove,b,1800000\n");
  EXPECT_NEAR(simulated("tail.csv", {}).at("samples").to_number<double>() /
                  simulated("tail.csv", {"--notice", "0"}).at("samples").to_number<double>(),
              1, 0.2);
  write("gone.csv", "0,add,a\n0,add,b\n600000,remove,a,700000\n1200000,remove,b,1300000\n");
  EXPECT_EQ(simulated("gone.csv", {}).at("samples").to_number<double>(), 0);
  write("short.csv", "0,add,a\n0,add,b\n10000,remove,a\n20000,remove,b\n");
  EXPECT_EQ(simulated("short.csv", {"--node-start", "45s"}).at("samples").to_number<double>(), 0);
}

// given: a profile with measured costs of changes / expected: real time, though no table of a network is there
TEST_F(simulate_command, a_measured_profile_is_simulated_in_real_time) {
  auto profile = small_profile();
  profile["changes"] = {{"link_bytes_per_ms", 1e6}, {"settle_ms", 1},   {"loss_ms", 1},     {"plan_ms", 1},
                        {"prepare_ms", 10},         {"transfer_ms", 1}, {"activate_ms", 1}, {"rank_ms", 0.1}};
  write("small.json", json::serialize(profile));
  std::filesystem::remove(path("network-10gbps.json"));
  const auto x = json::parse(run({"--trace", "p3:1", "--forecast", "last", "--json"}));
  EXPECT_EQ(x.at("accounting").as_string(), "realistic");
  EXPECT_NE(run({"--trace", "p3:1", "--accounting", "published"}).find("give --network FILE"), std::string::npos);
}

TEST_F(simulate_command, plots) {
  run({"--trace", "p3:1", "--policy", "all", "--forecast", "last", "--plot", path("out.svg")});
  const auto svg = read("out.svg");
  EXPECT_NE(svg.find("<svg"), std::string::npos);
  EXPECT_NE(svg.find("</svg>"), std::string::npos);
  for (const char* name : {"available", "ideal", "throughput", "liveput", "varuna", "bamboo", "oobleck", "depth P",
                           "behind the ideal, % of all", "loss", "ideal 100.00 %"})
    EXPECT_NE(svg.find(name), std::string::npos) << name;
  EXPECT_EQ(svg.find(">notice<"), std::string::npos) << "nobody had one";
  run({"--trace", "p3:1", "--policy", "varuna,oobleck", "--plot", path("peers.svg")});
  const auto peers = read("peers.svg");
  EXPECT_NE(peers.find("</svg>"), std::string::npos);
  EXPECT_EQ(peers.find("depth P"), std::string::npos) << "peers say nothing of theirs";
  for (const auto& file : {path(""), std::string("/dev/full")})
    EXPECT_EQ(run({"--trace", "p3:1", "--plot", file}), "cannot write the plot to " + file);
}

// given: one policy of the others; a fleet of two, with a notice / expected: each has its colour wherever it is drawn,
// ends with its value in the legend, whole numbers on the axes of instances and depth, a mark for the notice
TEST_F(simulate_command, plots_say_what_they_show) {
  const auto has = [&](const std::string& colour) { return read("out.svg").find(colour) != std::string::npos; };
  const std::string liveput = "rgb(213,  94,   0)", throughput = "rgb(  0, 114, 178)";
  run({"--trace", "p3:1", "--policy", "throughput,liveput", "--forecast", "last", "--plot", path("out.svg")});
  EXPECT_TRUE(has(liveput) && has(throughput));
  run({"--trace", "p3:1", "--policy", "throughput", "--plot", path("out.svg")});
  EXPECT_TRUE(!has(liveput) && has(throughput));
  write("told.csv", "0,add,a\n0,add,b\n7200000,remove,b,600000\n9000000,add,c\n");
  const auto table = run({"--trace", path("told.csv"), "--accounting", "realistic", "--policy", "liveput", "--forecast",
                          "last", "--plot", path("out.svg")});
  EXPECT_TRUE(has(">notice<") && !has(">loss<"));
  const auto end = table.find('%'), begin = table.rfind(' ', end) + 1;
  EXPECT_TRUE(has("liveput " + table.substr(begin, end - begin) + " %")) << table;
  EXPECT_FALSE(has(">0.5<") || has(">1.5<"));
}

// A clone has what all policies need; without the peers' figures a line says where they are.
TEST_F(simulate_command, all_policies_from_a_clone) {
  CLI::App app;
  add_simulate(app);
  const std::string profiles = PARCAE_SOURCE_DIR "/deploy/profiles/";
  testing::internal::CaptureStdout();
  app.parse("simulate --profile " + profiles + "gpt.json --trace p3:1 --policy all --peer-model gpt2 --json");
  const auto x = json::parse(testing::internal::GetCapturedStdout()).at("runs").as_array();
  ASSERT_EQ(x.size(), 6u);
  for (const auto& run : x) {
    EXPECT_GT(run.at("samples").to_number<double>(), 0) << run;
    EXPECT_LE(run.at("share_of_ideal").to_number<double>(), 1 + 1e-9) << run;
  }
  EXPECT_EQ(x[2].at("accounting").as_string(), "realistic");
  write("peers.json", R"({"models": []})");
  EXPECT_NE(run({"--trace", "p3:1", "--policy", "oobleck"}).find("deploy/profiles/peers-oobleck-artifact.json"),
            std::string::npos);
}

// gnuplot is a language: names are no part of it.
TEST_F(simulate_command, plots_names_as_they_are) {
  const std::vector<std::string> names{"a`touch " + path("made") + "`b", "a\nsystem 'touch " + path("made") + "'\nb",
                                       "it's 100 %d \\ \"$x\" {/=40 b}", "'.system('touch " + path("made") + "').'"};
  for (const auto& name : names) {
    auto profile = small_profile();
    profile["name"] = name;
    write("small.json", json::serialize(profile));
    run({"--trace", "p3:1", "--forecast", "last", "--plot", path("out`touch made`.svg")});
    const auto svg = read("out`touch made`.svg");
    EXPECT_NE(svg.find("</svg>"), std::string::npos) << name;
    EXPECT_FALSE(std::filesystem::exists(path("made"))) << name;
    std::filesystem::remove(path("out`touch made`.svg"));
  }
}

// A peer's nodes always start for 45 s; --node-start is about the others.
TEST_F(simulate_command, peers_do_not_depend_on_node_start) {
  auto of_ideal = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--trace", "p3:1", "--policy", "oobleck", "--accounting", "realistic", "--json"});
    return json::parse(run(more)).at("share_of_ideal").to_number<double>();
  };
  EXPECT_EQ(of_ideal({}), of_ideal({"--node-start", "30m"}));
  EXPECT_LE(of_ideal({}), 1);
}

TEST_F(simulate_command, says_what_it_cannot_do) {
  struct {
    std::vector<std::string> arguments;
    std::string message;
  } table[] = {
      {{"--trace", path("counts.csv"), "--policy", "varuna"}, "varuna: peers need a trace of events, not of counts"},
      {{"--trace", "p3:1", "--policy", "varuna", "--peer-model", "other"},
       "no figures for other; --peer-model may be small"},
      {{"--trace", "p3:1", "--policy", "all", "--plan-out", path("plan.json")}, "--plan-out needs exactly one policy"},
      {{"--trace", "p3:x"}, "the seed in --trace p3:x must be a whole number"},
      {{"--trace", "p3:1", "--accounting", "realistic", "--link", "fast"}, "must be like 10Gb/s"},
      {{"--trace", "p3:1", "--node-start", "45s"}, "--processors need --accounting realistic"},
      {{"--trace", path("counts.csv"), "--accounting", "realistic", "--node-start", "45s"}, "needs a trace of events"},
      {{"--trace", "p3:1", "--plot", path("no/x.svg")}, "no folder " + path("no")},
      {{"--trace", "p3:1", "--accounting", "realistic", "--detect", "soon"}, "must be like 500ms or 2s"},
      {{"--trace", "p3:1", "--policy", "magic"}, "magic"},
      {{"--trace", "p3:1", "--accounting", "realistic", "--network", "none.json"},
       "--network needs --accounting published"},
      {{"--trace", "p3:1", "--policy", "varuna", "--devices", "4"}, "varuna: peers have one device per instance"},
  };
  write("counts.csv", "0,5\n60,6\n600,6\n");
  for (const auto& x : table)
    EXPECT_NE(run(x.arguments).find(x.message), std::string::npos) << run(x.arguments);
}

// given: figures of one system only / expected: those of this project run, the peers are named with their file
TEST_F(simulate_command, lacks_figures_of_a_peer) {
  auto peers = small_peers("small");
  auto& model = peers["models"].as_array()[0].as_object();
  model.erase("varuna");
  model.erase("bamboo");
  write("peers.json", json::serialize(peers));
  EXPECT_EQ(run({"--trace", "p3:1", "--policy", "varuna"}),
            "varuna: peers have no figures of varuna, bamboo for small in " + path("peers.json"));
  EXPECT_EQ(runs({"--trace", "p3:1", "--policy", "all", "--forecast", "last", "--json"}).size(), 3u);
}

TEST(link_rate, as_people_write_it) {
  EXPECT_EQ(parse_link_rate("10Gb/s"), 1.25e6);
  EXPECT_EQ(parse_link_rate("1.2GB/s"), 1.2e6);
  EXPECT_EQ(parse_link_rate("800kb/s"), 100);
  for (const char* bad :
       {"", "10", "Gb/s", "0Gb/s", "-1Gb/s", "10 Gb/s", "10gb/s", "nanGb/s", "infGB/s", "1e400GB/s", "10Gb/s "})
    EXPECT_FALSE(parse_link_rate(bad)) << bad;
}

} // namespace
} // namespace parcae
