#pragma once

// What older builds stored: tests/recorded, by recording. Every build reads all of it, for ever.

#include "actors/manager/job_queue.hpp"
#include "actors/manager/journal_store.hpp"
#include "tests/support/files.hpp"

#include <boost/json/parse.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace parcae {

/// The folders, the oldest first; fails if there is none.
inline std::vector<std::filesystem::path> recordings() {
  std::vector<std::filesystem::path> result;
  for (int number = 1;; ++number) {
    auto folder = std::filesystem::path(PARCAE_RECORDED) / std::to_string(number);
    if (!std::filesystem::exists(folder))
      break;
    result.push_back(std::move(folder));
  }
  EXPECT_FALSE(result.empty()) << PARCAE_RECORDED;
  return result;
}

inline boost::json::value json_in(const std::filesystem::path& path) {
  return boost::json::parse(content(path));
}

/// As `recorded/record` left it: job 1 done, 2 running with a checkpoint, 3 waiting, 4 cancelled. `status`: what the
/// build that wrote it said of it then.
inline void expect_recorded_jobs(const recovered_state& x, const std::filesystem::path& status) {
  ASSERT_TRUE(x.cluster);
  EXPECT_NE(x.cluster->life, 0u);
  EXPECT_EQ(x.cluster->managers.size(), 1u);
  ASSERT_EQ(x.jobs.size(), 4u);
  const auto& done = x.jobs.at({1});
  EXPECT_EQ(job_state(done.record.state), job_state::done);
  ASSERT_TRUE(done.last);
  EXPECT_EQ(done.last->jobs.at(0).parameters_sha256,
            json_in(status).at("jobs").at(0).at("parameters_sha256").as_string());
  const auto& runs = x.jobs.at({2});
  EXPECT_EQ(job_state(runs.record.state), job_state::running);
  EXPECT_EQ(runs.record.specification.steps, 1'000'000'000u);
  EXPECT_EQ(runs.record.specification.gradient_sums, "float32"); // which no build said then
  EXPECT_EQ(runs.durable.chain, (std::vector<chain_link>{{runs.durable.last, 0, UINT64_MAX}}));
  EXPECT_EQ(runs.durable.grid.participants.at(0).slot.instance, "worker");
  EXPECT_GE(runs.durable.checkpoint.steps, 40u);
  EXPECT_EQ(runs.durable.checkpoint_folders.at(0).keeper.instance, "keeper");
  EXPECT_EQ(runs.durable.checkpoints_on_disk.back(), runs.durable.checkpoint.steps);
  const auto& waits = x.jobs.at({3});
  EXPECT_EQ(job_state(waits.record.state), job_state::queued);
  EXPECT_EQ(waits.record.priority, 3);
  EXPECT_EQ(job_state(x.jobs.at({4}).record.state), job_state::cancelled);
}

} // namespace parcae
