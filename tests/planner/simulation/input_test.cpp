// Traces, profiles and generated traces: what is read, and what is refused.

#include "planner/simulation/simulator.hpp"
#include "planner/simulation/trace_generator.hpp"
#include "tests/planner/published.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

namespace parcae {
namespace {

std::string error_of(const std::string& text) {
  try {
    parse_trace(text);
  } catch (const parse_error& e) {
    return e.what();
  }
  return "";
}

// given: events at 0 s (two), 130.9 s, 131 s / expected: rows 0, 60, 120, 130, 131
TEST(parse_trace, makes_the_published_rows) {
  const auto rows = parse_trace("0,add,a\n900,add,b\n130900,remove,a\n131000,add,c\n131000,remove,b\n");
  struct {
    double seconds;
    std::uint32_t joined, lost, available;
  } expected[] = {{0, 2, 0, 2}, {60, 0, 0, 2}, {120, 0, 0, 2}, {130, 0, 1, 1}, {131, 1, 1, 1}};
  ASSERT_EQ(rows.size(), std::size(expected));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].seconds, expected[i].seconds);
    EXPECT_EQ(rows[i].joined, expected[i].joined);
    EXPECT_EQ(rows[i].lost, expected[i].lost);
    EXPECT_EQ(rows[i].available, expected[i].available);
  }
  EXPECT_EQ(rows[3].lost_joined_in, (std::vector<std::uint32_t>{0}));
}

// A row inserted at the very second of the next event would be one too many.
TEST(parse_trace, inserts_no_row_at_the_next_event) {
  EXPECT_EQ(parse_trace("0,add,a\n120000,add,b\n").size(), 3u);
  EXPECT_EQ(parse_trace("0,add,a\n121000,add,b\n").size(), 4u);
}

// given: one comes and goes within a second, another goes and comes back / expected: only the second is a loss
TEST(parse_trace, a_node_of_less_than_a_second_was_never_there) {
  const auto rows = parse_trace("0,add,a\n0,add,b\n60000,add,c\n60900,remove,c\n120000,remove,a\n120500,add,a\n");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].joined, 0u);
  EXPECT_EQ(rows[1].lost, 0u);
  EXPECT_EQ(rows[1].available, 2u);
  EXPECT_EQ(rows[2].joined, 1u);
  EXPECT_EQ(rows[2].lost, 1u);
  EXPECT_EQ(rows[2].lost_joined_in, (std::vector<std::uint32_t>{0}));
}

// given: nodes start for 45 s / expected: additions come later, in order; who is gone by then never came
TEST(delayed_additions, by_hand) {
  const auto events = parse_events("0,add,a\n1000,add,b\n10000,remove,b\n11000,add,b\n20000,add,c\n65000,remove,c\n"
                                   "70000,remove,a\n");
  EXPECT_EQ(to_csv(delayed_additions(events, 45'000)), "45000,add,a\n56000,add,b\n70000,remove,a\n");
  EXPECT_EQ(to_csv(delayed_additions(events, 0)), to_csv(events));
  EXPECT_TRUE(delayed_additions({}, 1).empty());
}

// given: notice of 30 s, of 1 s, none, and to one that is still starting / expected: gone when told, if that is early
// enough to be of use; who is told before it comes was never there
TEST(removals_when_told, by_hand) {
  const auto events = parse_events("0,add,a\n0,add,b\n0,add,c\n50000,add,d\n60000,remove,a,30000\n60000,remove,b,1000\n"
                                   "60000,remove,c\n70000,remove,d,20000\n80000,add,d\n");
  const auto told = removals_when_told(events, 1'001);
  EXPECT_EQ(to_csv(told),
            "0,add,a\n0,add,b\n0,add,c\n30000,remove,a,30000\n60000,remove,b\n60000,remove,c\n80000,add,d\n");
  const auto rows = intervals_of(told);
  ASSERT_EQ(rows.size(), 4u); // 0, 30, 60, 80
  EXPECT_EQ(rows[1].lost, 1u);
  EXPECT_EQ(rows[1].announced, 1u);
  EXPECT_EQ(rows[2].lost, 2u);
  EXPECT_EQ(rows[2].announced, 0u);
  EXPECT_EQ(to_csv(removals_when_told(events, UINT64_MAX)).find(",30000\n"), std::string::npos);
}

TEST(parse_trace, reads_counts) {
  const auto rows = parse_trace("# a comment\n0,4\r\n\n60,6\n90,3\n300,3\n");
  ASSERT_EQ(rows.size(), 6u); // 0, 60, 90, 150, 210, 270
  EXPECT_EQ(rows[1].joined, 2u);
  EXPECT_EQ(rows[2].lost, 3u);
  EXPECT_EQ(rows.back().available, 3u);
}

// given: a text / expected: part of the message; empty: it is read
TEST(parse_trace, tells_the_line) {
  struct {
    const char* text;
    const char* message;
  } table[] = {
      {"", ""},
      {"\n# nothing\n", ""},
      {"0,add,a,0\n5,remove,a,30000", ""},
      {"5000,add,a\n4000,add,b", "line 2: goes back in time"},
      {"0,add,a\n\n1,remove,b\n", "line 3: removes b, which is not there"},
      {"0,add,a\n1,add,a\n", "line 2: adds a, which is there"},
      {"0,grow,a", "line 1: \"grow\" must be add or remove"},
      {"0,add,", "line 1: names no node"},
      {"0,add,a\n0,add,b # first", "line 2: names the node \"b # first\""},
      {"0,add,a,30000", "line 1: gives notice of an addition"},
      {"-1,add,a", "line 1: the time is \"-1\""},
      {"nan,add,a", "line 1: the time is \"nan\""},
      {"1e9,add,a", "line 1: the time"},
      {"99999999999999999999,add,a", "line 1: the time"},
      {"0,add,a\n0,remove,a,-3", "line 2: the notice"},
      {"0,add,a,1,2", "line 1: has 5 fields"},
      {"word", "line 1: has 1 fields"},
      {"0,5\n0,6", "line 2: must be later"},
      {"0,5\n60,nan", "line 2: the count"},
      {"0,5\n60,2000000000", "line 2: the count"},
  };
  for (const auto& x : table) {
    const auto message = error_of(x.text);
    if (*x.message == 0)
      EXPECT_EQ(message, "") << x.text;
    else
      EXPECT_NE(message.find(x.message), std::string::npos) << x.text << " -> " << message;
  }
}

TEST(parse_trace, bounds_its_memory) {
  EXPECT_NE(error_of("0,add,a\n316224000000,remove,a\n0,add,b"), "");
  EXPECT_NE(error_of(std::string(2000, 'x')), "");
}

TEST(parse_trace, reads_a_million_events) {
  std::string text;
  for (int i = 0; i < 500'000; ++i)
    text += std::to_string(i * 1000) + ",add,n" + std::to_string(i) + "\n" + std::to_string(i * 1000) + ",remove,n" +
            std::to_string(i) + "\n";
  const auto rows = parse_trace(text);
  EXPECT_EQ(rows.size(), 500'000u);
  EXPECT_EQ(rows.back().available, 0u);
}

TEST(parse_trace, reads_a_million_counts) {
  std::string text;
  for (int i = 0; i < 1'000'000; ++i)
    text += std::to_string(i) + "," + std::to_string(i % 7) + "\n";
  EXPECT_EQ(parse_trace(text).size(), 1'000'000u);
}

constexpr const char* small_profile = R"({
 "name": "small", "global_batch_samples": 64, "micro_batch_samples": 2, "optimizer_state_tensors_per_parameter": 2,
 "bytes_per_value": 4,
 "layers": [{"parameters": 10, "forward_ms": 1, "backward_ms": 2, "optimizer_ms": 0.5, "activation_mib": 1},
            {"parameters": 20, "forward_ms": 1, "backward_ms": 2, "optimizer_ms": 0.5}],
 "pipeline_depth": {"min": 1, "max": 2, "excluded": []}, "data_parallel": {"excluded": [3]},
 "throughput": [{"data_parallel": 1, "pipeline_depth": 1, "samples_per_second": 3},
                {"data_parallel": 1, "pipeline_depth": 2, "samples_per_second": 5.5},
                {"data_parallel": 2, "pipeline_depth": 1, "samples_per_second": 5.5}],
 "reconfiguration": {"model_build_ms_by_depth": {"1": 10, "2": 5}, "rendezvous_ms": 6600, "process_ms": 30,
  "communicator_rebuild": {"setup_ms": 35, "model": "per_rank", "per_rank_ms": {"add": 440, "remove": 340}},
  "checkpoint_save_and_load_ms": 14000}
})";

TEST(parse_profile, reads_what_is_there) {
  const auto x = parse_profile(small_profile);
  EXPECT_EQ(x.layers.size(), 2u);
  EXPECT_EQ(x.layers[1].parameters, 20);
  EXPECT_TRUE(x.allowed({2, 2}));
  EXPECT_FALSE(x.allowed({3, 1}));
  EXPECT_FALSE(x.allowed({1, 3}));
  EXPECT_EQ(x.throughput({2, 2}), 0);
  EXPECT_EQ(x.fastest(0), shape{});
  EXPECT_EQ(x.fastest(1), (shape{1, 1}));
  EXPECT_EQ(x.fastest(9), (shape{1, 2})); // the first in order of (D, P) among equals
  EXPECT_EQ(x.state_bytes_per_parameter(), 12);
}

// given: what is replaced / expected: part of the message
TEST(parse_profile, tells_the_key) {
  struct {
    const char *from, *to, *message;
  } table[] = {
      {"\"name\"", "\"nome\"", "the document lacks the key \"name\""},
      {"\"parameters\": 20", "\"parameters\": -20", "layers[1].parameters must be a number"},
      {"\"parameters\": 20", "\"parameters\": \"x\"", "layers[1].parameters must be a number"},
      {"\"parameters\": 20", "\"parameters\": 1e400", ""},
      {"5.5},", "NaN},", "line 8: not JSON"},
      {"\"per_rank\"", "\"per_hour\"", "reconfiguration.communicator_rebuild.model is \"per_hour\""},
      {"\"pipeline_depth\": 2", "\"pipeline_depth\": 1", "throughput[1] repeats 1×1"},
      {"\"2\": 5", "\"7\": 5", "reconfiguration.model_build_ms_by_depth lacks depth 2"},
      {"\"min\": 1", "\"min\": 1.5", "pipeline_depth.min must be a whole number"},
      {"[3]", "3", "data_parallel.excluded must be a list"},
      {"\"2\": 5", "\"02\": 5", "has the key \"02\", which is no number"},
      {"\"min\": 1, \"max\": 2", "\"min\": 3, \"max\": 4", "throughput must have a pair that pipeline_depth"},
  };
  for (const auto& x : table) {
    std::string text = small_profile;
    const auto at = text.find(x.from);
    ASSERT_NE(at, std::string::npos) << x.from;
    text.replace(at, std::string(x.from).size(), x.to);
    try {
      parse_profile(text);
      ADD_FAILURE() << "accepted " << x.to;
    } catch (const parse_error& e) {
      EXPECT_NE(std::string(e.what()).find(x.message), std::string::npos) << x.to << " -> " << e.what();
    }
  }
  EXPECT_THROW(parse_profile(""), parse_error);
  EXPECT_THROW(parse_profile(std::string(100'000, '[')), parse_error);
  EXPECT_THROW(parse_network("{\"point_to_point\": []}"), parse_error);
}

// A cost that is missing would be none.
TEST(parse_peers, tells_the_missing_cost) {
  for (const auto& [name, system, lacks] : {std::tuple("oobleck", R"({"reconfigurations_s": 2})", "reconfiguration_s"),
                                            std::tuple("bamboo", R"({"restart_s": 2})", "global_rendezvous_s"),
                                            std::tuple("varuna", R"({"restart_s": 2})", "checkpoint_s")})
    try {
      parse_peers(R"({"models": [{"model": "small", "global_batch_samples": 64, ")" + std::string(name) +
                  "\": " + system + "}]}");
      ADD_FAILURE() << name;
    } catch (const parse_error& e) {
      EXPECT_EQ(std::string(e.what()), "models[0]." + std::string(name) + " lacks the key \"" + lacks + "\"");
    }
}

TEST(parse_profile, reads_the_published_ones) {
  PARCAE_NEEDS_PUBLISHED_FIGURES();
  for (const char* name : {"gpt2-1.5b", "bert-large", "resnet152", "vgg19", "gpt3-6.7b"})
    EXPECT_EQ(published::workload(name).name, name);
  const auto peers =
      parse_peers(read_file((published::folder() / "profiles" / "peers-oobleck-artifact.json").string()));
  ASSERT_EQ(peers.size(), 5u);
  EXPECT_EQ(peers[0].systems.at("oobleck").reconfiguration_s, 2);
  EXPECT_TRUE(peers[2].systems.at("bamboo").samples_per_s.empty());
}

TEST(read_file, says_what_it_cannot_read) {
  EXPECT_THROW(read_file("/nonexistent/file"), parse_error);
  try {
    read_file("/");
    ADD_FAILURE();
  } catch (const parse_error& e) {
    EXPECT_STREQ(e.what(), "/ is a folder");
  }
}

// Some editors begin every file with a byte order mark.
TEST(read_file, leaves_out_the_byte_order_mark) {
  const auto path = testing::TempDir() + "parcae-byte-order-mark";
  std::ofstream(path) << "\xEF\xBB\xBF"
                      << "0,add,a\n";
  EXPECT_EQ(read_file(path), "0,add,a\n");
  std::filesystem::remove(path);
}

// The generator's default against the published statistics of p3, over ten seeds.
TEST(generate_trace, follows_the_published_statistics) {
  double mean = 0, groups = 0, losses = 0, peak = 0;
  std::vector<double> lives_h;
  constexpr int seeds = 10;
  for (int seed = 1; seed <= seeds; ++seed) {
    const auto events = generate_trace(trace_kind("p3"), seed);
    EXPECT_EQ(to_csv(events), to_csv(generate_trace(trace_kind("p3"), seed)));
    const auto rows = parse_trace(to_csv(events));
    double seconds = 0, instance_seconds = 0, most = 0;
    std::map<std::string, double> since;
    for (const auto& x : events) {
      if (x.added) {
        since[x.node] = static_cast<double>(x.ms);
      } else {
        lives_h.push_back((static_cast<double>(x.ms) - since[x.node]) / 3.6e6);
        ++losses;
      }
    }
    for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
      const double length = rows[i + 1].seconds - rows[i].seconds;
      seconds += length;
      instance_seconds += length * rows[i].available;
      most = std::max<double>(most, rows[i].available);
      groups += rows[i].lost > 0 ? 1 : 0;
      EXPECT_LE(rows[i].lost, 6u);
    }
    mean += instance_seconds / seconds / seeds;
    peak += most / seeds;
  }
  std::nth_element(lives_h.begin(), lives_h.begin() + static_cast<std::ptrdiff_t>(lives_h.size() / 2), lives_h.end());
  EXPECT_NEAR(mean, 24, 3);
  EXPECT_NEAR(peak, 32, 1);
  EXPECT_NEAR(losses / groups, 2.1, 0.4);
  EXPECT_NEAR(losses / seeds, 167, 40);
  EXPECT_NEAR(lives_h[lives_h.size() / 2], 0.98, 0.35);
}

TEST(generate_trace, all_kinds_are_good_traces) {
  for (const auto& kind : trace_kinds())
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const auto options = trace_kind(kind);
      const auto rows = parse_trace(to_csv(generate_trace(options, seed)));
      EXPECT_GT(rows.size(), options.hours * 50) << kind;
      for (const auto& x : rows)
        EXPECT_LE(x.available, options.capacity);
    }
  EXPECT_THROW(trace_kind("stormy"), std::invalid_argument);
}

} // namespace
} // namespace parcae
