#pragma once

// A status with something of all that people are shown.

#include "protocols/client/client.hpp"
#include "runtime/view/watch_screen.hpp"

#include <string>

namespace parcae {

/// 12:00:10 local time, 100 s after the manager's machine was started.
inline constexpr moment at{100'000'000, (12 * 3600 + 10) * 1'000'000ll};

inline instance_status instance(const std::string& name, std::uint64_t life, double age_s) {
  instance_status x;
  x.name = name;
  x.incarnation = {life};
  x.role = "worker";
  x.state = "alive";
  x.slots = 1;
  x.age_ms = static_cast<std::uint64_t>(1000 * age_s);
  return x;
}

/// Two pipelines of two stages; b is under notice; c was lost 3 s ago, and another c has joined, which is spare.
inline status_reply sample() {
  status_reply x;
  x.now_us = at.us;
  x.instances = {instance("a", 1, 75), instance("b", 2, 3700), instance("c", 3, 40),
                 instance("c", 4, 2),  instance("d", 5, 20),   instance("k", 6, 90)};
  x.instances[1].state = "leaving";
  x.instances[1].expires_in_ms = 25'000;
  x.instances[2].state = "lost";
  x.instances[2].lost_at_us = at.us - 3'000'000;
  x.instances[5].role = "keeper";
  x.news = {{0, at.us - 75'000'000, "information", "instance a joined as worker with 1 slot at 127.0.0.1:4001"},
            {1, at.us - 5'000'000, "warning", "notice: instance b leaves in 30 s"},
            {2, at.us - 3'000'000, "warning", "instance c is lost: its connection ended or fell silent"},
            {3, at.us - 1'000'000, "error", "instance c failed: ended by SIGSEGV"}};
  x.news_count = 4;
  job_status j;
  j.id = 3;
  j.name = "gpt";
  j.state = "running";
  j.phase = "running";
  j.generation = 7;
  j.steps = 1000;
  j.steps_done = 452;
  j.width = 2;
  j.depth = 2;
  j.grid = {"a/0", "b/0", "c/0", "d/0"};
  j.grid_incarnations = {{1}, {2}, {3}, {5}};
  j.loss = 2.25;
  j.loss_steps = 452;
  for (int i = 0; i < 16; ++i)
    j.losses.push_back({static_cast<std::uint64_t>(28 * (i + 1)), 6.0 - i * 0.25});
  j.evaluated_steps = 450;
  j.validation_loss = 2.5;
  j.validation_losses = {{150, 5}, {300, 3}, {450, 2.5}};
  j.learning_rate = 0.0003;
  j.step_ms = 80.5;
  j.samples_per_s = 99.4;
  j.time_left_ms = 75'000;
  j.protected_steps = 450;
  j.protected_now = true;
  j.layers = 6;
  j.keepers = {{"k", 450, 6}};
  j.checkpoint_steps = 400;
  j.change_count = 3;
  j.migrations = {.intra_stage = 2, .pipeline = 1};
  j.replayed_steps = 1;
  j.changes.push_back({.number = 2,
                       .to = 7,
                       .trigger = "loss of e/0 (instance e is lost)",
                       .configuration = "2×2",
                       .kind = "intra_stage",
                       .replayed_steps = 1,
                       .active_ms = 40,
                       .stall_ms = 35,
                       .at_us = at.us - 20'000'000});
  decision kept, changed;
  changed.number = 4;
  changed.at_us = at.us - 20'000'000;
  changed.chosen.configuration = "2×2";
  changed.reason = "liveput: 2x2, 1.2e+06 samples expected over 12 intervals";
  changed.generation = 7;
  changed.expected_ms = 30;
  kept.number = 5;
  kept.at_us = at.us - 4'000'000;
  kept.reason = "liveput: 2x2 stays, because nothing else is expected to be faster than that within the look-ahead";
  j.decisions = {changed, kept};
  j.events = {{10, at.us - 19'000'000, "information", "journal: not shown"},
              {11, at.us - 18'000'000, "warning", "e/0 is not used for now: it failed"}};
  x.jobs.push_back(j);
  return x;
}

} // namespace parcae
