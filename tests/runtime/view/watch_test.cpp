// What `watch` shows, without a terminal: exact screens, events, plain lines.

#include "protocols/base/duration.hpp"
#include "protocols/base/text.hpp"
#include "runtime/view/screen_text.hpp"
#include "runtime/view/status_text.hpp"
#include "tests/runtime/view/sample_status.hpp"
#include "tests/support/names.hpp"

#include <limits>

namespace parcae {
namespace {

std::vector<std::string> lines_of(const std::vector<screen_line>& x) {
  std::vector<std::string> result;
  for (const auto& line : x) {
    auto text = to_string(line);
    result.push_back(text.substr(0, text.find_last_not_of(' ') + 1));
  }
  return result;
}

std::string joined(const std::vector<screen_line>& x) {
  std::string result;
  for (const auto& line : lines_of(x))
    result += line + "\n";
  return result;
}

look look_of(const std::vector<screen_line>& x, const std::string& text) {
  for (const auto& line : x)
    for (const auto& p : line)
      if (p.text.find(text) != std::string::npos)
        return p.how;
  ADD_FAILURE() << "nothing shows " << text;
  return look::plain;
}

// given: letters in more bytes than needed, half of a surrogate pair / expected: no character, and no such bytes
TEST(screen_text, bytes_that_are_no_character_are_not_shown) {
  EXPECT_EQ(clean("a\xc1\x81z"), "a?z");
  EXPECT_EQ(clean("\xed\xa0\x80"), "?");
  EXPECT_EQ(clean("×"), "×");
}

// given: a job in full swing, 80×24 / expected: exactly this
TEST(watch_screen, small) {
  EXPECT_EQ(joined(render(sample(), 3, at, {80, 24})),
            R"(job 3 gpt  running                                             12:00:10  q: quit
████████████████████░░░░░░░░░░░░░░░░░░░░░░░░░░  45.2%  step 452/1000  1m15s left
generation 7  2×2  99.4 samples/s  80.5 ms/step  learning rate 0.0003
training    2.2500   ██▇▇▆▆▅▅▄▄▃▃▂▂▁▁  2.2500 to 6.0000
validation  2.5000   █▂▁  2.5000 to 5.0000
keepers     k step 450  protected  checkpoint of step 400
changes     3: 2 intra-stage, 1 pipeline; 1 step replayed
plan        liveput: 2x2 stays, because nothing else is expected to be faster
            than that within the look-ahead
2×2         stage 0               stage 1
pipeline 0  a/0 1m15s             b/0 1h01m notice 25s
pipeline 1  c/0 lost 3s ago       d/0 20s
spare       c 2s
lost        c lost 3s ago
11:58:55  instance a joined as worker with 1 slot at 127.0.0.1:4001
11:59:50  decision for 2×2: liveput: 2x2, 1.2e+06 samples expected over 12
          intervals; 30ms stall expected
11:59:50  2×2 after loss of e/0 (instance e is lost): intra-stage, 35ms stall, 1
          step replayed
11:59:52  e/0 is not used for now: it failed
12:00:05  notice: instance b leaves in 30 s
12:00:07  instance c is lost: its connection ended or fell silent
12:00:09  instance c failed: ended by SIGSEGV
)");
}

// given: one under notice, whose slot is still needed, one at risk, each with what its cloud says, and one that is gone
// / expected: what is to be done by when, and what may come, in lines of their own and in the grid; likewise in
// `status`
TEST(watch_screen, what_is_to_be_done_by_when) {
  auto x = sample();
  x.instances[0].warning = "AWS: rebalance recommendation of 2026-11-22T11:59:00Z";
  x.instances[1].warning = "AWS: instance-action terminate at 2026-11-22T12:00:35Z";
  x.instances[1].slots_needed = 1;
  x.instances[2].warning = "of one that is gone";
  const auto screen = render(x, 3, at, {120, 30});
  const auto text = joined(screen);
  EXPECT_THAT(text, HasSubstr("\nleaving     b in 25s, 1 slot to be moved by then (AWS: instance-action terminate at "
                              "2026-11-22T12:00:35Z)\n"));
  EXPECT_THAT(text, HasSubstr("\nat risk     a (AWS: rebalance recommendation of 2026-11-22T11:59:00Z)\n"));
  EXPECT_THAT(text, HasSubstr("a/0 1m15s at risk"));
  EXPECT_THAT(text, Not(HasSubstr("gone")));
  EXPECT_EQ(look_of(screen, "to be moved"), look::warning);
  EXPECT_EQ(look_of(screen, "a/0"), look::warning);
  const auto status = to_string(x, false);
  EXPECT_THAT(status, HasSubstr("instance b (worker, 1 slot): leaving in 25s, 1 slot to be moved by then (AWS: "
                                "instance-action terminate at 2026-11-22T12:00:35Z), joined 1h01m ago\n"));
  EXPECT_THAT(status, HasSubstr("instance a (worker, 1 slot): alive, at risk (AWS: rebalance recommendation of "
                                "2026-11-22T11:59:00Z), joined 1m15s ago\n"));
}

// given: the same, 200×50 / expected: space between parts, higher curves, whole reasons
TEST(watch_screen, large) {
  EXPECT_EQ(
      joined(render(sample(), 3, at, {200, 50})),
      R"(job 3 gpt  running                                                                                                                                                                     12:00:10  q: quit
███████████████████████████████████████████████████████████████████████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  45.2%  step 452/1000  1m15s left
generation 7  2×2  99.4 samples/s  80.5 ms/step  learning rate 0.0003
training    2.2500   █▆▅▃▂             2.2500 to 6.0000
                     ██████▇▅▄▂▁
                     ███████████▇▆▄▃▁
validation  2.5000   █    2.5000 to 5.0000
                     █
                     █▆▁
keepers     k step 450  protected  checkpoint of step 400
changes     3: 2 intra-stage, 1 pipeline; 1 step replayed
plan        liveput: 2x2 stays, because nothing else is expected to be faster than that within the look-ahead

2×2         stage 0               stage 1
pipeline 0  a/0 1m15s             b/0 1h01m notice 25s
pipeline 1  c/0 lost 3s ago       d/0 20s
spare       c 2s
lost        c lost 3s ago

11:58:55  instance a joined as worker with 1 slot at 127.0.0.1:4001
11:59:50  decision for 2×2: liveput: 2x2, 1.2e+06 samples expected over 12 intervals; 30ms stall expected
11:59:50  2×2 after loss of e/0 (instance e is lost): intra-stage, 35ms stall, 1 step replayed
11:59:52  e/0 is not used for now: it failed
12:00:05  notice: instance b leaves in 30 s
12:00:07  instance c is lost: its connection ended or fell silent
12:00:09  instance c failed: ended by SIGSEGV
)");
}

// given: the sample / expected: what needs attention looks like it
TEST(watch_screen, looks) {
  const auto x = render(sample(), 3, at, {80, 24});
  EXPECT_EQ(look_of(x, "running"), look::good);
  EXPECT_EQ(look_of(x, "a/0"), look::plain);
  EXPECT_EQ(look_of(x, "b/0"), look::warning);
  EXPECT_EQ(look_of(x, "c/0"), look::bad);
  EXPECT_EQ(look_of(x, "protected"), look::good);
  EXPECT_EQ(look_of(x, "notice: instance b"), look::warning);
  EXPECT_EQ(look_of(x, "instance c failed"), look::bad);
}

// given: any size, also absurd ones, and jobs in every state / expected: never more lines, nor wider ones
// given: a job that serves / expected: requests where others have steps, nothing of losses, keepers and rates
TEST(watch_screen, a_job_that_serves) {
  auto x = sample();
  auto& j = x.jobs[0];
  j.kind = "serve";
  j.gateway = "g";
  j.http = "http://127.0.0.1:8000";
  j.requests = {.queued = 1, .running = 3, .tokens_per_s = 120};
  const auto text = joined(render(x, 3, at, {100, 30}));
  EXPECT_THAT(text, HasSubstr("3 requests running, 1 queued  120 tokens/s"));
  EXPECT_THAT(text, HasSubstr("answers at http://127.0.0.1:8000 (g)"));
  for (const char* word : {"training", "validation", "keepers", "learning rate", "samples/s"})
    EXPECT_THAT(text, Not(HasSubstr(word)));
}

TEST(watch_screen, fits_any_size) {
  auto many = sample();
  auto& job = many.jobs[0];
  job.width = 40;
  job.depth = 30;
  job.grid.clear();
  job.grid_incarnations.clear();
  for (int i = 0; i < 1200; ++i) {
    const auto name = "instance-" + std::to_string(i);
    job.grid.push_back(name + "/0");
    job.grid_incarnations.push_back({static_cast<std::uint64_t>(i)});
    many.instances.push_back(instance(name, static_cast<std::uint64_t>(i), i));
  }
  auto empty = status_reply{};
  empty.now_us = at.us;
  auto odd = sample();
  odd.jobs[0].name = "\x1b[2J\xff\xe4\xb8\xad\xcc\x81 tab\there";
  odd.jobs[0].grid_incarnations.clear();
  odd.jobs[0].losses.assign(300, {1, std::numeric_limits<double>::max()});
  for (const auto& x : {sample(), many, empty, odd})
    for (const auto columns : {-1, 1, 2, 10, 11, 12, 13, 20, 40, 79, 80, 81, 132, 200, 500})
      for (const auto rows : {-1, 1, 2, 5, 10, 23, 24, 25, 50, 100}) {
        const auto screen = render(x, 3, at, {columns, rows});
        EXPECT_LE(screen.size(), static_cast<std::size_t>(std::max(1, rows)));
        for (const auto& line : screen) {
          std::size_t width = 0;
          for (const auto c : to_string(line)) {
            EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) << "a control character";
            width += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
          }
          EXPECT_LE(width, static_cast<std::size_t>(std::max(1, columns)));
        }
      }
  EXPECT_THAT(joined(render(odd, 3, at, {80, 24})), HasSubstr("job 3 ?[2J??? tab here"));
  const auto crowded = joined(render(many, 3, at, {80, 24}));
  EXPECT_THAT(crowded, HasSubstr("pipelines more"));
  EXPECT_THAT(crowded, HasSubstr("+24"));
  EXPECT_THAT(crowded, HasSubstr("…ce-31/0  …ce-32/0"));
  EXPECT_THAT(crowded, HasSubstr("12:00:09  instance c failed")) << "events keep their room";
}

// given: no job; a job that waits; one that changes; one that failed; no keeper; a silent manager / expected: told
TEST(watch_screen, other_states) {
  status_reply none;
  none.now_us = at.us;
  EXPECT_THAT(joined(render(none, 0, at, {80, 24})), HasSubstr("no jobs; submit one"));
  EXPECT_THAT(joined(render(none, 0, at, {80, 24})), HasSubstr("none; start some with `parcae-node`"));
  auto x = sample();
  auto& job = x.jobs[0];
  job.phase = "activating";
  EXPECT_EQ(look_of(render(x, 3, at, {80, 24}), "activating"), look::warning);
  job.phase = "waiting";
  job.problem = "waiting for instances";
  job.width = job.depth = 0;
  job.grid.clear();
  job.grid_incarnations.clear();
  job.time_left_ms = -1;
  job.keepers.clear();
  job.protected_now = false;
  auto screen = render(x, 3, at, {80, 24});
  EXPECT_EQ(look_of(screen, "waiting for instances"), look::warning);
  EXPECT_EQ(look_of(screen, "not protected"), look::warning);
  job.copies_problem = "there is 1 keeper";
  EXPECT_EQ(look_of(render(x, 3, at, {80, 24}), ", 0 copies of step 0: there is 1 keeper"), look::warning);
  EXPECT_THAT(joined(screen), Not(HasSubstr(" left")));
  EXPECT_THAT(joined(screen), Not(HasSubstr("stage 0")));
  job.idle = "1 slot idle: too few for another pipeline of 3 stages";
  EXPECT_THAT(joined(render(x, 3, at, {80, 24})), HasSubstr("idle        1 slot idle: too few"));
  job.step_ms = 10;
  job.data_wait_ms = 5;
  job.data_wait_for = "a/0: /x";
  EXPECT_EQ(look_of(render(x, 3, at, {80, 24}), "waits 5.0 ms a step for data: a/0: /x"), look::warning);
  job.transport = {"tcp", "NVIDIA H200", "a/0: too late"};
  EXPECT_EQ(look_of(render(x, 3, at, {80, 24}), "tensors move by TCP: a/0: too late"), look::warning);
  job.not_on_disk = "no checkpoint is on disk, though one was due after 30m";
  EXPECT_EQ(look_of(render(x, 3, at, {200, 24}), "  " + job.not_on_disk), look::warning);
  job.state = "failed";
  job.problem = "no node has /data";
  EXPECT_EQ(look_of(render(x, 3, at, {80, 24}), "no node has /data"), look::bad);
  EXPECT_EQ(look_of(render(sample(), 3, at, {80, 24}, "the manager is gone"), "the manager is gone"), look::warning);
  auto later = at;
  later.us += 4'000'000;
  later.wall_us += 4'000'000;
  screen = render(sample(), 3, later, {80, 24});
  EXPECT_EQ(look_of(screen, "no answer for 4s"), look::warning);
  EXPECT_THAT(joined(screen), HasSubstr("a/0 1m19s")) << "ages go on";
  EXPECT_THAT(joined(screen), HasSubstr("notice 21s"));
}

// given: names of 70 characters, of a job, instances, a keeper / expected: they are cut; what stands behind them is not
TEST(watch_screen, long_names_leave_room_for_what_is_behind_them) {
  auto x = sample();
  const std::string name(60, 'n');
  const auto renamed = [&](const std::string& from) { return name + "-the-end-" + from; };
  for (auto& i : x.instances)
    i.name = renamed(i.name);
  auto& job = x.jobs[0];
  job.name = name;
  for (auto& slot : job.grid)
    slot = renamed(slot);
  job.keepers[0].keeper = renamed("k");
  const auto screen = joined(render(x, 3, at, {80, 24}));
  EXPECT_THAT(screen, HasSubstr("n…  running  12:00:10  q: quit\n"));
  EXPECT_THAT(screen, HasSubstr("the-end-a/0 1m15s"));
  EXPECT_THAT(screen, HasSubstr("end-b/0 1h01m notice 25s\n"));
  EXPECT_THAT(screen, HasSubstr("end-c/0 lost 3s ago"));
  EXPECT_THAT(screen, HasSubstr("the-end-k step 450  protected  checkpoint of step 400"));
  EXPECT_THAT(screen, HasSubstr("the-end-c 2s\n"));
  EXPECT_THAT(screen, HasSubstr("the-end-c lost 3s ago\n"));
}

// given: failures in this job, in another, in none / expected: not the other's
TEST(watch_events, failures_of_other_jobs_are_none_of_this_one) {
  auto x = sample();
  x.news = {{0, at.us, "error", "instance a failed: here", 3},
            {1, at.us, "error", "instance b failed: elsewhere", 4},
            {2, at.us, "warning", "instance c is lost", 0}};
  for (const auto& text : {log_of(x, at), joined(render(x, 3, at, {80, 24}))}) {
    EXPECT_THAT(text, HasSubstr("instance a failed: here"));
    EXPECT_THAT(text, HasSubstr("instance c is lost"));
    EXPECT_THAT(text, Not(HasSubstr("elsewhere")));
  }
}

// given: a screen of 60×12 / expected: the grid is there, whole, and the plan is not
TEST(watch_screen, the_grid_comes_before_the_plan) {
  const auto screen = joined(render(sample(), 3, at, {60, 12}));
  EXPECT_THAT(screen, HasSubstr("pipeline 0  a/0"));
  EXPECT_THAT(screen, HasSubstr("pipeline 1  c/0"));
  EXPECT_THAT(screen, HasSubstr("lost"));
  EXPECT_THAT(screen, Not(HasSubstr("plan ")));
}

// given: a job with events and a failed node / expected: all of it with its time, the journal too, and the node's lines
TEST(log_of, has_events_and_lines) {
  auto x = sample();
  x.jobs[0].detailed = true;
  x.failures = {{0, at.us - 1'000'000, "c", "ended by SIGSEGV", {"its last line"}, 3},
                {1, at.us, "z", "of another job", {}, 9}};
  const auto text = log_of(x, at);
  EXPECT_THAT(text, HasSubstr("11:59:51 journal: not shown\n11:59:52 warning: e/0 is not used for now: it failed\n"));
  EXPECT_THAT(text, HasSubstr("12:00:09 the log of c up to \"ended by SIGSEGV\":\n  its last line\n"));
  EXPECT_THAT(text, Not(HasSubstr("of another job")));
}

// given: a job that is done, at its last step or before / expected: what it took, where it is, what to do next; why it
// ended early
TEST(watch_events, ending) {
  auto x = sample().jobs[0];
  x.state = "done";
  x.steps_done = 1000;
  x.checkpoint_folders = {{"k", "/state/gpt-1/400@7"}};
  const auto text = ending_of(x);
  EXPECT_THAT(text, HasSubstr("job 3 gpt is done at step 1000/1000, loss 2.2500, validation loss 2.5000"));
  EXPECT_THAT(text, HasSubstr("3 changes: 2 intra-stage, 0 inter-stage, 1 pipeline, 0 in place; 1 step replayed"));
  EXPECT_THAT(text, HasSubstr("/state/gpt-1/400@7"));
  EXPECT_THAT(text, HasSubstr("`parcae export 3 --output"));
  x.steps_done = 300;
  EXPECT_THAT(ending_of(x), HasSubstr("job 3 gpt is done early, as validation got no better (job.patience), at step "
                                      "300/1000, loss 2.2500"));
}

// given / expected: as people write them
TEST(text_of_duration, units) {
  using std::chrono::milliseconds;
  const std::pair<long, std::string> cases[] = {{0, "0s"},         {7, "7ms"},           {999, "999ms"},
                                                {1000, "1s"},      {1500, "1.5s"},       {30'000, "30s"},
                                                {59'990, "59.9s"}, {60'000, "1m"},       {125'000, "2m05s"},
                                                {3'600'000, "1h"}, {7'325'000, "2h02m"}, {86'400'000, "1d"}};
  for (const auto& [ms, text] : cases)
    EXPECT_EQ(text_of_duration(milliseconds(ms)), text);
}

// given / expected: few digits, and no powers of ten
TEST(text_of_quantity, units) {
  const std::pair<double, std::string> cases[] = {
      {0, "0"},         {0.25, "0.25"},   {7.5, "7.5"},     {99.44, "99.4"},  {950.4, "950"}, {8605, "8605"},
      {86'050, "86 k"}, {12'340, "12 k"}, {999'600, "1 M"}, {1.2e6, "1.2 M"}, {3e9, "3 G"},   {-86'050, "-86 k"}};
  for (const auto& [x, text] : cases)
    EXPECT_EQ(text_of_quantity(x), text);
}

// given: values / expected: lowest and highest block at the ends, means where there are too many, levels over the
// height
TEST(sparkline, shapes) {
  EXPECT_THAT(sparkline({1, 2, 3, 4, 5, 6, 7, 8}, 10), ElementsAre("▁▂▃▄▅▆▇█"));
  EXPECT_THAT(sparkline({8, 1}, 10), ElementsAre("█▁"));
  EXPECT_THAT(sparkline({5, 5, 5}, 10), ElementsAre("▁▁▁"));
  EXPECT_THAT(sparkline({0, 2, 7, 9}, 2), ElementsAre("▁█"));
  EXPECT_THAT(sparkline({1, 8, 9, 16}, 10, 2), ElementsAre("  ▁█", "▁███"));
  EXPECT_THAT(sparkline({1}, 0), ElementsAre(""));
  EXPECT_THAT(sparkline({}, 10), ElementsAre(""));
}

// given: text with signs of the view, and others / expected: ASCII, as many characters
TEST(watch_screen, ascii) {
  EXPECT_EQ(ascii_of("2×1 ▁▂▃▄▅▆▇█ █░ more…"), "2x1 _.-=+*%# #. more~");
  EXPECT_EQ(ascii_of("é\xff"), "??");
}

// given: the sample / expected: in the order of their time; no decision that changed nothing, no journal line
TEST(watch_events, in_order) {
  const auto x = sample();
  std::vector<std::string> seen;
  for (const auto& e : events_of(x, &x.jobs[0]))
    seen.push_back(time_of_day(at, e.at_us) + " " + e.level + " " + e.text);
  EXPECT_THAT(seen, ElementsAre("11:58:55 information instance a joined as worker with 1 slot at 127.0.0.1:4001",
                                "11:59:50 information decision for 2×2: liveput: 2x2, 1.2e+06 samples expected over 12 "
                                "intervals; 30ms stall expected",
                                "11:59:50 information 2×2 after loss of e/0 (instance e is lost): intra-stage, 35ms "
                                "stall, 1 step replayed",
                                "11:59:52 warning e/0 is not used for now: it failed",
                                "12:00:05 warning notice: instance b leaves in 30 s",
                                "12:00:07 warning instance c is lost: its connection ended or fell silent",
                                "12:00:09 error instance c failed: ended by SIGSEGV"));
}

// given: jobs in some states / expected: the one that runs, else the next, else the last
TEST(watch_events, choose_a_job) {
  status_reply x;
  EXPECT_EQ(job_to_watch(x), 0u);
  const auto add = [&](std::uint64_t id, const char* state) {
    x.jobs.emplace_back();
    x.jobs.back().id = id;
    x.jobs.back().state = state;
  };
  add(1, "failed");
  add(2, "done");
  EXPECT_EQ(job_to_watch(x), 2u);
  add(4, "queued");
  add(5, "queued");
  EXPECT_EQ(job_to_watch(x), 4u);
  add(3, "running");
  EXPECT_EQ(job_to_watch(x), 3u);
}

// given: an answer / expected: the next question is about that job, and leaves out what no screen has room for
TEST(watch_events, ask_for_what_is_shown) {
  auto x = sample();
  x.news_count = 1000;
  x.jobs[0].change_count = 50;
  x.jobs[0].event_count = 250;
  const auto next = next_request(x, 3);
  EXPECT_EQ(next.job, 3u);
  EXPECT_EQ(next.news_from, 900u);
  EXPECT_EQ(next.changes_from, 0u);
  EXPECT_EQ(next.events_from, 150u);
  EXPECT_EQ(next.failures_from, UINT64_MAX);
}

// given: answers one after the other / expected: each event once; the job when something changed, at most once a second
// unless it ends
TEST(plain_watch, tells_what_is_new) {
  plain_watch watch;
  auto x = sample();
  auto now = at;
  const auto later = [&](int ms) {
    now.us += 1000 * ms;
    now.wall_us += 1000 * ms;
    x.now_us = now.us;
  };
  auto lines = watch.lines_of(x, 3, now);
  ASSERT_EQ(lines.size(), 8u);
  EXPECT_EQ(lines[4], "12:00:05 warning: notice: instance b leaves in 30 s");
  EXPECT_EQ(lines[7],
            "12:00:10 job 3 gpt: running, step 452/1000, loss 2.2500, validation loss 2.5000 at step 450, 2×2, "
            "99.4 samples/s, 1m15s left");
  EXPECT_THAT(watch.lines_of(x, 3, now), IsEmpty());
  later(500);
  x.jobs[0].steps_done = 455;
  x.news.push_back({4, now.us, "information", "new"});
  EXPECT_THAT(watch.lines_of(x, 3, now), ElementsAre("12:00:10 new"));
  later(500);
  EXPECT_THAT(watch.lines_of(x, 3, now), ElementsAre(HasSubstr("step 455/1000")));
  later(100);
  x.jobs[0].state = "done";
  x.jobs[0].steps_done = 1000;
  x.jobs[0].parameters_sha256 = "ab";
  EXPECT_THAT(watch.lines_of(x, 3, now), ElementsAre(HasSubstr("done, step 1000/1000")));
  EXPECT_THAT(summary_of(x.jobs[0]), HasSubstr("parameters sha256 ab"));
  plain_watch without_job;
  x.jobs.clear();
  auto alone = without_job.lines_of(x, 0, now);
  ASSERT_EQ(alone.size(), x.news.size() + 1);
  EXPECT_THAT(alone.back(), HasSubstr("no job yet; waits for one: `parcae submit JOB.toml`"));
  EXPECT_THAT(without_job.lines_of(x, 0, now), IsEmpty()) << "once";
}

// given: a manager that goes, and another that answers, on a machine with another clock, which has the job's history
// and counts its own news from 0 / expected: it is said; what happened since is told, and nothing twice
TEST(plain_watch, goes_on_with_another_manager) {
  plain_watch watch;
  auto x = sample();
  watch.lines_of(x, 3, at);
  auto now = at;
  now.us += 3'000'000;
  now.wall_us += 3'000'000;
  EXPECT_EQ(watch.away(now, "it is gone"), "12:00:13 warning: it is gone");
  constexpr std::int64_t ahead_us = 77'000'000; // of the clock before
  now.us += 2'000'000 + ahead_us;
  now.wall_us += 2'000'000;
  x.now_us = now.us;
  for (auto& change : x.jobs[0].changes)
    change.at_us += ahead_us;
  for (auto& decision : x.jobs[0].decisions)
    decision.at_us += ahead_us;
  for (auto& event : x.jobs[0].events)
    event.at_us += ahead_us;
  x.news = {{0, now.us - 1'000'000, "information", "instance a joined"}};
  x.jobs[0].events.push_back({12, now.us - 500'000, "warning", "no answer"});
  EXPECT_THAT(watch.lines_of(x, 3, now), ElementsAre("12:00:15 the manager answers again", "12:00:14 instance a joined",
                                                     "12:00:14 warning: no answer"));
  x.news.push_back({1, now.us, "information", "instance b joined"});
  EXPECT_THAT(watch.lines_of(x, 3, now), ElementsAre("12:00:15 instance b joined"));
}

// given: a long history / expected: only its end
TEST(plain_watch, begins_with_the_newest) {
  plain_watch watch;
  auto x = sample();
  for (std::uint64_t i = 4; i < 100; ++i)
    x.news.push_back({i, at.us, "information", "n" + std::to_string(i)});
  const auto lines = watch.lines_of(x, 0, at);
  ASSERT_EQ(lines.size(), 10u);
  EXPECT_THAT(lines.back(), HasSubstr("n99"));
}

// given / expected: how long, in one or two units
TEST(text_of_age, units) {
  const std::pair<double, std::string> cases[] = {
      {-5, "0s"},      {0.9, "0s"},     {59.9, "59s"},     {60, "1m00s"},    {125, "2m05s"},   {3599, "59m59s"},
      {3600, "1h00m"}, {7325, "2h02m"}, {86399, "23h59m"}, {86400, "1d00h"}, {273600, "3d04h"}};
  for (const auto& [s, text] : cases)
    EXPECT_EQ(text_of_age(static_cast<std::int64_t>(1e6 * s)), text);
}

} // namespace
} // namespace parcae
