// What excuses a loss, and what does not; what grows.

#include "tests/chaos/judge.hpp"
#include "tests/chaos/process_watch.hpp"
#include "tests/support/names.hpp"

#include <cmath>
#include <functional>

namespace parcae {
namespace {

struct judged : testing::Test {
  using time_point = judge::time_point;

  /// What is said of it if it is declared lost at that moment.
  std::vector<std::string> when_lost(time_point at) {
    instance_status x;
    x.name = "node-w0";
    x.incarnation = {++lives};
    x.lost_at_us = std::chrono::duration_cast<std::chrono::microseconds>(at.time_since_epoch()).count();
    status_reply all;
    all.instances = {x};
    it.look(all, {});
    return it.take_faults();
  }

  void do_to(const char* what, time_point from, time_point to) {
    members.at("node-w0").deeds.push_back({from, to, what});
  }

  member_map members = members_of(1, 1);
  const time_point start = std::chrono::steady_clock::now() - 100s;
  judge it{members, start};
  std::uint64_t lives = 0;
};

// given: frozen for 2 s / expected: a loss meanwhile, or until silence is noticed, comes of it; one 10 s later does
// not, nor one before
TEST_F(judged, what_was_done_excuses_what_comes_of_it) {
  do_to("frozen", start + 10s, start + 12s);
  EXPECT_THAT(when_lost(start + 11s), IsEmpty());
  EXPECT_THAT(when_lost(start + 16s), IsEmpty());
  EXPECT_THAT(when_lost(start + 22s), ElementsAre(HasSubstr("node-w0 was declared lost, 22.00 s")));
  EXPECT_THAT(when_lost(start + 9s), ElementsAre(HasSubstr("though nothing had been done to it")));
}

// given: the manager was away when it would have noticed / expected: it may notice once it is back, for a while
TEST_F(judged, a_manager_that_was_away_notices_later) {
  do_to("killed", start + 10s, start + 11s);
  it.manager_is_away(start + 12s, start + 20s);
  EXPECT_THAT(when_lost(start + 29s), IsEmpty());
  EXPECT_THAT(when_lost(start + 31s), ElementsAre(HasSubstr("though nothing had been done to it")));
}

// given: frozen twice, for 2 s and for half a second / expected: once it goes on the first is an excuse for a while,
// the second never was one, and neither stays open
TEST_F(judged, who_goes_on_is_as_good_as_any) {
  auto& it = members.at("node-w0");
  for (const auto began : {start + 10s, start + 20s})
    it.note({began, time_point::max(), "frozen"});
  EXPECT_EQ(it.endless(start + 21s), nullptr);
  ASSERT_NE(it.endless(start + 200s), nullptr);
  it.end_freeze(start + 10s, start + 12s);
  it.end_freeze(start + 20s, start + 20500ms);
  EXPECT_EQ(it.endless(start + 200s), nullptr);
  EXPECT_EQ(it.done_between(start + 13s, start + 13s), "frozen");
  EXPECT_EQ(it.done_between(start + 15s, start + 60s), "");
}

// given: one that is not back yet / expected: excused
TEST_F(judged, who_is_still_gone_is_lost) {
  do_to("killed", start + 10s, time_point::max());
  EXPECT_THAT(when_lost(start + 60s), IsEmpty());
}

// given: two replicas train until version 10, then a pipeline of both, whose first stage is killed, and the job goes
// back to version 8; of the pipeline its chain has nothing then / expected: if it had committed a step, that stage's
// only holder explains the loss, and does not if it is well; if not, the other replica still held all
TEST_F(judged, who_held_it_last_held_it) {
  members = members_of(2, 1);
  constexpr auto unended = UINT64_MAX;
  const auto faults_after = [&](std::uint64_t lost, bool is_killed) {
    judge fresh(members, start);
    job_status job;
    const auto train = [&](std::uint64_t generation, std::uint32_t width, std::vector<chain_link> chain) {
      job.generation = generation;
      job.width = width;
      job.depth = 2 / width;
      job.grid = {"node-w0/0", "node-w1/0"};
      job.chain = std::move(chain);
      fresh.look({}, job);
    };
    train(1, 2, {{{1}, 0, unended}});
    train(2, 1, {{{1}, 0, 10}, {{2}, 10, unended}});
    const auto now = std::chrono::steady_clock::now();
    members.at("node-w0").deeds.clear();
    if (is_killed)
      do_to("killed", now, time_point::max());
    change_status back;
    back.to = 3;
    back.replayed_steps = lost;
    back.decided_ms = 1; // by an abort
    back.at_us = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count();
    job.changes = {back};
    train(3, 2, {{{1}, 0, 8}, {{3}, 8, unended}});
    EXPECT_EQ(fresh.sums().losses, 1u);
    return fresh.take_faults().size();
  };
  constexpr std::uint64_t dropped = 1;
  EXPECT_EQ(faults_after(3 + dropped, true), 0u); // version 11 was reached
  EXPECT_EQ(faults_after(3 + dropped, false), 1u);
  EXPECT_EQ(faults_after(2 + dropped, true), 1u);
}

// given / expected: status 1 is a refusal if the log says so
TEST(name_was_taken, is_said_by_the_log) {
  EXPECT_TRUE(name_was_taken("error parcae-node: the manager refuses node-w0: a living instance has that name"));
  EXPECT_FALSE(name_was_taken("error cannot write checkpoints to /state: No space left on device"));
}

// given: what a process held each second of its life / expected: what levels off, or comes and goes, does not grow;
// each kind that goes on growing does; nothing is said of a life of less than three minutes, nor of the memory of one
// that had more of a model at last
TEST(growth_of, is_what_goes_on) {
  const auto of = [](std::size_t seconds, const std::function<holding(double)>& f) {
    std::vector<holding> life;
    for (std::size_t i = 0; i <= seconds; ++i) {
      life.push_back(f(static_cast<double>(i)));
      life.back().at = std::chrono::steady_clock::time_point(std::chrono::seconds(i));
    }
    return growth_of(life);
  };
  constexpr double mib = 1024;
  EXPECT_THAT(of(200, [](double s) { return holding{{}, {std::min(s, 100.0) * mib, 20, 9}}; }), IsEmpty());
  EXPECT_THAT(of(200, [](double s) { return holding{{}, {100 * mib, 20 + std::fmod(s, 10), 9}}; }), IsEmpty());
  const auto leaks = [](double s) { return holding{{}, {100 * mib + s * mib, 20 + s, 9 + s / 20}}; };
  EXPECT_THAT(of(200, leaks), ElementsAre(HasSubstr("KiB, after "), HasSubstr("220 descriptors, after ")));
  EXPECT_THAT(of(200, [](double s) { return holding{{}, {mib, 9, 9 + s}}; }), ElementsAre(HasSubstr("209 threads")));
  EXPECT_THAT(of(179, leaks), IsEmpty());
  const auto has = [&](double before, double at_last) {
    return [=](double s) { return holding{{}, leaks(s).held, s < 150 ? before : at_last}; };
  };
  EXPECT_THAT(of(200, has(0.5, 1)), ElementsAre(HasSubstr("220 descriptors, after ")));
  EXPECT_THAT(of(200, has(1, 0.5)), SizeIs(2));
}

} // namespace
} // namespace parcae
