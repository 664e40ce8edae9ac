// Deaths and standstills of the manager at given moments, where chance would come seldom: the schedules of a manager
// that may be away, with the real actors in virtual time. What must hold is what `observed` says after each event; in
// the end the job is done, and nothing is left.

#include "tests/simulation/cluster.hpp"

#include <gmock/gmock.h>

namespace parcae::simulation {
namespace {

class manager_schedule : public testing::Test {
protected:
  static job_specification small_job(std::uint64_t steps) {
    job_specification job;
    job.model = {.kind = "mlp", .layers = 2, .width = 8, .sequence = 4, .vocabulary = 8};
    job.data.kind = "synthetic";
    job.data.samples = 1024;
    job.global_batch = 8;
    job.micro_batch = 1;
    job.virtual_replicas = 4;
    job.steps = steps;
    job.keeper_every = 5;
    job.max_depth = 1;
    job.min_width = 2;
    job.policy = "throughput";
    return job;
  }

  /// Two workers and a keeper train.
  void begin(const job_specification& job, std::uint64_t seed = 1, nanoseconds step = 100ms, bool standby = false) {
    SCOPED_TRACE(seed);
    c.reset();
    cluster_options options;
    options.seed = seed;
    options.job = job;
    options.data.step = step;
    options.standby = standby;
    options.data.shards = shards;
    c.emplace(options);
    c->start_manager();
    c->start_node("k0", true, 1);
    for (const auto* name : {"w0", "w1"})
      c->start_node(name, false, 1);
    ASSERT_TRUE(until([&] { return seen().newest_begun.value > 0 && trained() >= 3 && ranks() == 2; }));
  }

  const observed& seen() { return c->sees().seen(); }
  std::size_t ranks() { return seen().generations.at(seen().newest_begun).grid.ranks(); }
  /// Steps that were exchanged by the newest generation, or before it.
  std::uint64_t trained() {
    const auto& x = seen().generations.at(seen().newest_begun);
    return x.exchanged.empty() ? x.base.value_or(0) : *x.exchanged.rbegin() + 1;
  }
  std::size_t activated() {
    return static_cast<std::size_t>(
        std::ranges::count_if(seen().generations, [](const auto& x) { return x.second.base.has_value(); }));
  }

  /// False: it did not become so within two minutes.
  bool until(const std::function<bool()>& condition) {
    const auto end = c->time().now() + 2min;
    c->time().run_until(end, condition);
    return condition();
  }
  void run_for(nanoseconds x) {
    c->time().run_until(c->time().now() + x, [] { return false; });
  }

  /// Whoever is missing comes, and the job ends as it should.
  void expect_good_end(bool is_cancelled = false) {
    c->heal_all();
    for (int minutes = 0; minutes < 60 && !c->is_over() && c->sees().problems().empty(); ++minutes) {
      if (!c->has_manager())
        c->start_manager();
      for (const auto* name : {"k0", "w0", "w1"})
        if (!c->nodes().contains(name))
          c->start_node(name, name == std::string("k0"), 1);
      c->time().run_until(c->time().now() + 1min, [&] { return c->is_over() || !c->sees().problems().empty(); });
    }
    EXPECT_TRUE(c->is_over());
    EXPECT_TRUE(is_cancelled || seen().durable.good) << seen().durable.why;
    if (!c->has_manager()) // it may have died of saying so
      c->start_manager();
    run_for(10s);
    c->look_for_leaks();
    EXPECT_THAT(c->sees().problems(), testing::IsEmpty());
  }

  std::optional<cluster> c;
  std::vector<nanoseconds> shards; ///< what each takes; empty: nothing
};

// given: no manager for 90 minutes / expected: training goes on all the time, and then in the same generation
TEST_F(manager_schedule, away_for_more_than_an_hour) {
  ASSERT_NO_FATAL_FAILURE(begin(small_job(6'000), 1, 1s));
  const auto generations = activated();
  c->kill_manager();
  run_for(90min);
  const auto then = trained();
  EXPECT_GT(then, 4'000u);
  c->start_manager();
  ASSERT_TRUE(until([&] { return trained() >= then + 30; }));
  EXPECT_EQ(activated(), generations);
  expect_good_end();
}

// given: the manager stands still for 1.9, 3 and 20 s / expected: no generation ends because of it
TEST_F(manager_schedule, stands_still) {
  for (const nanoseconds time : {nanoseconds(1900ms), nanoseconds(3s), nanoseconds(20s)}) {
    ASSERT_NO_FATAL_FAILURE(begin(small_job(600)));
    const auto generations = activated();
    c->freeze_manager(time);
    run_for(time + 10s);
    EXPECT_FALSE(c->manager_stands_still());
    EXPECT_EQ(activated(), generations);
    expect_good_end();
    EXPECT_EQ(activated(), generations);
  }
}

// given: no manager; SIGTERM to the workers, whose time is over before it is back, and no snapshot but the first /
// expected: the next ones go on from what these left to the keeper at most two seconds before
TEST_F(manager_schedule, workers_leave_meanwhile) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    auto job = small_job(400);
    job.keeper_every = 1'000'000;
    ASSERT_NO_FATAL_FAILURE(begin(job, seed));
    c->kill_manager();
    run_for(1s);
    for (const auto* name : {"w0", "w1"})
      c->give_notice(c->nodes().at(name), 5s);
    run_for(6s);
    ASSERT_FALSE(c->nodes().contains("w0") || c->nodes().contains("w1"));
    const auto left = trained();
    c->start_manager();
    expect_good_end();
    ASSERT_GE(activated(), 2u);
    std::uint64_t from = 0;
    for (const auto& [g, x] : seen().generations)
      if (x.base && *x.base > 0)
        from = *x.base;
    EXPECT_GE(from + 20, left);
  }
}

// given: a spare, no manager; SIGTERM to a worker, and the manager is back in time / expected: no step is lost
TEST_F(manager_schedule, a_worker_leaves_and_the_manager_is_back_in_time) {
  ASSERT_NO_FATAL_FAILURE(begin(small_job(400)));
  c->start_node("w2", false, 1);
  run_for(1s);
  c->kill_manager();
  run_for(1s);
  c->give_notice(c->nodes().at("w0"), 20s);
  run_for(3s);
  c->start_manager();
  ASSERT_TRUE(until([&] { return !c->nodes().contains("w0"); }));
  ASSERT_TRUE(until([&] { return trained() > 60; }));
  const auto& chain = seen().durable.chain;
  for (std::size_t i = 0; i + 1 < chain.size(); ++i)
    EXPECT_EQ(chain[i].last, chain[i + 1].base);
  expect_good_end();
}

// given: a worker stands still from before the manager's death until after the next one's start, for short or so long
// that the other goes on without it / expected: the job is done, whatever the one that thaws believes
TEST_F(manager_schedule, a_worker_thaws_under_the_next_manager) {
  for (const nanoseconds time : {nanoseconds(1s), nanoseconds(4s), nanoseconds(12s), nanoseconds(1min)})
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      ASSERT_NO_FATAL_FAILURE(begin(small_job(400), seed));
      c->freeze_node(c->nodes().at("w1"), time);
      run_for(time / 4);
      c->kill_manager();
      run_for(time / 4);
      c->start_manager();
      run_for(time);
      expect_good_end();
    }
}

// given: two managers; the one that leads does not reach the store, and stands still when its lease ends, so shortly
// that no node notices / expected: the other one leads; what the first says when it goes on does no harm
TEST_F(manager_schedule, goes_on_while_another_one_leads) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    ASSERT_NO_FATAL_FAILURE(begin(small_job(400), seed, 100ms, true));
    c->cut_store(10s);
    run_for(c->chance().between(3'200ms, 3'900ms));
    c->give_notice(c->nodes().at("w0"), 20s); // something to say
    c->freeze_manager(c->chance().between(1'200ms, 2s));
    ASSERT_TRUE(until([&] { return seen().managers == 2; }));
    expect_good_end();
  }
}

// given: the manager dies within the last steps, or when the keepers have the final version, or the job is over, and
// before everybody was told / expected: done, once
TEST_F(manager_schedule, dies_while_the_job_ends) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    ASSERT_NO_FATAL_FAILURE(begin(small_job(40), seed));
    ASSERT_TRUE(until([&] { return trained() == 40; }));
    run_for(c->chance().between(0ms, 60ms));
    c->kill_manager();
    run_for(c->chance().between(0ms, 3s));
    c->start_manager();
    expect_good_end();
  }
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    ASSERT_NO_FATAL_FAILURE(begin(small_job(40), seed));
    ASSERT_TRUE(until([&] { return seen().durable.over; }));
    c->kill_manager();
    run_for(1s);
    expect_good_end();
  }
}

// given: the manager dies while shards move, which takes longer than the next one waits for who trained / expected:
// it goes on with that generation, and no step is lost
TEST_F(manager_schedule, dies_while_shards_move) {
  shards = {20s, 20s};
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    ASSERT_NO_FATAL_FAILURE(begin(small_job(400), seed));
    for (const auto* name : {"w2", "w3"})
      c->start_node(name, false, 1);
    ASSERT_TRUE(until([&] { return seen().durable.chain.back().last != UINT64_MAX; }));
    run_for(1s);
    c->kill_manager();
    run_for(1s);
    c->start_manager();
    expect_good_end();
    const auto& chain = seen().durable.chain;
    ASSERT_GE(chain.size(), 2u);
    for (std::size_t i = 0; i + 1 < chain.size(); ++i)
      EXPECT_EQ(chain[i].last, chain[i + 1].base);
  }
}

// given: a spare; a loss in a step that nobody knows the result of, so nobody is told a decision; the manager dies when
// the next generation is prepared, and the end of this one is not in the journal yet / expected: no step is lost
TEST_F(manager_schedule, dies_before_an_end_that_nobody_was_told_is_in_the_journal) {
  int open = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    ASSERT_NO_FATAL_FAILURE(begin(small_job(400), seed));
    c->start_node("w2", false, 1);
    run_for(c->chance().between(1s, 1'100ms));
    const auto g = seen().newest_begun;
    c->kill_node(c->nodes().at("w1"), false);
    ASSERT_TRUE(until([&] { return seen().generations.rbegin()->first > g; }));
    run_for(c->chance().between(0ms, 4ms));
    open += seen().durable.chain.back() == chain_link{g, seen().durable.chain.back().base, UINT64_MAX};
    c->kill_manager();
    run_for(c->chance().between(0ms, 3s));
    c->start_manager();
    expect_good_end();
    const auto& chain = seen().durable.chain;
    for (std::size_t i = 0; i + 1 < chain.size(); ++i)
      EXPECT_EQ(chain[i].last, chain[i + 1].base);
  }
  EXPECT_GT(open, 0);
}

// given: the manager dies while keepers write a checkpoint, or read one after all else was lost / expected: done
TEST_F(manager_schedule, dies_while_a_checkpoint_is_written_or_read) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    auto job = small_job(60);
    job.checkpoint_every = 10;
    ASSERT_NO_FATAL_FAILURE(begin(job, seed));
    ASSERT_TRUE(until([&] { return seen().durable.checkpoint.steps > 0; }));
    // The next one is due ten steps later.
    const auto due = seen().durable.checkpoint.steps + 10;
    ASSERT_TRUE(until([&] { return trained() >= due; }));
    run_for(c->chance().between(0ms, 300ms));
    c->kill_manager();
    run_for(c->chance().between(0ms, 2s));
    c->start_manager();
    if (seed % 2 == 0) {
      expect_good_end();
      continue;
    }
    run_for(1s);
    for (const auto* name : {"w0", "w1", "k0"})
      if (c->nodes().contains(name))
        c->kill_node(c->nodes().at(name), false);
    run_for(1s);
    for (const auto* name : {"k0", "w0"})
      c->start_node(name, name == std::string("k0"), 1);
    run_for(c->chance().between(0ms, 1500ms));
    c->kill_manager();
    run_for(1s);
    expect_good_end();
  }
}

// given: the manager dies so soon after its user has cancelled the job / expected: cancelled, and nothing is left of it
TEST_F(manager_schedule, dies_while_the_job_is_cancelled) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    ASSERT_NO_FATAL_FAILURE(begin(small_job(400), seed));
    c->cancel();
    run_for(c->chance().between(0ms, 60ms));
    c->kill_manager();
    run_for(c->chance().between(0ms, 3s));
    c->start_manager();
    expect_good_end(true);
  }
}

} // namespace
} // namespace parcae::simulation
