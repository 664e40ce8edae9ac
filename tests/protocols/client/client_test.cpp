#include "protocols/client/client.hpp"

#include <gmock/gmock.h>

#include <random>

namespace parcae {
namespace {

job_specification sample_job() {
  job_specification x;
  x.name = "text";
  x.steps = 77;
  x.seed = 0xffff'ffff'ffff'fff0;
  x.reproducible = false;
  x.model = {"mlp", 3, 33, 1, 17, 300, 0.125, false, 299, 48, 4, 11};
  x.data = {"text", "/some/where", 77, 78, 79};
  x.evaluate_every = 80;
  x.recompute = true;
  x.global_batch = 24;
  x.micro_batch = 3;
  x.optimizer.kind = "sgd";
  x.optimizer.clip_norm = 1.5;
  x.max_depth = 5;
  x.virtual_replicas = 8;
  x.keeper_every = 4;
  x.planning_interval_ms = 1234;
  x.checkpoint_every = 90;
  x.resume = {40, "/state/text-1/40@2", "digest"};
  return x;
}

status_reply sample_status() {
  status_reply x;
  x.manager_life = UINT64_MAX;
  x.now_us = 123456789;
  x.news_count = 10;
  x.news.push_back({9, 43, "warning", "news"});
  x.failure_count = 2;
  x.failures.push_back({1, 44, "b", "what", {"one", "two"}});
  x.instances.push_back({"a", 0xdeadbeefdeadbeef, "worker", "leaving", 2, "127.0.0.1", 4000, "cpu", 5000, 250, -1});
  job_status j;
  j.id = 3;
  j.name = "text";
  j.state = "running";
  j.phase = "readying";
  j.width = 2;
  j.depth = 1;
  j.grid = {"a/0", "a/1"};
  j.loss = 2.25;
  j.protected_now = true;
  j.steps_by_depth = {{1, 10}, {2, 20}};
  j.change_count = 8;
  j.changes.push_back({.number = 7,
                       .to = 9,
                       .trigger = "join of a/0",
                       .configuration = "2×1",
                       .kind = "pipeline",
                       .bytes = 100,
                       .stall_ms = 12.5,
                       .predicted_ms = 11.5,
                       .plans = 2,
                       .waited = true,
                       .at_us = 40});
  j.decision_count = 5;
  j.decisions.push_back({.number = 4,
                         .at_us = 41,
                         .trigger = "join of a/0",
                         .policy = "liveput",
                         .forecast = {{1.5, 1, 2}, {1.25, 0, 2}},
                         .chosen = {"2×1", 100.5},
                         .runners_up = {{"1×2", 99.5}, {"waiting", 0}},
                         .reason = "reason",
                         .generation = 9,
                         .expected_ms = 11.25,
                         .realised_ms = 12.5});
  j.chain = {{{1}, 0, 5}, {{2}, 5, UINT64_MAX}};
  j.event_count = 1;
  j.events.push_back({0, 42, "warning", "text"});
  j.checkpoint_steps = 90;
  j.checkpoint_folders.push_back({"k", "/state/text-1/90@2"});
  j.checkpoint_problem = "full";
  j.grid_lives = {0xdeadbeefdeadbeef, 3};
  j.losses = {{10, 2.5}, {20, 2.25}};
  j.validation_losses = {{20, 2.75}};
  j.detailed = true;
  j.time_left_ms = 1234.5;
  j.keepers = {{"k", 20, 3}};
  j.layers = 4;
  j.configurations.push_back({2, 1, 90.5, 100.5, 95.5, 105.5, 70, 3, true});
  j.layer_costs.push_back({1.5, 2.5, 3.5, 4, 5, 6, 7, 8, {9.5, 10.5, 11.5}});
  j.memory.push_back({"a/0", 1000, 2000});
  j.figures = {1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5};
  j.other_ms = 0.25;
  j.priority = -3;
  j.loss_steps = 21;
  j.idle = "one pipeline is all";
  x.jobs.push_back(j);
  return x;
}

// given: each kind of request / expected: the same after encoding and decoding
TEST(client, requests_round_trip) {
  auto job = std::get<submit_request>(decode_request(encode(request{submit_request{sample_job()}}))).job;
  auto expected = sample_job();
  EXPECT_EQ(job.name, expected.name);
  EXPECT_EQ(job.seed, expected.seed);
  EXPECT_EQ(job.reproducible, expected.reproducible);
  EXPECT_EQ(job.model.kind, expected.model.kind);
  EXPECT_EQ(job.model.dropout, expected.model.dropout);
  EXPECT_TRUE(job.model == expected.model);
  EXPECT_TRUE(job.data == expected.data);
  EXPECT_EQ(job.evaluate_every, expected.evaluate_every);
  EXPECT_EQ(job.recompute, expected.recompute);
  EXPECT_EQ(job.data.path, expected.data.path);
  EXPECT_EQ(job.optimizer.kind, expected.optimizer.kind);
  EXPECT_EQ(job.optimizer.clip_norm, expected.optimizer.clip_norm);
  EXPECT_EQ(job.optimizer.beta2, expected.optimizer.beta2);
  EXPECT_EQ(job.max_depth, expected.max_depth);
  EXPECT_EQ(job.planning_interval_ms, expected.planning_interval_ms);
  EXPECT_EQ(job.checkpoint_every, expected.checkpoint_every);
  EXPECT_EQ(job.resume.folder, expected.resume.folder);
  // Encoding again gives the same bytes: no field was lost.
  EXPECT_EQ(encode(request{submit_request{job}}), encode(request{submit_request{expected}}));

  EXPECT_EQ(std::get<submit_request>(decode_request(encode(request{submit_request{job, -5}}))).priority, -5);
  auto check = std::get<check_request>(decode_request(encode(request{check_request{job, 6}})));
  EXPECT_EQ(check.priority, 6);
  EXPECT_EQ(check.job.seed, expected.seed);

  auto status = std::get<status_request>(decode_request(encode(request{status_request{1, 2, 3, 4, 5, 6, 7}})));
  EXPECT_EQ(status.job, 1u);
  EXPECT_EQ(status.changes_from, 2u);
  EXPECT_EQ(status.events_from, 3u);
  EXPECT_EQ(status.decisions_from, 4u);
  EXPECT_EQ(status.losses_from, 5u);
  EXPECT_EQ(status.news_from, 6u);
  EXPECT_EQ(status.failures_from, 7u);

  auto preempt = std::get<preempt_request>(decode_request(encode(request{preempt_request{{"a", "b"}, 2, 3, 4}})));
  EXPECT_THAT(preempt.names, testing::ElementsAre("a", "b"));
  EXPECT_EQ(preempt.any, 2u);
  EXPECT_EQ(preempt.seed, 3u);
  EXPECT_EQ(preempt.notice_ms, 4u);

  EXPECT_EQ(std::get<cancel_request>(decode_request(encode(request{cancel_request{9}}))).job, 9u);
  EXPECT_EQ(std::get<checkpoint_request>(decode_request(encode(request{checkpoint_request{8}}))).job, 8u);
  auto report =
      std::get<report_request>(decode_request(encode(request{report_request{"a", "what", {"one", "two"}, 7}})));
  EXPECT_EQ(report.instance, "a");
  EXPECT_EQ(report.job, 7u);
  EXPECT_EQ(report.what, "what");
  EXPECT_THAT(report.lines, testing::ElementsAre("one", "two"));
}

// given: each kind of reply / expected: the same after encoding and decoding
TEST(client, replies_round_trip) {
  EXPECT_EQ(std::get<status_reply>(decode_reply(encode(reply{sample_status()}))), sample_status());
  auto error = std::get<error_reply>(decode_reply(encode(reply{error_reply{"unknown_job", "no such job: 4"}})));
  EXPECT_EQ(error.code, "unknown_job");
  EXPECT_EQ(error.text, "no such job: 4");
  const auto submitted = std::get<submitted_reply>(decode_reply(encode(reply{submitted_reply{5, 7}})));
  EXPECT_EQ(submitted.job, 5u);
  EXPECT_EQ(submitted.manager_life, 7u);
  EXPECT_THAT(std::get<preempted_reply>(decode_reply(encode(reply{preempted_reply{{"a"}}}))).names,
              testing::ElementsAre("a"));
  EXPECT_EQ(std::get<cancelled_reply>(decode_reply(encode(reply{cancelled_reply{6}}))).job, 6u);
  EXPECT_TRUE(std::holds_alternative<reported_reply>(decode_reply(encode(reply{reported_reply{}}))));
  const auto checked = std::get<checked_reply>(decode_reply(encode(reply{checked_reply{"waits", {"job 1", "job 2"}}})));
  EXPECT_EQ(checked.obstacle, "waits");
  EXPECT_THAT(checked.before, testing::ElementsAre("job 1", "job 2"));
}

// given: nothing, half a word, more than the limit, noise / expected: std::runtime_error, or some value
TEST(client, malformed_bytes_are_refused) {
  EXPECT_THROW(decode_request({}), std::runtime_error);
  EXPECT_THROW(decode_request(std::vector<char>(7)), std::runtime_error);
  EXPECT_THROW(decode_request(std::vector<char>(client_message_limit_bytes + 8)), std::runtime_error);
  auto survive = [](const std::vector<char>& bytes) {
    try {
      decode_request(bytes);
      decode_reply(bytes);
    } catch (const std::runtime_error&) {
    }
  };
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::vector<char> noise(8 * (1 + random() % 32));
    for (auto& c : noise)
      c = static_cast<char>(random());
    survive(noise);
  }
  // Valid messages with a few bytes changed get further into the decoder.
  for (const auto& good : {encode(request{submit_request{sample_job()}}), encode(reply{sample_status()})})
    for (int i = 0; i < 2000; ++i) {
      auto bytes = good;
      for (std::uint64_t k = 0; k <= random() % 4; ++k)
        bytes[random() % bytes.size()] = static_cast<char>(random());
      survive(bytes);
    }
}

} // namespace
} // namespace parcae
