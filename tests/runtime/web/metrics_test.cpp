// What is counted for Prometheus.

#include "runtime/web/metrics.hpp"
#include "tests/support/client_samples.hpp"
#include "tests/support/names.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

namespace parcae {
namespace {

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream from(text);
  for (std::string line; std::getline(from, line);)
    result.push_back(line);
  return result;
}

std::vector<std::string> told(web_metrics& metrics, const status_reply& x) {
  metrics.heard(x);
  return lines(metrics.text(&x, true, ""));
}

instance_status instance(std::uint64_t life, const std::string& state, std::int64_t expires_in_ms = -1) {
  instance_status x;
  x.name = "w" + std::to_string(life);
  x.incarnation = {life};
  x.role = "worker";
  x.state = state;
  x.slots = 2;
  x.expires_in_ms = expires_in_ms;
  return x;
}

// given: two slots, one slower / expected: its parts of a step, in seconds, all of them; none of a job that ended
TEST(metrics, tell_where_the_time_of_a_step_goes) {
  auto x = sample_status();
  auto& job = x.jobs[0];
  job.step_times = {{{.forward_ms = 4, .pipeline_ms = 6}, "a/0"}, {{.forward_ms = 8, .exchange_ms = 2}, "b/0"}};
  job.slowest_slot = "b/0";
  web_metrics metrics;
  const auto all = told(metrics, x);
  const auto line = [&](const std::string& part, const std::string& value) {
    return "parcae_job_step_seconds{job=\"3\",name=\"text\",part=\"" + part + "\"} " + value;
  };
  EXPECT_THAT(all, Contains(line("forward", "0.008")));
  EXPECT_THAT(all, Contains(line("exchange", "0.002")));
  EXPECT_THAT(all, Contains(line("pipeline", "0")));
  EXPECT_THAT(all, Contains(HasSubstr("parcae_job_step_seconds{")).Times(step_part_count));
  job.state = "done";
  EXPECT_THAT(told(metrics, x), Not(Contains(HasSubstr("parcae_job_step_seconds{"))));
}

// given: the sample / expected: each metric of it, as Prometheus reads it; of names only what is no text of ours
TEST(metrics, have_what_status_has) {
  auto x = sample_status();
  x.instances[0].gpus = {{"cuda:0", 97, 64, "power", 3, 1, 63, ""}};
  x.jobs[0].name = "a \"b\"\n\\c";
  x.jobs[0].phase = "running";
  x.jobs[0].samples_per_s = 100;
  x.jobs[0].global_batch = 8;
  x.warning = "it ends";
  web_metrics metrics;
  const auto all = told(metrics, x);
  const std::string who = R"({job="3",name="a \"b\"\n\\c"})";
  for (const auto& line :
       {"parcae_manager_up 1", "parcae_certificate_ending{of=\"manager\"} 1", "parcae_certificate_ending{of=\"web\"} 0",
        "parcae_instances{role=\"worker\",state=\"leaving\"} 1", "parcae_instances{role=\"worker\",state=\"alive\"} 0",
        "parcae_gpu_busy_ratio{name=\"a\",gpu=\"cuda:0\"} 0.97", "parcae_gpu_celsius{name=\"a\",gpu=\"cuda:0\"} 64",
        "parcae_gpu_throttled{name=\"a\",gpu=\"cuda:0\"} 1",
        "parcae_gpu_memory_errors_corrected{name=\"a\",gpu=\"cuda:0\"} 3",
        "parcae_gpu_memory_errors_uncorrected{name=\"a\",gpu=\"cuda:0\"} 1",
        "parcae_gpu_xid{name=\"a\",gpu=\"cuda:0\"} 63", "parcae_slots{use=\"training\"} 2",
        "parcae_slots{use=\"spare\"} 0"})
    EXPECT_THAT(all, Contains(line));
  EXPECT_THAT(all, Contains(testing::AllOf(HasSubstr("parcae_build_info{build=\""), HasSubstr(", protocol "))));
  EXPECT_THAT(all, Not(Contains(HasSubstr("instance=\"")))) << "a label of Prometheus' own";
  for (const auto& [name, value] : std::map<std::string, std::string>{{"job_running", "1"},
                                                                      {"job_steps_total", "21"},
                                                                      {"job_samples_total", "168"},
                                                                      {"job_steps_replayed_total", "18"},
                                                                      {"job_steps_wanted", "100"},
                                                                      {"job_loss", "2.25"},
                                                                      {"job_validation_loss", "2.75"},
                                                                      {"job_samples_per_second", "100"},
                                                                      {"job_protected", "1"},
                                                                      {"protected_step", "19"},
                                                                      {"checkpoint_step", "90"},
                                                                      {"checkpoint_failures_total", "1"}})
    EXPECT_THAT(all, Contains("parcae_" + name + who + " " + value));
  EXPECT_THAT(all, Contains("# TYPE parcae_stall_seconds histogram"));
  EXPECT_THAT(all, Contains(HasSubstr("kind=\"pipeline\",le=\"0.01\"} 0")));
  EXPECT_THAT(all, Contains(HasSubstr("kind=\"pipeline\",le=\"0.025\"} 1")));
  EXPECT_THAT(all, Contains(HasSubstr("kind=\"pipeline\",le=\"+Inf\"} 1")));
  EXPECT_THAT(lines(metrics.text(nullptr, false, "it ends")),
              testing::AllOf(Contains("parcae_manager_up 0"), Contains("parcae_certificate_ending{of=\"web\"} 1")));
}

// given: a job that serves / expected: how requests fare, and nothing of steps, on whose absence alerts are
TEST(metrics, tell_how_requests_fare) {
  auto x = sample_status();
  auto& job = x.jobs[0];
  job.kind = "serve";
  job.requests = {.queued = 3,
                  .running = 16,
                  .answered = 40,
                  .refused = 2,
                  .failed = 1,
                  .tokens = 900,
                  .recomputed = 64,
                  .first_token = {20, 250},
                  .between_tokens = {1.5, 12}};
  web_metrics metrics;
  const auto all = told(metrics, x);
  const std::string who = R"(job="3",name="text")";
  for (const auto& line :
       {"parcae_job_running{" + who + "} 1", "parcae_requests{" + who + ",state=\"queued\"} 3",
        "parcae_requests{" + who + ",state=\"running\"} 16", "parcae_requests_total{" + who + ",end=\"answered\"} 40",
        "parcae_requests_total{" + who + ",end=\"refused\"} 2", "parcae_requests_total{" + who + ",end=\"failed\"} 1",
        "parcae_tokens_total{" + who + "} 900", "parcae_positions_recomputed_total{" + who + "} 64",
        "parcae_first_token_seconds{" + who + ",quantile=\"0.99\"} 0.25",
        "parcae_token_seconds{" + who + ",quantile=\"0.5\"} 0.0015"})
    EXPECT_THAT(all, Contains(line));
  EXPECT_THAT(all, Not(Contains(HasSubstr("parcae_job_steps_total{"))));
  EXPECT_THAT(all, Not(Contains(HasSubstr("parcae_job_protected{"))));
  EXPECT_THAT(all, Contains(HasSubstr("parcae_stall_seconds_count{" + who)));
}

// given: a member that names two GPUs alike / expected: each series stands once, as Prometheus refuses the page else
TEST(metrics, name_a_gpu_once) {
  auto x = sample_status();
  x.instances[0].gpus = {{"cuda:0", 97, 64, "", 0, 0, 0, ""}, {"cuda:0", 5, 30, "", 0, 0, 0, ""}};
  web_metrics metrics;
  EXPECT_THAT(told(metrics, x), Contains(HasSubstr("parcae_gpu_celsius{")).Times(1));
}

// given: all metrics of the sample / expected: deploy/monitoring/README.md names each, of a job by its end alone
TEST(metrics, are_in_the_readme) {
  auto x = sample_status();
  x.instances[0].gpus = {{"cuda:0", 97, 64, "power", 3, 1, 63, ""}};
  x.jobs[0].phase = "running";
  x.jobs[0].global_batch = 8;
  x.jobs[0].step_times = {{{.forward_ms = 4}, "a/0"}};
  x.jobs[0].slowest_slot = "a/0";
  x.market.pools.resize(1);
  std::ostringstream readme;
  readme << std::ifstream{PARCAE_METRICS_README}.rdbuf();
  web_metrics metrics;
  const std::string type = "# TYPE ", of_job = "parcae_job";
  std::size_t count = 0;
  auto all = told(metrics, x);
  x.jobs[0].kind = "serve";
  std::ranges::copy(told(metrics, x), std::back_inserter(all));
  for (const auto& line : all)
    if (line.starts_with(type)) {
      const auto name = line.substr(type.size(), line.rfind(' ') - type.size());
      auto named = HasSubstr("`" + name);
      EXPECT_TRUE(
          testing::Matches(named)(readme.str()) ||
          (name.starts_with(of_job) && testing::Matches(HasSubstr("`" + name.substr(of_job.size())))(readme.str())))
          << name << " is not in the table of deploy/monitoring/README.md";
      ++count;
    }
  EXPECT_GE(count, 20u);
}

// given: an instance that is lost, one that is lost after a notice, seen again and again; the same of a manager that
// came back / expected: each counts once
TEST(metrics, count_each_loss_once) {
  const std::string with = "parcae_preemptions_total{notice=\"yes\"} ";
  const std::string without = "parcae_preemptions_total{notice=\"no\"} ";
  web_metrics metrics;
  status_reply x;
  x.manager_life = 1;
  x.instances = {instance(1, "alive"), instance(2, "alive")};
  EXPECT_THAT(told(metrics, x), testing::AllOf(Contains(with + "0"), Contains(without + "0")));
  x.instances = {instance(1, "lost"), instance(2, "leaving", 5000)};
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT(told(metrics, x), testing::AllOf(Contains(with + "0"), Contains(without + "1")));
  x.instances = {instance(1, "lost"), instance(2, "lost"), instance(3, "lost", 0)};
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT(told(metrics, x), testing::AllOf(Contains(with + "2"), Contains(without + "1")));
}

// given: a change that gets its stall later, a job that goes back, a checkpoint that fails, again, and then for another
// reason / expected: what is counted never becomes less, and counts once
TEST(metrics, count_over_statuses) {
  web_metrics metrics;
  auto x = sample_status();
  auto& job = x.jobs[0];
  const std::string who = "{job=\"3\",name=\"text\"} ";
  job.changes[0].stall_ms = -1;
  job.checkpoint_problem.clear();
  EXPECT_THAT(told(metrics, x), Not(Contains(HasSubstr("parcae_stall_seconds_count"))));
  job.changes[0].stall_ms = 200;
  job.steps_done = 15;
  for (const auto* problem : {"full", "full", "", "slow"}) {
    job.checkpoint_problem = problem;
    const auto all = told(metrics, x);
    EXPECT_THAT(all, Contains("parcae_stall_seconds_count{job=\"3\",name=\"text\",kind=\"pipeline\"} 1"));
    EXPECT_THAT(all, Contains("parcae_stall_seconds_sum{job=\"3\",name=\"text\",kind=\"pipeline\"} 0.2"));
    EXPECT_THAT(all, Contains("parcae_job_steps_total" + who + "21"));
  }
  EXPECT_THAT(told(metrics, x), Contains("parcae_checkpoint_failures_total" + who + "2"));
  x.manager_life = 7; // its jobs are others
  job.steps_done = 4;
  EXPECT_THAT(told(metrics, x), Contains("parcae_job_steps_total" + who + "4"));
}

// given: of a job the changes of the last 100 s, with stalls of 20 s and 5 steps of 2 s computed again, and many more
// before; one that waits for 10 s more; 2 steps more / expected: the share of these 100 s that is left
TEST(metrics, have_the_share_of_time_trained) {
  web_metrics metrics;
  auto x = sample_status();
  auto& job = x.jobs[0];
  x.now_us = 200'000'000;
  job.phase = "running";
  job.changes[0].at_us = 100'000'000;
  job.changes[0].stall_ms = 20'000;
  job.changes[0].replayed_steps = 5;
  job.replayed_steps = 5005;
  job.step_ms = 2000;
  EXPECT_THAT(told(metrics, x), Contains("parcae_job_goodput_ratio{job=\"3\",name=\"text\"} 0.7"));
  job.changes.push_back(job.changes[0]);
  job.changes[1].number = 8;
  job.changes[1].replayed_steps = 0;
  job.changes[1].at_us = 190'000'000;
  job.changes[1].stall_ms = -1;
  job.phase = "waiting";
  EXPECT_THAT(told(metrics, x), Contains(HasSubstr("parcae_job_goodput_ratio{job=\"3\",name=\"text\"} 0.6")));
  job.changes.erase(job.changes.begin()); // the manager keeps the newest alone
  EXPECT_THAT(told(metrics, x), Contains(HasSubstr("parcae_job_goodput_ratio{job=\"3\",name=\"text\"} 0.6")));
  job.changes.back().replayed_steps += 2;
  job.replayed_steps += 2;
  EXPECT_THAT(told(metrics, x), Contains(HasSubstr("parcae_job_goodput_ratio{job=\"3\",name=\"text\"} 0.56")));
}

// given: what instances cost; a manager that rents none / expected: told; not told
TEST(metrics, have_the_cost) {
  web_metrics metrics;
  auto x = sample_status();
  x.market.pools.resize(1);
  x.market.usd = 12.5;
  EXPECT_THAT(told(metrics, x), Contains("parcae_cost_dollars_total 12.5"));
  x.market.pools.clear();
  EXPECT_THAT(told(metrics, x), testing::Not(Contains(HasSubstr("parcae_cost"))));
}

// given: 1,000 jobs that have ended, 10 that wait, 1,000 instances / expected: no more series than for a few
TEST(metrics, are_bounded) {
  web_metrics metrics;
  status_reply x;
  for (std::uint64_t i = 1; i <= 1010; ++i) {
    auto job = sample_job_status();
    job.id = i;
    job.state = i <= 1000 ? "done" : "queued";
    x.jobs.push_back(job);
    x.instances.push_back(instance(i, "lost"));
  }
  const auto all = told(metrics, x);
  EXPECT_LT(all.size(), (web_metrics::max_ended + 10) * 50 + 50);
  EXPECT_THAT(all, Contains(HasSubstr("parcae_job_running{job=\"1000\"")));
  EXPECT_THAT(all, Contains(HasSubstr("parcae_job_running{job=\"1010\"")));
  EXPECT_THAT(all, Not(Contains(HasSubstr("parcae_job_running{job=\"984\""))));
}

} // namespace
} // namespace parcae
