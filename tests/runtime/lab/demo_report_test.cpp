// What the demo does, and what it says of it: traces of availability, reports.

#include "runtime/lab/availability.hpp"
#include "runtime/lab/demo_report.hpp"
#include "runtime/lab/local_cluster.hpp"
#include "tests/support/names.hpp"

#include <boost/json.hpp>

#include <fstream>
#include <numeric>

namespace parcae {
namespace {

// given: a trace of 12 instances for a cluster of 6 / expected: half of each count, rounded up, no empty changes
TEST(availability, is_scaled_to_the_cluster) {
  std::vector<availability_change> trace{{0ms, 12}, {10ms, -1}, {20ms, -1}, {30ms, -4}, {40ms, 6}};
  EXPECT_THAT(scaled(trace, 6), ElementsAre(availability_change{0ms, 6}, availability_change{20ms, -1},
                                            availability_change{30ms, -2}, availability_change{40ms, 3}));
  EXPECT_EQ(scaled(trace, 12), trace);
  EXPECT_EQ(scaled(trace, 100), trace);
}

// given: made-up traces / expected: never below zero or above the cluster, losses in it, same seed same trace
TEST(availability, is_made_up_by_seed) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    auto trace = made_up_trace(6, 48, seed);
    EXPECT_EQ(trace, made_up_trace(6, 48, seed));
    int present = 0;
    int groups = 0;
    for (const auto& x : trace) {
      present += x.delta;
      groups += x.delta < 0 ? 1 : 0;
      EXPECT_GE(present, 0);
      EXPECT_LE(present, 6);
      EXPECT_NE(x.delta, 0);
    }
    EXPECT_GT(groups, 20);
  }
  EXPECT_NE(made_up_trace(6, 48, 1), made_up_trace(6, 48, 2));
}

// given: a trace file, and broken ones / expected: what happens at one moment is one change; one line on what is wrong
TEST(availability, is_read_from_a_file) {
  scratch_folder folder("parcae-test");
  auto file = folder.path() / "trace.csv";
  std::ofstream(file) << "0,add,a\n0,add,b\n100,remove,a\n100,add,c\n200,remove,b\n";
  EXPECT_THAT(read_trace(file), ElementsAre(availability_change{0ms, 2}, availability_change{200ms, -1}));
  std::ofstream(file) << "0,add,a\nnonsense\n";
  EXPECT_THROW(read_trace(file), std::runtime_error);
  EXPECT_THROW(read_trace(folder.path() / "missing"), std::runtime_error);
}

// given / expected: nearest-rank percentiles
TEST(demo_report, percentiles) {
  EXPECT_EQ(percentile({}, 0.5), 0);
  EXPECT_EQ(percentile({3}, 0.99), 3);
  EXPECT_EQ(percentile({4, 1, 3, 2}, 0.5), 2);
  EXPECT_EQ(percentile({4, 1, 3, 2}, 1), 4);
  std::vector<double> hundred(100);
  std::iota(hundred.begin(), hundred.end(), 1);
  EXPECT_EQ(percentile(hundred, 0.99), 99);
}

// given: 1 s in 2×1 at 100 ms per step, then 1 s of stall / expected: 20 steps were possible
TEST(demo_report, possible_steps) {
  rate_meter meter;
  auto start = std::chrono::steady_clock::time_point(1h);
  meter.sample(start, {2, 1}, 100);
  meter.sample(start + 1s, {2, 1}, 100);
  meter.sample(start + 2s, {2, 1}, 0);
  EXPECT_DOUBLE_EQ(meter.possible_steps(), 20);
}

// given: 2 s until something runs, 1 s in 2×1 at 100 ms per step, 1 s waiting, 4 s in 1×1 that is never seen at its
// speed / expected: 8 s at 10 steps/s
TEST(demo_report, possible_steps_of_all_time) {
  rate_meter meter;
  const auto start = std::chrono::steady_clock::time_point(1h);
  meter.sample(start, {0, 0}, 0);
  EXPECT_EQ(meter.possible_steps(), 0);
  meter.sample(start + 2s, {0, 0}, 0);
  meter.sample(start + 3s, {2, 1}, 100);
  meter.sample(start + 4s, {0, 0}, 0);
  EXPECT_DOUBLE_EQ(meter.possible_steps(), 40);
  meter.sample(start + 8s, {1, 1}, 0);
  EXPECT_DOUBLE_EQ(meter.possible_steps(), 80);
}

// given: changes of several kinds, some in which nothing had run before, that were planned again, or that waited for
// instances / expected: the median over those that stalled and went as planned
TEST(demo_report, prediction_ratio) {
  job_status x;
  auto add = [&](const char* kind, double predicted_ms, double stall_ms) {
    x.changes.emplace_back();
    x.changes.back().kind = kind;
    x.changes.back().predicted_ms = predicted_ms;
    x.changes.back().stall_ms = stall_ms;
    x.changes.back().plans = 1;
  };
  EXPECT_EQ(prediction_ratio(x, "pipeline"), (std::pair<double, std::size_t>(0, 0)));
  add("pipeline", 0, 0);
  add("pipeline", 10, 5);
  add("pipeline", 10, 10);
  add("pipeline", 10, 20);
  add("pipeline", 10, 100);
  x.changes.back().plans = 2;
  add("pipeline", 10, 1000);
  x.changes.back().waited = true;
  add("intra_stage", 7, 1);
  EXPECT_EQ(prediction_ratio(x, "pipeline"), (std::pair<double, std::size_t>(1, 3)));
  EXPECT_EQ(prediction_ratio(x, "intra_stage"), (std::pair<double, std::size_t>(7, 1)));
}

// given: changes that all went as planned; one more, planned again / expected: what the ratios leave out, if anything
TEST(demo_report, says_which_changes_the_ratios_leave_out) {
  demo_result x;
  auto& change = x.disturbed.changes.emplace_back();
  change.kind = "pipeline";
  change.stall_ms = 5;
  change.predicted_ms = 4;
  change.plans = 1;
  EXPECT_THAT(to_string(x), HasSubstr(" pipeline 0.80 (1)"));
  EXPECT_THAT(to_string(x), Not(HasSubstr("left out")));
  auto again = change;
  again.plans = 2;
  x.disturbed.changes.push_back(again);
  EXPECT_THAT(to_string(x), HasSubstr(" pipeline 0.80 (1)"));
  EXPECT_THAT(to_string(x), HasSubstr("; 1 left out: planned again on the way, or had to wait for instances\n"));
}

// given: a result / expected: every key that others rely on
TEST(demo_report, has_all_keys) {
  demo_result x;
  x.disturbed.parameters_sha256 = x.undisturbed.parameters_sha256 = "ab";
  x.disturbed.steps_by_depth = {{1, 10}, {2, 30}};
  x.disturbed.changes.resize(2);
  x.disturbed.changes[0].stall_ms = 5;
  x.disturbed.changes[0].predicted_ms = 4;
  x.disturbed.changes[0].plans = 1;
  x.disturbed.changes[0].kind = "pipeline";
  auto json = boost::json::parse(json_of(x)).as_object();
  for (auto key : {"steps",
                   "samples",
                   "preemptions",
                   "preemptions_without_notice",
                   "simultaneous_losses",
                   "losses_during_change",
                   "stage_losses",
                   "joins",
                   "generation_changes",
                   "share_of_steps_pipelined",
                   "goodput",
                   "stall_ms",
                   "detect_ms",
                   "lost_steps",
                   "migrations",
                   "final_loss",
                   "parameters_sha256",
                   "undisturbed_parameters_sha256",
                   "identical",
                   "policy",
                   "changes",
                   "predicted_over_measured"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_DOUBLE_EQ(json.at("predicted_over_measured").at("pipeline").to_number<double>(), 0.8);
  EXPECT_EQ(json.at("changes").at(0).at("kind").as_string(), "pipeline");
  EXPECT_EQ(json.at("changes").at(0).at("predicted_ms").to_number<double>(), 4);
  EXPECT_EQ(json.at("changes").at(0).at("measured_ms").to_number<double>(), 5);
  EXPECT_TRUE(json.at("identical").as_bool());
  EXPECT_DOUBLE_EQ(json.at("share_of_steps_pipelined").to_number<double>(), 0.75);
  EXPECT_DOUBLE_EQ(json.at("stall_ms").at("max").to_number<double>(), 5);
  x.disturbed.parameters_sha256 = x.undisturbed.parameters_sha256 = "";
  EXPECT_FALSE(x.identical()) << "no parameters are not identical parameters";
}

} // namespace
} // namespace parcae
