#pragma once

// Values with something of its own in every field that older builds had: they recorded their bytes and JSON, so a field
// that is new is not set here.

#include "protocols/client/client.hpp"
#include "protocols/client/manifest.hpp"

namespace parcae {

inline job_specification sample_job() {
  job_specification x;
  x.name = "text";
  x.steps = 77;
  x.seed = 0xffff'ffff'ffff'fff0;
  x.threads = 2;
  x.reproducible = false;
  x.model = {"mlp", 3, 33, 1, 17, 300, 0.125, false, 299, 48, 4, 11};
  x.data = {"text", "/some/where", 77, 78, 79};
  x.evaluate_every = 80;
  x.recompute = true;
  x.feed = false; // older builds moved all after the stop
  x.global_batch = 24;
  x.micro_batch = 3;
  x.optimizer = {"sgd", 0.25, "linear", 0, 5, 0.375, 0.5, 0.625, 0.75, 0.875, 1.5};
  x.min_depth = 2;
  x.max_depth = 5;
  x.min_width = 3;
  x.max_width = 6;
  x.virtual_replicas = 8;
  x.keeper_every = 4;
  x.keeper_copies = 7;
  x.policy = "throughput";
  x.planning_interval_ms = 1234;
  x.look_ahead = 9;
  x.checkpoint_every = 90;
  x.checkpoints_kept = 10;
  x.resume = {40, "/state/text-1/40@2", "digest"};
  return x;
}

inline checkpoint_manifest sample_manifest() {
  return {.at = {77, {5}},
          .result = {.step = 76, .loss = 1.5, .gradient_norm = 2.5, .clip_factor = 0.5, .learning_rate = 0.25},
          .specification = sample_job(),
          .data_digest = "digest of data",
          .tensors = "tensors",
          .model_layers = 3,
          .layers = {{0, 11}, {2, 0xffff'ffff'ffff'fff1}}};
}

inline job_status sample_job_status() {
  job_status j;
  j.id = 3;
  j.name = "text";
  j.state = "running";
  j.phase = "readying";
  j.problem = "problem";
  j.generation = 9;
  j.steps = 100;
  j.steps_done = 21;
  j.width = 2;
  j.depth = 1;
  j.grid = {"a/0", "a/1"};
  j.grid_incarnations = {{0xdeadbeefdeadbeef}, {3}};
  j.loss = 2.25;
  j.evaluated_steps = 20;
  j.validation_loss = 2.75;
  j.gradient_norm = 0.5;
  j.learning_rate = 0.0003;
  j.step_ms = 80.5;
  j.samples_per_s = 99.4;
  j.protected_steps = 19;
  j.protected_now = true;
  j.replayed_steps = 18;
  j.migrations = {.none = 17, .intra_stage = 14, .inter_stage = 15, .pipeline = 16};
  j.steps_by_depth = {{1, 10}, {2, 20}};
  j.change_count = 8;
  j.changes.push_back({.number = 7,
                       .to = 9,
                       .trigger = "join of a/0",
                       .configuration = "2×1",
                       .kind = "pipeline",
                       .bytes = 100,
                       .replayed_steps = 1,
                       .decided_ms = 1.5,
                       .planned_ms = 2.5,
                       .prepared_ms = 3.5,
                       .stopped_ms = 4.5,
                       .ready_ms = 5.5,
                       .active_ms = 6.5,
                       .first_commit_ms = 7.5,
                       .stall_ms = 12.5,
                       .predicted_ms = 11.5,
                       .plans = 2,
                       .waited = true,
                       .at_us = 40});
  j.chain = {{{1}, 0, 5}, {{2}, 5, UINT64_MAX}};
  j.parameters_sha256 = "0123456789abcdef";
  j.event_count = 1;
  j.events.push_back({6, 42, "warning", "text"});
  j.checkpoint_steps = 90;
  j.checkpoint_folders.push_back({"k", "/state/text-1/90@2"});
  j.checkpoint_problem = "full";
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
  j.losses = {{10, 2.5}, {20, 2.25}};
  j.validation_losses = {{20, 2.75}};
  j.time_left_ms = 1234.5;
  j.keepers = {{"k", 20, 3}};
  j.layers = 4;
  j.configurations.push_back({2, 1, 90.5, 100.5, 95.5, 105.5, 70, 3, true});
  j.layer_costs.push_back({1.5, 2.5, 3.5, 4, 5, 6, 7, 8, {9.5, 10.5, 11.5}});
  j.memory.push_back({"a/0", 1000, 2000});
  j.change_figures = {1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5};
  j.other_ms = 0.25;
  j.detailed = true;
  j.priority = -3;
  j.loss_steps = 21;
  j.idle = "one pipeline is all";
  return j;
}

inline status_reply sample_status() {
  status_reply x;
  x.manager_life = UINT64_MAX;
  x.now_us = 123456789;
  x.news_count = 10;
  x.news.push_back({9, 43, "warning", "news"});
  x.failure_count = 2;
  x.failures.push_back({1, 44, "b", "what", {"one", "two"}, 3});
  x.instances.push_back({"a", {0xdeadbeefdeadbeef}, "worker", "leaving", 2, "127.0.0.1", 4000, "cpu", 5000, 250, 45});
  x.jobs.push_back(sample_job_status());
  return x;
}

/// Of a manager that rents; managers of older builds did not.
inline market_status sample_market() {
  market_status x;
  x.pools = {{"w2a-spot", "us-west-2a", true, 0.918, 3, 2, 1.5, 1.25, "no more"}};
  x.usd = 2.5;
  x.job = 3;
  x.job_usd = 2;
  x.deadline_us = 9;
  x.usd_per_sample = 1e-6;
  x.expected_usd = 7.5;
  x.expected_us = 8;
  x.reserve = true;
  x.why = "2 spot";
  x.runners_up = {"nothing"};
  x.feed = "silent";
  x.hook = "failed";
  x.expected_usd_spread = {6, 7, 9};
  x.expected_us_spread = {7, 8, -1};
  return x;
}

} // namespace parcae
