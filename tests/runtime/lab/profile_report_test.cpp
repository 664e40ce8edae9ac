#include "planner/cost/profile.hpp"
#include "runtime/lab/link_probe.hpp"
#include "runtime/lab/profile_report.hpp"

#include <boost/json.hpp>

#include <gtest/gtest.h>

namespace parcae {
namespace {

job_specification small_job() {
  job_specification job;
  job.name = "small";
  job.global_batch = 16;
  job.micro_batch = 2;
  job.virtual_replicas = 4;
  return job;
}

job_measurements made_up() {
  job_measurements x;
  for (int i = 0; i < 3; ++i)
    x.layers.push_back({1, 2, 0.5, 4'000'000, 100'000, 12'000'000, 5'000'000, 0, {0.01, 0.02, 0}});
  x.step_ms = 8 * 9 + 1.5 + 0.5;
  x.platform = {0.01, 1e6, 1e-6, 0.001, 0.5, {1, 1.25}};
  x.link = {{{64, 0.01}, {1e6, 1}}, 0.01, 1e6, 0.001, 1e-9, 1e-6};
  x.changes = {.link_bytes_per_ms = 2e6,
               .detect_ms = 0,
               .settle_ms = 1,
               .loss_ms = 2,
               .plan_ms = 0.5,
               .prepare_ms = 40,
               .transfer_ms = 1.5,
               .activate_ms = 2.5,
               .rank_ms = 0.2};
  x.node_start_ms = 600;
  x.checkpoint_ms = 90;
  return x;
}

// What is written is what `simulate` reads.
TEST(profile_report, is_read_by_the_planner) {
  const auto measured = made_up();
  const auto table = predicted_configurations(small_job(), measured, 6, {});
  const auto x = parse_profile(boost::json::serialize(to_json(small_job(), measured, table)));
  EXPECT_EQ(x.name, "small");
  EXPECT_EQ(x.global_batch, 16u);
  ASSERT_EQ(x.layers.size(), 3u);
  EXPECT_EQ(x.layers[1].parameters, 1'000'000);
  EXPECT_EQ(x.layers[1].backward_ms, 2);
  EXPECT_EQ(x.layers[1].parameters * x.state_bytes_per_parameter(), 12'000'000);
  EXPECT_EQ(x.boundary_values, 25'000);
  EXPECT_EQ(x.samples_per_s.size(), table.size());
  EXPECT_EQ(x.max_depth, 3u);
  ASSERT_TRUE(x.changes);
  EXPECT_EQ(x.changes->prepare_ms, 40);
  EXPECT_EQ(x.changes->link_bytes_per_ms, 2e6);
}

// 1×1 is what was measured; elsewhere the crowded machine's times count. Bounds and memory leave configurations out.
TEST(profile_report, predicts_what_the_job_allows) {
  auto job = small_job();
  const auto measured = made_up();
  const auto all = predicted_configurations(job, measured, 6, {});
  EXPECT_EQ(all.size(), 4u + 3u + 2u); // D ≤ V
  EXPECT_NEAR(all[0].samples_per_s, 16'000 / measured.step_ms, 1e-9);
  for (std::size_t i = 1; i < all.size(); ++i) {
    EXPECT_LT(all[i].low_samples_per_s, all[i].samples_per_s);
    EXPECT_GT(all[i].samples_per_s, all[0].samples_per_s);
  }
  EXPECT_LT(all[1].samples_per_s, 2 * all[0].samples_per_s / 1.2);
  job.min_depth = 2;
  EXPECT_EQ(predicted_configurations(job, measured, 6, {}).size(), 5u);
  const auto small_slots = predicted_configurations(job, measured, 6, {50'000'000});
  EXPECT_LT(small_slots.size(), 5u);
  EXPECT_TRUE(predicted_configurations(job, measured, 6, {1'000}).empty());
}

TEST(link_probe, measures_this_machine) {
  const auto x = measure_link();
  ASSERT_GE(x.points.size(), 5u);
  for (std::size_t i = 1; i < x.points.size(); ++i)
    EXPECT_GT(x.points[i].bytes, x.points[i - 1].bytes);
  EXPECT_GT(x.points.back().ms, x.points.front().ms);
  EXPECT_GT(x.latency_ms, 0);
  EXPECT_GT(x.bytes_per_ms, 1e4);
  EXPECT_GT(x.message_ms, 0);
  EXPECT_GE(x.message_ms_per_byte, 0);
  EXPECT_GT(x.reduce_ms_per_byte, 0);
}

} // namespace
} // namespace parcae
