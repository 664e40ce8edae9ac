// What `status` prints: text, one line a job, JSON.

#include "runtime/view/status_json.hpp"
#include "runtime/view/status_text.hpp"
#include "runtime/view/step_times.hpp"
#include "tests/runtime/view/sample_status.hpp"
#include "tests/support/client_samples.hpp"
#include "tests/support/names.hpp"

#include <algorithm>
#include <limits>

namespace parcae {
namespace {

// given: a status with commands for terminals, line breaks and marks of direction in every text / expected: the same
// lines as with harmless texts, and none of it; JSON has it, escaped
TEST(status_text, foreign_text_is_made_printable) {
  const auto filled_with = [](const std::string& text) {
    status_reply x;
    x.instances.push_back({text, 1, text, "alive", 1, text, 1, text, 1, -1, -1});
    job_status j;
    j.id = 1;
    j.name = j.phase = j.problem = j.parameters_sha256 = j.checkpoint_problem = text;
    j.state = "running";
    j.grid = {text};
    j.grid_incarnations = {{1}};
    j.width = j.depth = 1;
    j.detailed = true;
    change_status change;
    change.trigger = change.configuration = change.kind = text;
    j.changes = {change};
    j.events = {{0, 0, "warning", text}};
    j.checkpoint_steps = 1;
    j.checkpoint_folders = {{text, text}};
    decision d;
    d.trigger = d.policy = d.reason = d.chosen.configuration = text;
    d.runners_up = {{text, 1}};
    j.decisions = {d};
    j.keepers = {{text, 1, 1}};
    j.memory = {{text, 1, 1}};
    x.jobs.push_back(j);
    x.news = {{0, 0, text, text}};
    x.failures = {{0, 0, text, text, {text, text}, 1}};
    return x;
  };
  const auto plain = to_string(filled_with("a name of twelve"));
  const auto foreign = filled_with("a\x1b[2J\xc2\x9b\xe2\x80\xae\n\r\xff_of12");
  const auto shown = to_string(foreign);
  EXPECT_EQ(std::ranges::count(shown, '\n'), std::ranges::count(plain, '\n'));
  for (const auto* part : {"\x1b", "\xc2\x9b", "\xe2\x80\xae", "\r", "\xff"})
    EXPECT_THAT(shown, testing::Not(HasSubstr(part)));
  EXPECT_THAT(json_of(foreign), HasSubstr("a\\u001"));
}

// given: a status / expected: text that names what matters
TEST(status_text, shows_everything) {
  status_reply x;
  job_status j;
  j.id = 3;
  j.state = "running";
  j.phase = "readying";
  j.generation = 2;
  j.width = 2;
  j.depth = 1;
  j.grid = {"a/0", "b/0"};
  decision d;
  d.trigger = "join of a/0";
  d.reason = "liveput: 2x1";
  d.expected_ms = 12;
  d.realised_ms = 9;
  j.decisions.push_back(d);
  x.jobs.push_back(j);
  instance_status i;
  i.name = "a";
  i.state = "leaving";
  i.expires_in_ms = 1500;
  x.instances.push_back(i);
  auto text = to_string(x);
  EXPECT_THAT(text, HasSubstr("pipeline 1: b/0"));
  EXPECT_THAT(text, HasSubstr("join of a/0: liveput: 2x1; 12ms stall expected, 9ms measured"));
  EXPECT_THAT(text, HasSubstr("  no keeper, so not protected: start one with parcae-node --role keeper\n"));
  EXPECT_THAT(text, HasSubstr("leaving in 1s"));
}

// given: a job that serves, by a gateway with one that stands by / expected: where it answers, how requests fare, and
// nothing of steps, losses and keepers
TEST(status_text, tells_how_requests_fare) {
  status_reply x;
  job_status j;
  j.id = 3;
  j.name = "chat";
  j.kind = "serve";
  j.state = "running";
  j.phase = "running";
  j.generation = 2;
  j.steps = 100;
  j.width = 2;
  j.depth = 1;
  j.grid = {"a/0", "b/0"};
  j.gateway = "g";
  j.http = "http://127.0.0.1:8000";
  j.gateways = 2;
  j.cache_blocks = 100;
  j.free_blocks = 25;
  j.requests = {.queued = 1,
                .running = 3,
                .answered = 10,
                .refused = 2,
                .failed = 1,
                .tokens = 500,
                .recomputed = 7,
                .broken = 1,
                .arrivals_per_s = 2.5,
                .tokens_per_s = 120,
                .first_token = {12, 40},
                .between_tokens = {3, 9}};
  x.jobs.push_back(j);
  const auto text = to_string(x);
  EXPECT_THAT(text, HasSubstr("job 3 chat: running, generation 2, 2×1, 120 tokens/s, 3 requests running, 1 queued\n"));
  EXPECT_THAT(text, HasSubstr("  answers at http://127.0.0.1:8000 (g), 1 other gateway standing by\n"));
  EXPECT_THAT(text, HasSubstr("  10 requests answered, 2 refused, 1 failed; 500 tokens; 1 pipeline broke, 7 positions "
                              "computed again; caches 75 % full\n"));
  EXPECT_THAT(text, HasSubstr("  first token after 12ms (p99 40ms), then each 3ms (p99 9ms); 2.5 requests/s\n"));
  for (const char* word : {"step ", "loss", "keeper", "samples"})
    EXPECT_THAT(text, Not(HasSubstr(word)));
  EXPECT_THAT(overview_of(x, false),
              HasSubstr("job 3 chat: running, 2×1, 120 tokens/s, 3 requests running, 1 queued\n"));
}

// given: GPUs that are well, slow and faulty, not known; those of one that is lost / expected: a line each, of what is
// known; none of the last
TEST(status_text, tells_of_gpus) {
  status_reply x;
  x.instances.resize(2);
  x.instances[0].state = "alive";
  x.instances[0].gpus = {{"cuda:0", 97, 64, "", 0, 0, 0, ""},
                         {"cuda:1", 0, 88, "temperature, power", 3, 0, 63, ""},
                         {"cuda:2", -1, -1, "", -1, -1, 0, "not known: NVML says: Not Found"},
                         {"cuda:3", -1, -1, "", -1, 1, 0, ""}};
  x.instances[1] = x.instances[0];
  x.instances[1].state = "lost";
  EXPECT_THAT(to_string(x, true), HasSubstr(" ago\n  cuda:0: 97 % busy, 64 °C\n"
                                            "  cuda:1: 0 % busy, 88 °C, slowed by temperature, power, "
                                            "3 memory errors, XID 63\n"
                                            "  cuda:2: not known: NVML says: Not Found\n"
                                            "  cuda:3: 1 memory error (1 not corrected)\ninstance "));
}

// given: keepers that hold one copy, as asked for; two; one of two / expected: the last two are told, with the reason
TEST(status_text, tells_of_copies) {
  status_reply x;
  auto& job = x.jobs.emplace_back();
  job.state = "running";
  job.keepers = {{"k", 450, 6}};
  job.protected_steps = 450;
  job.steps_done = 451;
  job.protected_now = true;
  job.copies = 1;
  EXPECT_THAT(to_string(x), HasSubstr("keepers hold step 450, 1 step behind\n"));
  job.copies = 2;
  job.copied_steps = 440;
  EXPECT_THAT(to_string(x), HasSubstr("keepers hold step 450, 1 step behind, 2 copies of step 440\n"));
  job.copies = 1;
  job.copies_problem = "there is 1 keeper";
  EXPECT_THAT(to_string(x), HasSubstr("keepers hold step 450, 1 step behind, 1 copy of step 440: there is 1 keeper\n"));
}

// given: what a status has for those who watch, and last words / expected: they are in the text
TEST(status_text, shows_the_course_and_last_words) {
  status_reply x;
  x.now_us = 5'000'000;
  job_status j;
  j.id = 1;
  j.detailed = true;
  j.state = "running";
  j.steps = 100;
  j.width = j.depth = 1;
  j.grid = {"a/0"};
  j.grid_incarnations = {{10}};
  j.time_left_ms = 65'000;
  j.keepers = {{"k", 20, 3}};
  j.layers = 4;
  x.jobs.push_back(j);
  x.failures.push_back({0, 3'000'000, "b", "ended by SIGSEGV", {"first line", "last line"}, 1, true});
  x.failures.push_back({1, 3'000'000, "c", "of another job", {}, 7});
  x.failures.push_back({2, 3'000'000, "d", "of none", {}, 0});
  const auto text = to_string(x);
  EXPECT_THAT(text, HasSubstr("1m05s left"));
  EXPECT_THAT(text, HasSubstr("k: step 20, 3 of 4 layers"));
  EXPECT_THAT(text, HasSubstr("instance b failed 2s ago: ended by SIGSEGV\n  first line\n  last line\n"));
  EXPECT_THAT(text, Not(HasSubstr("of another job")));
  EXPECT_THAT(text, HasSubstr("of none"));
}

// given: a job before its first step, one that diverged / expected: "-" and "not finite", and null in JSON
TEST(status_text, a_loss_that_there_is_not) {
  job_status x;
  x.generation = 1;
  EXPECT_EQ(loss_of(x), "-");
  EXPECT_THAT(summary_of(x), HasSubstr("loss -"));
  const auto in_json = [&] {
    status_reply all;
    all.jobs = {x};
    return json_of(all);
  };
  EXPECT_THAT(in_json(), HasSubstr("\"loss\":null"));
  x.loss_steps = 0;
  EXPECT_EQ(loss_of(x), "0.0000");
  EXPECT_THAT(in_json(), HasSubstr("\"loss\":0"));
  x.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(loss_of(x), "not finite");
}

// given: a job that is done, with steps left or without / expected: an early end, and why
TEST(status_text, an_early_end_is_explained) {
  job_status x;
  x.state = "done";
  x.steps = 100;
  x.steps_done = 100;
  EXPECT_EQ(early_end_of(x), "");
  x.steps_done = 40;
  status_reply all;
  all.jobs = {x};
  for (const auto& text : {to_string(all), overview_of(all, false)})
    EXPECT_THAT(text, HasSubstr(": done early, as validation got no better (job.patience), step 40/100"));
  x.state = "cancelled";
  EXPECT_EQ(early_end_of(x), "");
}

// given: a job that runs with a keeper, or without; with a checkpoint, without, or with one that failed / expected:
// where the job is shown it is said what would be lost, and nothing where little would
TEST(status_text, what_would_be_lost_is_said) {
  auto x = sample();
  auto& job = x.jobs[0];
  const auto expect = [&](const auto& what) {
    for (const auto& text : {to_string(x), overview_of(x, false)})
      EXPECT_THAT(text, what);
  };
  expect(Not(HasSubstr("protected:")));
  job.not_on_disk = "no checkpoint is on disk, though one was due after 30m";
  expect(HasSubstr("\n  no checkpoint is on disk, though one was due after 30m\n"));
  job.checkpoint_problem = "step 400: the disk is full";
  expect(HasSubstr("\n  step 400: the disk is full\n"));
  job.keepers.clear();
  expect(HasSubstr("\n  no keeper, so not protected: start one with parcae-node --role keeper\n"));
  expect(Not(HasSubstr("though one was due"))); // of which that is the cause
  for (const auto* phase : {"", "recovering"}) {
    job.phase = phase;
    expect(Not(HasSubstr("no keeper"))); // nothing is known yet
  }
  job.phase = "running";
  job.state = "failed";
  expect(Not(HasSubstr("no keeper")));
}

// given: nobody is there, and a job runs on, or its manager has just come back / expected: what to do, or that they
// come
TEST(status_text, expects_instances_back) {
  auto x = sample();
  x.instances.clear();
  EXPECT_THAT(to_string(x), HasSubstr("no instances; start some with `parcae-node`\n"));
  x.jobs[0].phase = "recovering";
  EXPECT_THAT(to_string(x), HasSubstr("no instances yet: those that are there dial again\n"));
}

// given: a job in a phase that is called as its state is / expected: once
TEST(status_text, says_nothing_twice) {
  auto x = sample();
  EXPECT_THAT(to_string(x), HasSubstr("job 3 gpt: running, step 452/1000"));
  x.jobs[0].phase = "stopping";
  EXPECT_THAT(to_string(x), HasSubstr("job 3 gpt: running, stopping, step 452/1000"));
}

// given: a disk that cannot keep up, and one that nearly can / expected: the file is named, where the job is shown
TEST(status_text, what_steps_wait_for_is_named) {
  auto x = sample();
  x.jobs[0].step_ms = 100;
  x.jobs[0].data_wait_ms = 12;
  x.jobs[0].data_wait_for = "a/0: /data/tokens.bin";
  for (const auto& text : {to_string(x), overview_of(x, false)})
    EXPECT_THAT(text, HasSubstr("  waits 12.0 ms a step for data: a/0: /data/tokens.bin\n"));
  x.jobs[0].data_wait_ms = 0.9;
  EXPECT_THAT(to_string(x), Not(HasSubstr("for data")));
}

// given: two slots, one of which waits for the other; one slot / expected: shares of the step, of the mean and of the
// slowest one; of that alone; nothing while nobody has told
TEST(status_text, where_the_time_of_a_step_goes) {
  auto x = sample();
  EXPECT_EQ(step_times_of(x.jobs[0]), "");
  x.jobs[0].step_times = {{{.forward_ms = 40, .pipeline_ms = 160}, "a/0"},
                          {{.forward_ms = 120, .exchange_ms = 79.99, .other_ms = 0.01}, "b/0"}};
  x.jobs[0].slowest_slot = "b/0";
  EXPECT_THAT(to_string(x), HasSubstr("  a step takes 200.0 ms: 2 slots, slowest b/0 (waits least for others)\n"
                                      "    forward     40.0 %    60.0 % of b/0\n"
                                      "    pipeline    40.0 %     0.0 % of b/0\n"
                                      "    exchange    20.0 %    40.0 % of b/0\n"));
  x.jobs[0].step_times.erase(x.jobs[0].step_times.begin());
  EXPECT_EQ(step_times_of(x.jobs[0]), "  a step takes 200.0 ms\n    forward     60.0 %\n    exchange    40.0 %\n");
}

// given: a job of each type of sums, and of a build that does not tell / expected: what is not the usual is said
TEST(status_text, sums_in_bfloat16_are_said) {
  auto x = sample();
  for (const auto* sums : {"", "float32", "bfloat16"}) {
    x.jobs[0].gradient_sums = sums;
    EXPECT_EQ(to_string(x).find("  gradients are summed in bfloat16\n") != std::string::npos,
              std::string(sums) == "bfloat16");
  }
}

// given: a job on TCP as it should be, on TCP for want of NCCL, on NCCL / expected: nothing, the reason, the device;
// of links that could be better the reason once
TEST(status_text, what_moves_tensors_is_said_if_it_is_not_the_usual) {
  auto x = sample();
  x.jobs[0].transport = {"tcp", "cpu", {}};
  EXPECT_THAT(to_string(x), Not(HasSubstr("tensors move")));
  x.jobs[0].transport = {"tcp", "NVIDIA H200", "a/0: the communicator before is not ended"};
  EXPECT_THAT(to_string(x), HasSubstr("  tensors move by TCP: a/0: the communicator before is not ended\n"));
  x.jobs[0].transport = {"nccl", "NVIDIA H200", {}};
  EXPECT_THAT(to_string(x), HasSubstr("  tensors move by NCCL (NVIDIA H200)\n"));
  x.jobs[0].links = {{"activations", "nccl", {}}, {"shards", "tcp", "they move before NCCL is made"}};
  EXPECT_THAT(to_string(x), HasSubstr("  tensors move by NCCL (NVIDIA H200)\n"
                                      "  shards by TCP: they move before NCCL is made\n"));
  x.jobs[0].transport = {"tcp", "NVIDIA H200", "a/0: too late"};
  x.jobs[0].links = {{"all-reduce", "tcp", "1 link between machines; a/0: too late"}};
  EXPECT_THAT(to_string(x), HasSubstr("  all-reduce by TCP: 1 link between machines; a/0: too late\n"));
  EXPECT_THAT(to_string(x), Not(HasSubstr("tensors move")));
  x.jobs[0].links = {{"shards", "peer", "1 link between slots of one process; a/0: not directly"}};
  EXPECT_THAT(to_string(x), HasSubstr("  shards by copies from GPU to GPU: 1 link between slots of one process; "));
}

// given: jobs that ended, one that runs, one that waits, an instance that is lost / expected: a line for each that
// counts; with --all for each
TEST(status_text, an_overview_has_one_line_per_job) {
  auto x = sample();
  x.jobs[0].idle = "1 slot idle: too few for another pipeline of 2 stages";
  job_status old, next;
  old.id = 1;
  old.name = "old";
  old.state = "done";
  next.id = 4;
  next.name = "next";
  next.state = "queued";
  next.problem = "waits for job 3 (gpt), which runs";
  x.jobs = {old, x.jobs[0], next};
  const auto brief = overview_of(x, false), all = overview_of(x, true);
  EXPECT_THAT(brief, HasSubstr("job 3 gpt: running, step 452/1000, loss 2.2500"));
  EXPECT_THAT(brief, HasSubstr("  1 slot idle: too few"));
  EXPECT_THAT(brief, HasSubstr("job 4 next: queued, step 0/0; waits for job 3 (gpt), which runs\n"));
  EXPECT_THAT(brief, HasSubstr("1 job more that has ended: `parcae status --all`"));
  EXPECT_THAT(brief, Not(HasSubstr("job 1 old")));
  EXPECT_THAT(brief, Not(HasSubstr("lost")));
  EXPECT_THAT(brief, Not(HasSubstr("pipeline 0")));
  EXPECT_THAT(all, HasSubstr("job 1 old: done"));
  EXPECT_THAT(all, HasSubstr("instance c (worker, 1 slot): lost 3s ago"));
  x.jobs = {old};
  EXPECT_THAT(overview_of(x, false), HasSubstr("job 1 old: done")) << "the last thing that happened";
}

// given: a failure that all nodes tell alike, another of one / expected: the first is not blamed on a node
TEST(status_text, what_all_say_is_not_of_one) {
  status_reply x;
  x.now_us = 5'000'000;
  x.failures = {{0, 3'000'000, "a", "a/0: data /no/text: no such file", {"a's log"}, 0},
                {1, 3'000'000, "b", "ended by SIGSEGV", {}, 0, true},
                {3, 3'000'000, "k", "the disk is full", {}, 0},
                {2, 3'000'000, "c", "c/1: data /no/text: no such file", {"c's log"}, 0}};
  const auto text = to_string(x);
  EXPECT_THAT(text, HasSubstr("data /no/text: no such file (2s ago, say instances a, c)\n  a's log\n"));
  EXPECT_THAT(text, HasSubstr("instance b failed 2s ago: ended by SIGSEGV\n"));
  EXPECT_THAT(text, HasSubstr("instance k reported 2s ago: the disk is full\n")) << "it lives";
  EXPECT_THAT(text, Not(HasSubstr("c failed")));
}

// given: a manager that rents, and one that does not / expected: what is held, what it cost, what is expected, and why;
// nothing
TEST(status_text, tells_of_the_market) {
  auto x = sample_status();
  EXPECT_EQ(market_text(x), "");
  EXPECT_THAT(overview_of(x, false), testing::Not(testing::HasSubstr("market")));
  x.market = sample_market();
  x.wall_us = 1'000'000'000'000;
  x.market.expected_us = x.wall_us + 3'600'000'000;
  x.market.expected_us_spread.p10 = x.wall_us + 3'000'000'000;
  x.market.deadline_us = x.wall_us - 60'000'000;
  EXPECT_EQ(market_text(x),
            "market: 2 of 3 w2a-spot; $2.50 spent, $2.00 on job 3; $7.50 more expected (8 of 10: $6.00 to $9.00), the "
            "end in 1h00m (8 of 10: in 50m00s to never), the deadline 1m00s ago");
  x.market.expected_us_spread.p90 = x.wall_us + 7'200'000'000;
  EXPECT_THAT(market_text(x), testing::HasSubstr("in 50m00s to in 2h00m)"));
  x.market.expected_us_spread = {};
  EXPECT_THAT(market_text(x), testing::HasSubstr("$7.50 more expected, the end in 1h00m, the deadline"));
  const auto all = overview_of(x, false);
  for (const auto* line : {"  2 spot\n", "  silent\n", "  failed\n", "  w2a-spot: no more\n"})
    EXPECT_THAT(all, testing::HasSubstr(line));
}

} // namespace
} // namespace parcae
