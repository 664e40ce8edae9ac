// The plain code inside the manager's actors: the queue of jobs, the choice of victims, what status shows.

#include "actors/injector.hpp"
#include "actors/job_queue.hpp"
#include "actors/status.hpp"

#include <gmock/gmock.h>

namespace parcae {
namespace {

using testing::ElementsAre;

// given: three jobs / expected: one runs at a time, in the order of submission
TEST(job_queue, is_first_in_first_out) {
  job_queue queue;
  EXPECT_EQ(queue.start_next(), std::nullopt);
  auto a = queue.submit({});
  auto b = queue.submit({});
  auto c = queue.submit({});
  EXPECT_EQ(queue.start_next(), a);
  EXPECT_EQ(queue.start_next(), std::nullopt);
  queue.end(a, true, "");
  EXPECT_EQ(queue.jobs().at(a).state, job_state::done);
  EXPECT_TRUE(queue.cancel(b));
  EXPECT_EQ(queue.jobs().at(b).state, job_state::cancelled);
  EXPECT_EQ(queue.start_next(), c);
}

// given: a running job ends badly / expected: failed, or cancelled if that was asked; ended jobs stay as they are
TEST(job_queue, says_how_a_job_ended) {
  job_queue queue;
  auto a = queue.submit({});
  auto b = queue.submit({});
  queue.start_next();
  queue.end(a, false, "no data");
  EXPECT_EQ(queue.jobs().at(a).state, job_state::failed);
  EXPECT_EQ(queue.jobs().at(a).why, "no data");
  EXPECT_FALSE(queue.cancel(a));
  queue.start_next();
  EXPECT_TRUE(queue.cancel(b));
  EXPECT_EQ(queue.jobs().at(b).state, job_state::running);
  queue.end(b, false, "cancelled");
  EXPECT_EQ(queue.jobs().at(b).state, job_state::cancelled);
  EXPECT_FALSE(queue.cancel(job_id{99}));
}

// given: thousands of jobs that ended / expected: the queue stays bounded and keeps the newest
TEST(job_queue, forgets_old_jobs) {
  job_queue queue;
  job_id last;
  for (int i = 0; i < 3000; ++i) {
    last = queue.submit({});
    queue.start_next();
    queue.end(last, true, "");
  }
  EXPECT_LE(queue.jobs().size(), 100u);
  EXPECT_TRUE(queue.jobs().contains(last));
}

preempt_order order_of(preempt_request what) {
  preempt_order x{std::move(what), {}};
  for (const char* name : {"a", "b", "c", "keeper"})
    x.living.push_back({name, {1}, std::string(name) != "keeper", std::string(name) == "c", {}});
  return x;
}

// given                        / expected
// names, one twice             / those, once
// a keeper by name             / the keeper
// an unknown name              / unknown_instance
// any 2 of a, b (c leaves)     / a and b
// any 3                        / too_few_instances
TEST(injector, chooses_victims) {
  auto chosen = [](preempt_request what) { return std::get<0>(choose_victims(order_of(std::move(what)))); };
  auto refused = [](preempt_request what) { return std::get<1>(choose_victims(order_of(std::move(what)))).first; };
  EXPECT_THAT(chosen({{"b", "a", "b"}, 0, 0, 0}), ElementsAre(1, 0));
  EXPECT_THAT(chosen({{"keeper"}, 0, 0, 0}), ElementsAre(3));
  EXPECT_EQ(refused({{"x"}, 0, 0, 0}), parcae_error::unknown_instance);
  EXPECT_THAT(chosen({{}, 2, 7, 0}), testing::UnorderedElementsAre(0, 1));
  EXPECT_EQ(refused({{}, 3, 7, 0}), parcae_error::too_few_instances);
}

// given: one of two, many seeds / expected: the same seed the same victim, and both occur
TEST(injector, chooses_by_seed_alone) {
  std::set<std::size_t> seen;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    auto x = std::get<0>(choose_victims(order_of({{}, 1, seed, 0})));
    EXPECT_EQ(x, std::get<0>(choose_victims(order_of({{}, 1, seed, 0}))));
    seen.insert(x.at(0));
  }
  EXPECT_EQ(seen.size(), 2u);
}

job_picture sample_picture() {
  auto view = std::make_shared<job_view>();
  view->now = phase::running;
  view->current = {3};
  view->grid = placement{1, 2, {0, 1, 2}, {{{"a", {1}, 0}, "h", 1}, {{"b", {1}, 0}, "h", 1}, {{"c", {1}, 0}, "h", 1}}};
  view->steps_done = 12;
  view->step_ms = 50;
  view->counts[static_cast<int>(migration::none)] = 1;
  view->counts[static_cast<int>(migration::pipeline)] = 4;
  view->changes.resize(3);
  view->changes.back().trigger = "join";
  auto lines = std::make_shared<std::deque<journal_line>>();
  lines->push_back({time_point(milliseconds(5)), severity::information, "x"});
  lines->push_back({time_point(milliseconds(6)), severity::error, "y"});
  return {view, 10, lines};
}

// given: a picture of a running job / expected: ranks only in the grid, changes and events with their numbers
TEST(status, shows_a_running_job) {
  job_entry entry;
  entry.state = job_state::running;
  entry.specification.global_batch = 10;
  auto x = status_of({7}, entry, sample_picture(), {});
  EXPECT_EQ(x.id, 7u);
  EXPECT_EQ(x.state, "running");
  EXPECT_EQ(x.phase, "running");
  EXPECT_THAT(x.grid, ElementsAre("a/0", "b/0"));
  EXPECT_DOUBLE_EQ(x.samples_per_s, 200);
  EXPECT_EQ(x.change_count, 5u);
  ASSERT_EQ(x.changes.size(), 3u);
  EXPECT_EQ(x.changes.back().number, 4u);
  EXPECT_EQ(x.changes.back().trigger, "join");
  EXPECT_EQ(x.event_count, 12u);
  ASSERT_EQ(x.events.size(), 2u);
  EXPECT_EQ(x.events[1].number, 11u);
  EXPECT_EQ(x.events[1].level, "error");
  EXPECT_EQ(x.events[1].at_us, 6000);
}

// given: a client that knows some already / expected: only the rest
TEST(status, leaves_out_what_is_known) {
  auto x = status_of({7}, {}, sample_picture(), {0, 4, 11});
  EXPECT_EQ(x.changes.size(), 1u);
  EXPECT_EQ(x.events.size(), 1u);
  EXPECT_EQ(x.change_count, 5u);
  EXPECT_EQ(x.event_count, 12u);
}

// given: a job that never ran / expected: its name and state
TEST(status, shows_a_queued_job) {
  job_entry entry;
  entry.specification.name = "text";
  auto x = status_of({1}, entry, {}, {});
  EXPECT_EQ(x.name, "text");
  EXPECT_EQ(x.state, "queued");
  EXPECT_EQ(x.width, 0u);
}

} // namespace
} // namespace parcae
