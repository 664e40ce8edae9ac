#include "runtime/lab/stall_report.hpp"
#include "runtime/lab/stall_runs.hpp"

#include <boost/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace parcae {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

stall_run run_of(std::uint32_t width, std::uint32_t depth, double step_ms, const step_causes& causes,
                 sample_origin samples = sample_origin::made_up, bool over_hosts = false) {
  stall_run x;
  x.width = width;
  x.depth = depth;
  x.samples = samples;
  x.over_hosts = over_hosts;
  x.step_ms = step_ms;
  x.causes = causes;
  x.steps = x.traced = 100;
  return x;
}

std::vector<std::string> named(const std::vector<step_stall>& all) {
  std::vector<std::string> result;
  for (const auto& x : all)
    result.push_back(x.kind + " " + std::to_string(x.width) + "x" + std::to_string(x.depth));
  return result;
}

stall_measurements measured() {
  stall_measurements x;
  x.job = "gpt";
  x.link_bytes_per_s = 125e6;
  x.runs = {run_of(1, 1, 20, {.computing_ms = 19, .exchange_ms = 1}),
            run_of(2, 1, 27, {.computing_ms = 20, .core_ms = 3, .reduction_ms = 4}),
            run_of(1, 1, 22, {.computing_ms = 19, .data_ms = 2, .exchange_ms = 1}, sample_origin::cached),
            run_of(1, 1, 72, {.computing_ms = 19, .data_ms = 52, .exchange_ms = 1}, sample_origin::cold),
            run_of(2, 1, 50, {.computing_ms = 20, .core_ms = 2, .reduction_ms = 28}, sample_origin::made_up, true)};
  return x;
}

// given: all parts of a step / expected: each is in one cause, and together they are the step
TEST(stall_report, causes_are_all_of_a_step) {
  step_parts x;
  double n = 1;
  for (const auto member : members_of_step_parts)
    x.*member = n *= 2;
  const auto causes = causes_of(x);
  EXPECT_EQ(total_ms(causes), total_ms(x));
  EXPECT_EQ(causes.computing_ms, x.forward_ms + x.backward_ms + x.recompute_ms + x.optimizer_ms);
  EXPECT_EQ(causes.core_ms, x.core_ms);
  EXPECT_EQ(causes.activations_ms, x.transfer_ms);
}

// given: runs that differ in one thing each / expected: Stash's differences by the clock, beside those of each cause
TEST(stall_report, stalls_are_differences_of_runs) {
  const auto stalls = stalls_of(measured().runs);
  ASSERT_THAT(named(stalls), ElementsAre("interconnect 2x1", "network 2x1", "preparation 1x1", "fetch 1x1"));
  EXPECT_DOUBLE_EQ(stalls[0].by_runs_ms, 7);
  EXPECT_DOUBLE_EQ(stalls[0].by_cause.core_ms, 3);
  EXPECT_DOUBLE_EQ(stalls[0].by_cause.exchange_ms, -1);
  EXPECT_DOUBLE_EQ(stalls[1].by_runs_ms, 23);
  EXPECT_DOUBLE_EQ(stalls[1].by_cause.reduction_ms, 24);
  EXPECT_DOUBLE_EQ(stalls[2].by_cause.data_ms, 2);
  EXPECT_DOUBLE_EQ(stalls[3].by_runs_ms, 50);
  for (const auto& x : stalls)
    EXPECT_TRUE(x.explained);
}

// given: a model whose samples cannot be made up / expected: cached ones take their place
TEST(stall_report, cached_samples_stand_for_made_up_ones) {
  const auto stalls =
      stalls_of({run_of(1, 1, 20, {}, sample_origin::cached), run_of(1, 1, 30, {}, sample_origin::cold),
                 run_of(1, 2, 25, {}, sample_origin::cached), run_of(1, 2, 28, {}, sample_origin::cached, true)});
  EXPECT_THAT(named(stalls), ElementsAre("interconnect 1x2", "network 1x2", "fetch 1x1"));
}

// given: causes that are 4 ms less than what the clock says, of 50 / expected: the table and JSON say so
TEST(stall_report, what_causes_do_not_explain_is_said) {
  auto x = measured();
  EXPECT_THAT(to_string(x), Not(HasSubstr("not explained")));
  x.runs[4].causes.reduction_ms -= 4;
  EXPECT_THAT(to_string(x), HasSubstr("(not explained: the two differ by more than 2.5)"));
  const auto stall = to_json(x).at("stalls").at(1);
  EXPECT_EQ(stall.at("kind"), "network");
  EXPECT_FALSE(stall.at("explained").as_bool());
  EXPECT_NEAR(stall.at("unexplained_ms").as_double(), 4, 1e-9);
}

// given: the same / expected: a table for each place and origin of samples, the causes of each stall
TEST(stall_report, is_a_table_for_people) {
  EXPECT_THAT(to_string(measured()),
              AllOf(HasSubstr("all slots on one host, samples made up: ms of a step\n"
                              "                             1×1       2×1\n"
                              "  computing                 19.0      20.0\n"
                              "  waiting for a core         0.0       3.0\n"),
                    HasSubstr("each slot behind a link of 1000 Mb/s, samples made up"),
                    HasSubstr("  network      2×1            23.0        23.0   reduction 24.0\n")));
  const auto json = to_json(measured());
  EXPECT_EQ(json.at("runs").at(4).at("hosts"), 2);
  EXPECT_EQ(json.at("runs").at(3).at("samples"), "cold");
  EXPECT_EQ(json.at("runs").at(3).at("causes").at("data_ms"), 52.0);
}

// given: a job with replicas for one pipeline only / expected: so many times its samples a step, as many replicas as it
// has pipelines; what cannot be is said by its key
TEST(stall_report, slots_have_as_much_work_as_one_alone) {
  job_specification job;
  job.data.path = "/data";
  job.global_batch = 12;
  job.micro_batch = 4;
  job.virtual_replicas = 1;
  job.max_depth = 1;
  const auto x = stall_job(job, 2, 2, sample_origin::made_up);
  EXPECT_EQ(x.global_batch, 48u);
  EXPECT_EQ(x.micro_batch, 4u);
  EXPECT_EQ(x.virtual_replicas, 2u);
  EXPECT_EQ(x.data.kind, "synthetic");
  EXPECT_EQ(x.min_depth * x.max_depth * x.min_width * x.max_width, 16u);
  EXPECT_EQ(stall_job(job, 1, 2, sample_origin::cached).data.path, "/data");
  job.micro_batch = 5;
  EXPECT_THROW(stall_job(job, 1, 1, sample_origin::cached), std::invalid_argument);
}

} // namespace
} // namespace parcae
