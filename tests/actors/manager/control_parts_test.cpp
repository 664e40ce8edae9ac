// The plain code inside the manager's actors: the queue of jobs, the choice of victims, curves, news.

#include "actors/conductor/rank_times.hpp"
#include "actors/conductor/training_course.hpp"
#include "actors/manager/cluster_news.hpp"
#include "actors/manager/injector.hpp"
#include "actors/manager/job_obstacle.hpp"
#include "actors/manager/job_queue.hpp"
#include "actors/manager/place_check.hpp"
#include "actors/manager/service_planning.hpp"
#include "tests/support/names.hpp"

#include <algorithm>
#include <cmath>

namespace parcae {
namespace {

/// All can run.
std::string nothing_in_the_way(const job_specification&) {
  return {};
}

job_specification of_depth(std::uint32_t least) {
  job_specification x;
  x.min_depth = least;
  return x;
}

// given: a rank that tells of its steps for a while, then of slower ones, and what is no time / expected: means, in
// which what is long ago does not count; nothing of before when a generation begins
TEST(rank_times, are_of_the_last_seconds) {
  rank_times times;
  rank_times::time_point now{};
  const auto hear = [&](const step_parts& x, int seconds) {
    for (int i = 0; i < 10 * seconds; ++i)
      times.hear(now += std::chrono::milliseconds(100), 3, x);
  };
  hear({.forward_ms = 10}, 1);
  EXPECT_DOUBLE_EQ(times.means().at(3).forward_ms, 10);
  hear({.forward_ms = 20, .data_ms = 5}, 5);
  EXPECT_NEAR(times.means().at(3).forward_ms, 20 - 10 * std::exp(-1), 0.01);
  hear({.forward_ms = 20, .data_ms = 5}, 60);
  EXPECT_NEAR(times.means().at(3).forward_ms, 20, 0.01);
  EXPECT_NEAR(times.means().at(3).data_ms, 5, 0.01);
  hear({}, 1);
  hear({.forward_ms = -1}, 1);
  hear({.forward_ms = std::nan("")}, 1);
  EXPECT_NEAR(times.means().at(3).forward_ms, 20, 0.01);
  times.begin();
  EXPECT_TRUE(times.means().empty());
}

// given: three jobs / expected: one runs at a time, in the order of submission
TEST(job_queue, is_first_in_first_out) {
  job_queue queue;
  EXPECT_EQ(queue.start_next(nothing_in_the_way), std::nullopt);
  auto a = queue.submit({});
  auto b = queue.submit({});
  auto c = queue.submit({});
  EXPECT_EQ(queue.start_next(nothing_in_the_way), a);
  EXPECT_EQ(queue.start_next(nothing_in_the_way), std::nullopt);
  queue.end(a, true, "");
  EXPECT_EQ(queue.jobs().at(a).state, job_state::done);
  EXPECT_TRUE(queue.cancel(b));
  EXPECT_EQ(queue.jobs().at(b).state, job_state::cancelled);
  EXPECT_EQ(queue.start_next(nothing_in_the_way), c);
}

// given: jobs of priority 0, 5, 0, 5, -1 / expected: the highest first, among equals the first submitted; a job of
// priority 0 submitted now would come after all but the last
TEST(job_queue, an_owner_is_journaled) {
  job_queue queue;
  const auto id = queue.submit({}, 0, "ann");
  const auto kept = decode_journal<job_record>(encode(record_of(queue.jobs().at(id))));
  EXPECT_EQ(entry_from(kept).owner, "ann");
}

TEST(job_queue, prefers_priority) {
  job_queue queue;
  std::vector<job_id> ids;
  for (const auto priority : {0, 5, 0, 5, -1})
    ids.push_back(queue.submit({}, priority));
  EXPECT_THAT(queue.waiting(), ElementsAre(ids[1], ids[3], ids[0], ids[2], ids[4]));
  EXPECT_THAT(queue.waiting(0), ElementsAre(ids[1], ids[3], ids[0], ids[2]));
  EXPECT_THAT(queue.waiting(6), ElementsAre());
  for (const auto i : {1, 3, 0, 2, 4}) {
    EXPECT_EQ(queue.start_next(nothing_in_the_way), ids[static_cast<std::size_t>(i)]);
    queue.end(ids[static_cast<std::size_t>(i)], true, "");
  }
}

// given: three jobs of which the first cannot run / expected: the others run, each in its turn; the first says why it
// waits, and runs as soon as it can
TEST(job_queue, a_job_that_cannot_run_is_passed_over) {
  job_queue queue;
  const auto deep = queue.submit(of_depth(4)), b = queue.submit({}), c = queue.submit({});
  std::uint32_t slots = 1;
  const auto why_not = [&](const job_specification& x) {
    return x.min_depth > slots ? "waits: too few slots" : std::string();
  };
  EXPECT_EQ(queue.start_next(why_not), b);
  EXPECT_EQ(queue.jobs().at(deep).why, "waits: too few slots");
  queue.end(b, true, "");
  EXPECT_EQ(queue.start_next(why_not), c);
  queue.end(c, true, "");
  EXPECT_EQ(queue.start_next(why_not), std::nullopt);
  slots = 4;
  EXPECT_EQ(queue.start_next(why_not), deep);
  EXPECT_EQ(queue.jobs().at(deep).why, "");
}

// given: a running job with one that could run instead / expected: it gives way once, runs again after the other, and
// then stays; a cancelled one does not come back
TEST(job_queue, a_job_gives_way_once) {
  job_queue queue;
  const auto a = queue.submit({}, 7);
  EXPECT_EQ(queue.first_that_can(nothing_in_the_way), a);
  queue.start_next(nothing_in_the_way);
  EXPECT_EQ(queue.first_that_can(nothing_in_the_way), std::nullopt);
  const auto b = queue.submit({});
  EXPECT_EQ(queue.first_that_can(nothing_in_the_way), b);
  EXPECT_TRUE(queue.give_way());
  EXPECT_FALSE(queue.give_way()) << "it is doing so already";
  queue.end(a, false, "cancelled");
  EXPECT_EQ(queue.jobs().at(a).state, job_state::queued);
  EXPECT_EQ(queue.start_next(nothing_in_the_way), b);
  queue.end(b, true, "");
  EXPECT_EQ(queue.start_next(nothing_in_the_way), a);
  EXPECT_FALSE(queue.give_way());
  queue.end(a, true, "");
  EXPECT_EQ(queue.jobs().at(a).state, job_state::done);
  const auto c = queue.submit({});
  queue.start_next(nothing_in_the_way);
  EXPECT_TRUE(queue.give_way());
  EXPECT_TRUE(queue.cancel(c));
  queue.end(c, false, "cancelled");
  EXPECT_EQ(queue.jobs().at(c).state, job_state::cancelled);
}

// given: jobs that serve, and offers / expected: as planner/serving says what fits; the answer to a conductor has the
// same
TEST(obstacle_to, of_a_job_that_serves) {
  job_specification job;
  job.kind = "serve";
  job.optimizer.kind = "none";
  job.max_depth = 2;
  const auto says = [](const std::string& part) { return testing::HasSubstr(part); };
  EXPECT_EQ(obstacle_to(job, {{{"x", 1, 0}}, 0}), "");
  EXPECT_THAT(obstacle_to(job, {{}, 0}), says("waits for workers"));
  EXPECT_THAT(obstacle_to(job, {{{"x", 4, 1000}}, 0}), says("nothing fits 4 slots: stage 0 of 2 takes "));
  auto small = job;
  small.serve.cache_bytes = 1 << 20; // a position of a block is 512 bytes: 2048 of all four, in blocks of 16
  EXPECT_EQ(obstacle_to(small, {{{"x", 1, 0}}, 0}), "");
  small.model.sequence = 513;
  EXPECT_THAT(obstacle_to(small, {{{"x", 1, 0}}, 0}), says("serve.cache has room for 512 positions in stage 0 of 1"));
  EXPECT_EQ(obstacle_to(small, {{{"x", 2, 0}}, 0}), "") << "two stages have twice the room";
  situation now;
  now.slots = 5;
  const auto answer = decide_for_service(small, now, usual_calm_ms);
  EXPECT_EQ(answer.choice.width, 2u);
  EXPECT_EQ(answer.choice.depth, 2u);
  EXPECT_EQ(answer.choice.first_layer.size(), 3u);
  EXPECT_EQ(answer.why.chosen.configuration, "2×2");
  EXPECT_EQ(answer.why.reason, "2 pipelines of 2 stages: the fewest stages that fit a slot, on 5 slots");
}

// given / expected: what stands in a job's way
TEST(obstacle_to, table) {
  const fleet_offer none, one{{{"x", 1, 0}}, 0}, four{{{"x", 4, 0}}, 0}, mixed{{{"x", 1, 0}, {"y", 3, 0}}, 1},
      small{{{"x", 4, 1000}}, 0};
  auto any = of_depth(1), deep = of_depth(4), resumed = any, loose = deep;
  resumed.resume = {10, "/checkpoints/gpt-1/10@1", ""};
  loose.reproducible = false;
  const auto says = [](const std::string& part) { return testing::HasSubstr(part); };
  EXPECT_EQ(obstacle_to(any, one), "");
  EXPECT_EQ(obstacle_to(deep, four), "");
  EXPECT_THAT(obstacle_to(any, none), says("waits for workers"));
  EXPECT_THAT(obstacle_to(deep, one), says("1×4 needs 4"));
  EXPECT_THAT(obstacle_to(deep, mixed), says("3 slots of other processors would compute other bits"));
  EXPECT_EQ(obstacle_to(loose, mixed), "");
  EXPECT_THAT(obstacle_to(any, small), says("fits their memory"));
  EXPECT_THAT(obstacle_to(resumed, four), says("waits for a keeper that can read the checkpoint at /checkpoints"));
  EXPECT_EQ(obstacle_to(resumed, mixed), "");
  auto by_nccl = any;
  by_nccl.transport = "nccl";
  EXPECT_THAT(obstacle_to(by_nccl, four), says("waits for workers with a GPU"));
  EXPECT_EQ(obstacle_to(by_nccl, {{{"x", 1, {1'000'000'000'000, true}}}, 0}), "");
  const fleet_offer two{{{"x", 1, 0}, {"x", 1, 0}}, 1};
  any.min_instances = resumed.min_instances = 2;
  EXPECT_EQ(obstacle_to(any, four), "waits for instances: 1 of 2 that job.min_instances asks for") << "of four slots";
  EXPECT_EQ(obstacle_to(any, mixed), "waits for instances: 1 of 2 that job.min_instances asks for; 3 slots of other "
                                     "processors would compute other bits");
  EXPECT_EQ(obstacle_to(any, two), "");
  EXPECT_EQ(obstacle_to(resumed, mixed), "") << "it has begun before";
}

// given: what a job may name that lies elsewhere / expected: all of it is asked for, and nothing that is not read
TEST(places_of, table) {
  job_specification job;
  job.data.kind = "columns";
  job.data.source = {{"/a", 1}, {"s3://b/c", 2}};
  job.model.kind = "exported";
  job.model.path = "/model";
  job.model.weights = "/weights";
  job.checkpoint = {"s3://d", "https://e", "f"};
  const auto x = places_of(job);
  EXPECT_THAT(x.read, testing::ElementsAre("/a", "s3://b/c", "/model", "/weights"));
  EXPECT_EQ(x.write, "s3://d");
  EXPECT_EQ(x.endpoint, "https://e");
  EXPECT_EQ(x.region, "f");
  job = {};
  job.data.kind = "synthetic";
  job.data.path = "/not/read";
  EXPECT_TRUE(places_of(job).read.empty());
  job.serve.tokenizer = "/t.json";
  EXPECT_EQ(tokenizer_of(job), "") << "it trains";
  job.kind = "serve";
  EXPECT_EQ(tokenizer_of(job), "/t.json");
  for (const auto* none : {"auto", "bytes", "ids"}) {
    job.serve.tokenizer = none;
    EXPECT_EQ(tokenizer_of(job), "");
  }
}

// given: a running job ends badly / expected: failed, or cancelled if that was asked; ended jobs stay as they are
TEST(job_queue, says_how_a_job_ended) {
  job_queue queue;
  auto a = queue.submit({});
  auto b = queue.submit({});
  queue.start_next(nothing_in_the_way);
  queue.end(a, false, "no data");
  EXPECT_EQ(queue.jobs().at(a).state, job_state::failed);
  EXPECT_EQ(queue.jobs().at(a).why, "no data");
  EXPECT_FALSE(queue.cancel(a));
  queue.start_next(nothing_in_the_way);
  EXPECT_TRUE(queue.cancel(b));
  EXPECT_EQ(queue.jobs().at(b).state, job_state::running);
  queue.end(b, false, "cancelled");
  EXPECT_EQ(queue.jobs().at(b).state, job_state::cancelled);
  EXPECT_FALSE(queue.cancel(job_id{99}));
}

// given: thousands of jobs that ended / expected: the queue stays bounded and keeps the newest; full when as many wait
TEST(job_queue, forgets_old_jobs) {
  job_queue queue;
  job_id last;
  for (int i = 0; i < 3000; ++i) {
    last = queue.submit({});
    queue.start_next(nothing_in_the_way);
    queue.end(last, true, "");
  }
  EXPECT_LE(queue.jobs().size(), 100u);
  EXPECT_TRUE(queue.jobs().contains(last));
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(queue.full()) << i;
    last = queue.submit({});
  }
  EXPECT_TRUE(queue.full());
  EXPECT_TRUE(queue.cancel(last));
  EXPECT_FALSE(queue.full());
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
  auto chosen = [](preempt_request what) { return choose_victims(order_of(std::move(what))).value(); };
  auto refused = [](preempt_request what) { return choose_victims(order_of(std::move(what))).error().code; };
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
    auto x = choose_victims(order_of({{}, 1, seed, 0})).value();
    EXPECT_EQ(x, choose_victims(order_of({{}, 1, seed, 0})));
    seen.insert(x.at(0));
  }
  EXPECT_EQ(seen.size(), 2u);
}

// given: losses in order / expected: all, until there are too many: then means of neighbours, over the same span
// given: steps that come again / expected: what was known of them and later ones is replaced
// given: NaN / expected: left out
TEST(loss_curve, is_bounded_and_spans_everything) {
  loss_curve x;
  x.add(1, 4);
  x.add(2, std::nan(""));
  x.add(3, 2);
  EXPECT_THAT(x.points(), ElementsAre(loss_point{1, 4}, loss_point{3, 2}));
  x.add(3, 3);
  EXPECT_THAT(x.points(), ElementsAre(loss_point{1, 4}, loss_point{3, 3}));
  x.add(1, 5);
  EXPECT_THAT(x.points(), ElementsAre(loss_point{1, 5}));
  loss_curve y;
  const std::uint64_t steps = 10 * loss_curve::max_points;
  for (std::uint64_t i = 1; i <= steps; ++i)
    y.add(i, static_cast<double>(i));
  ASSERT_LE(y.points().size(), loss_curve::max_points);
  ASSERT_GE(y.points().size(), loss_curve::max_points / 2);
  EXPECT_EQ(y.points().back().steps, steps);
  std::uint64_t from = 1;
  for (const auto& p : y.points()) {
    EXPECT_DOUBLE_EQ(p.loss, static_cast<double>(from + p.steps) / 2) << "the mean of the steps since the last point";
    from = p.steps + 1;
  }
  y.add(steps / 2, 0);
  EXPECT_EQ(y.points().back(), (loss_point{steps / 2, 0}));
  EXPECT_LT(y.points()[y.points().size() - 2].steps, steps / 2);
}

// given: steps, a stall, a step back, more than a minute / expected: steps per second of the last minute
TEST(commit_pace, counts_stalls_and_forgets) {
  commit_pace x;
  const time_point start(std::chrono::hours(1));
  const auto at = [&](double s) { return start + milliseconds(static_cast<int>(1000 * s)); };
  EXPECT_EQ(x.steps_per_s(), 0);
  x.add(at(0), 0);
  EXPECT_EQ(x.steps_per_s(), 0);
  for (int i = 1; i <= 100; ++i)
    x.add(at(i * 0.1), static_cast<std::uint64_t>(i));
  EXPECT_DOUBLE_EQ(x.steps_per_s(), 10);
  x.add(at(20), 100);
  EXPECT_DOUBLE_EQ(x.steps_per_s(), 5);
  x.add(at(25), 50);
  EXPECT_DOUBLE_EQ(x.steps_per_s(), 2);
  for (int i = 1; i <= 70; ++i)
    x.add(at(25 + i), 50 + static_cast<std::uint64_t>(3 * i));
  EXPECT_DOUBLE_EQ(x.steps_per_s(), 3);
}

// given: more news and failures than are kept, long ones, an instance that fails again / expected: the newest, cut off,
// one failure of each instance; only what was asked for
TEST(cluster_news, is_bounded) {
  cluster_news x;
  const time_point at(milliseconds(7));
  for (std::size_t i = 0; i < cluster_news::max_news; ++i)
    x.note(at, severity::warning, "n" + std::to_string(i));
  for (std::size_t i = 0; i < cluster_news::max_failures + 2; ++i)
    x.fail(at, {1}, {"i" + std::to_string(i), "first", {}});
  std::vector<std::string> lines(cluster_news::max_lines + 1, std::string(1000, 'x'));
  lines.front() = "too old";
  x.fail(at, {2}, {"i5", "second", lines});
  status_reply all;
  x.add_to(all, {});
  EXPECT_EQ(all.news.size(), cluster_news::max_news);
  EXPECT_EQ(all.news.back().number + 1, all.news_count);
  EXPECT_EQ(all.news.back().text, "instance i5 reports: second");
  EXPECT_EQ(all.news.back().level, "error");
  EXPECT_EQ(all.failure_count, cluster_news::max_failures + 3);
  ASSERT_LE(all.failures.size(), cluster_news::max_failures);
  EXPECT_EQ(all.failures.back().what, "second");
  EXPECT_EQ(all.failures.back().lines.size(), cluster_news::max_lines);
  EXPECT_EQ(all.failures.back().lines.front(), std::string(cluster_news::max_bytes, 'x'));
  EXPECT_EQ(all.failures.back().at_us, 7000);
  EXPECT_EQ(std::ranges::count(all.failures, "i5", &failure_status::instance), 1);
  status_reply rest;
  x.add_to(rest, {.news_from = all.news_count - 1, .failures_from = all.failure_count});
  EXPECT_EQ(rest.news.size(), 1u);
  EXPECT_TRUE(rest.failures.empty());
  EXPECT_EQ(rest.failure_count, all.failure_count);
}

// given: reports by and about members, and as many as one likes of their and of other names by who is none / expected:
// the latter take the place of none of the former
TEST(cluster_news, what_members_say_outlives_what_others_do) {
  cluster_news x;
  for (std::size_t i = 0; i < cluster_news::max_failures; ++i)
    x.fail({}, {1}, {"i" + std::to_string(i), "true", {}, 0, true});
  x.fail({}, {1}, {"i1", "forged", {}, 0, true}, false);
  for (int i = 0; i < 20; ++i)
    x.fail({}, {1}, {"x" + std::to_string(i), "forged", {}, 0, true}, false);
  status_reply all;
  x.add_to(all, {});
  ASSERT_EQ(all.failures.size(), cluster_news::max_failures);
  EXPECT_EQ(std::ranges::count(all.failures, "true", &failure_status::what), cluster_news::max_failures);
  x.fail({}, {1}, {"i1", "newer", {}, 0, true});
  x.add_to(all, {});
  EXPECT_EQ(all.failures.back().what, "newer");
}

} // namespace
} // namespace parcae
