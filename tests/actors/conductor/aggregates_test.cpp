// The conductor's aggregates, each alone.

#include "actors/conductor/change_log.hpp"
#include "actors/conductor/checkpoint_ledger.hpp"
#include "actors/conductor/generations.hpp"
#include "actors/conductor/planning_desk.hpp"
#include "actors/conductor/roster.hpp"
#include "actors/conductor/training_course.hpp"
#include "tests/support/names.hpp"

#include <limits>

namespace parcae {
namespace {

const time_point start = time_point{} + 1h;

slot_id slot_of(const std::string& name) {
  return {name, {1}, 0};
}

// roster

struct roster_test : testing::Test {
  slot_state& worker(const std::string& name) {
    auto& slot = all.join(slot_of(name), start);
    slot.where = {slot_of(name), "127.0.0.1", 1};
    slot.loaded = true;
    return slot;
  }

  slot_state& keeper(const std::string& name) {
    auto& slot = worker(name);
    slot.keeper = slot.heard = true;
    return slot;
  }

  roster all{1s};
};

TEST_F(roster_test, only_workers_that_are_loaded_and_stay_are_usable) {
  worker("a");
  keeper("k");
  EXPECT_EQ(all.usable(), 1u);
  worker("b").loaded = false;
  EXPECT_EQ(all.usable(), 1u);
  EXPECT_TRUE(all.loading());
  all.find(slot_of("b"))->loaded = true;
  EXPECT_EQ(all.usable(), 2u);
  all.leaves(slot_of("a"), start);
  EXPECT_EQ(all.usable(), 1u);
  EXPECT_THAT(all.leaving(), ElementsAre(slot_of("a")));
  all.lose(slot_of("a"), start);
  EXPECT_THAT(all.leaving(), IsEmpty());
}

TEST_F(roster_test, back_offs_double_up_to_half_a_minute_and_are_forgiven) {
  auto& a = worker("a");
  std::vector<std::chrono::seconds> lasted;
  for (int i = 0; i < 7; ++i) {
    ASSERT_TRUE(all.exclude_for_a_while(a, start));
    lasted.push_back(std::chrono::duration_cast<std::chrono::seconds>(*a.excluded - start));
    EXPECT_EQ(all.next_return().has_value(), true);
  }
  EXPECT_THAT(lasted, ElementsAre(1s, 2s, 4s, 8s, 16s, 30s, 30s));
  a.excluded.reset();
  all.forgive();
  all.refuse_new_place(a, start);
  EXPECT_EQ(a.no_new_place, start + 1s);
  EXPECT_FALSE(a.usable());
  all.allow_new_places();
  EXPECT_TRUE(a.usable());
}

TEST_F(roster_test, who_is_excluded_for_good_never_returns) {
  auto& a = worker("a");
  all.exclude(a, time_point::max());
  EXPECT_FALSE(all.exclude_for_a_while(a, start));
  all.find_next_return();
  EXPECT_EQ(all.next_return(), std::nullopt);
  EXPECT_THAT(all.holders(true), IsEmpty());
}

TEST_F(roster_test, the_next_return_is_the_earliest) {
  all.exclude(worker("a"), start + 5s);
  all.exclude(worker("b"), start + 3s);
  EXPECT_EQ(all.next_return(), start + 3s);
  all.lose(slot_of("b"), start);
  all.find_next_return();
  EXPECT_EQ(all.next_return(), start + 5s);
}

TEST_F(roster_test, a_life_that_was_lost_comes_back_once_with_what_it_was_told) {
  worker("idle");
  worker("a").commanded = {{7}, {6}};
  all.lose(slot_of("idle"), start);
  all.lose(slot_of("a"), start);
  worker("idle");
  EXPECT_EQ(all.come_back(slot_of("idle")), std::nullopt); // it had never anything
  worker("a");
  const auto told = all.come_back(slot_of("a"));
  ASSERT_TRUE(told);
  EXPECT_EQ(told->prepared, generation{7});
  EXPECT_EQ(told->activated, generation{6});
  EXPECT_EQ(all.come_back(slot_of("a")), std::nullopt);
}

// given: a place whose lives end 3 s after they came, each by another process / expected: from the second on none gets
// a new place until a while behind the loss that doubles; a life of 10 s is none of them; another place has its own
TEST_F(roster_test, who_is_lost_soon_again_and_again_is_held_back) {
  auto now = start;
  const auto waits = [&](std::uint64_t life, const std::string& name = "a") {
    auto& slot = all.join({name, {life}, 0}, now);
    slot.commanded.prepared = {life};
    const auto until = all.hold_back(slot, now) ? *slot.no_new_place : now;
    return std::chrono::duration_cast<std::chrono::seconds>(until - now);
  };
  std::uint64_t life = 0;
  std::vector<std::chrono::seconds> waited;
  for (int i = 0; i < 8; ++i) {
    waited.push_back(waits(++life));
    now += 3s;
    all.lose({"a", {life}, 0}, now);
  }
  EXPECT_THAT(waited, ElementsAre(0s, 0s, 1s, 2s, 4s, 8s, 16s, 30s));
  EXPECT_EQ(waits(100, "b"), 0s);
  now += 20s; // its machine starts anew meanwhile
  EXPECT_EQ(waits(++life), 10s);
  now += 10s;
  all.lose({"a", {life}, 0}, now);
  EXPECT_EQ(waits(++life), 0s);
}

// given: instances of two kinds, and of none that is told / expected: a grid's kind is that of its instances
TEST_F(roster_test, knows_the_kind_of_a_grid) {
  all.join(slot_of("a"), start, "large");
  all.join(slot_of("b"), start, "large");
  all.join(slot_of("c"), start, "small");
  worker("d");
  const auto kind_of = [&](const std::string& x, const std::string& y) {
    return all.kind_of({1, 2, {0, 1, 2}, {{slot_of(x), "127.0.0.1", 1}, {slot_of(y), "127.0.0.1", 1}}});
  };
  EXPECT_EQ(kind_of("a", "b"), "large");
  EXPECT_EQ(kind_of("c", "a"), "large+small");
  EXPECT_EQ(kind_of("d", "d"), "");
  all.join(slot_of("c"), start);
  EXPECT_EQ(kind_of("c", "d"), "") << "it is another one now";
}

// given: steps on instances of a kind, then on another one, then on the first again / expected: what is measured on one
// says nothing of the other, and is known again
TEST(training_course, keeps_measures_of_kinds_apart) {
  job_specification job;
  const std::vector<layer_cost> sizes{2};
  const placement grid{1, 1, {0, 2}, {}};
  training_course course(0);
  std::uint64_t steps = 0;
  const auto train = [&](const std::string& kind, double ms) {
    course.begin(grid, 1, kind);
    for (int i = 0; i < 5; ++i) {
      progress x;
      x.at.steps = steps += 10;
      x.step_ms = ms;
      x.times = {{0, {1, 1, 1}, {}, {}}};
      course.hear(start, 0, x);
    }
  };
  const auto measured = [&] { return course.steps().measured(job, sizes, {}); };
  train("slow", 40);
  ASSERT_EQ(measured().size(), 1u);
  EXPECT_EQ(measured()[0].ms, 40);
  EXPECT_EQ(course.view(job, sizes, {}).kind, "slow");
  course.begin(grid, 1, "fast");
  EXPECT_TRUE(measured().empty());
  train("fast", 10);
  EXPECT_EQ(measured().at(0).ms, 10);
  course.begin(grid, 1, "slow");
  EXPECT_EQ(measured().at(0).ms, 40);
}

TEST_F(roster_test, snapshots_go_to_keepers_that_stay) {
  keeper("k");
  keeper("l");
  all.leaves(slot_of("k"), start);
  ASSERT_EQ(all.snapshot_targets().size(), 1u);
  EXPECT_EQ(all.snapshot_targets()[0].slot, slot_of("l"));
  all.leaves(slot_of("l"), start);
  EXPECT_EQ(all.snapshot_targets().size(), 2u);
}

TEST_F(roster_test, data_fails_the_job_only_if_all_said_so_twice_and_none_ever_had_it) {
  for (const auto* name : {"a", "b"}) {
    auto& slot = worker(name);
    slot.data_problem = "no file";
    slot.data_problems = 2;
  }
  EXPECT_EQ(all.data_problem_of_all(), "no file");
  all.find(slot_of("b"))->data_problems = 1;
  EXPECT_EQ(all.data_problem_of_all(), "");
  all.find(slot_of("b"))->data_problems = 2;
  EXPECT_TRUE(all.agrees("digest"));
  EXPECT_FALSE(all.agrees("other"));
  EXPECT_EQ(all.data_problem_of_all(), "");
}

TEST_F(roster_test, machines_are_shared) {
  for (const auto* name : {"a", "b"})
    worker(name).machine = {"host", 4, 1'000};
  worker("c").memory.bytes = 800;
  EXPECT_EQ(all.memory(), (slot_memory{500}));
  for (const auto* name : {"a", "b"})
    all.find(slot_of(name))->memory = {900, true};
  EXPECT_EQ(all.memory(), (slot_memory{800, true})); // of devices, which nobody shares
  platform_cost x;
  all.tell_of_busiest_machine(x, 2);
  EXPECT_EQ(x.machine_slots, 2u);
  EXPECT_EQ(x.machine_cores, 2.0);
}

TEST_F(roster_test, machines_of_those_that_train_to_their_end_count_if_nobody_stays) {
  for (const auto* name : {"a", "b", "c"})
    worker(name).machine = {"host", 4, 1'000};
  const auto slots = [&] {
    platform_cost x;
    all.tell_of_busiest_machine(x, 2);
    return x.machine_slots;
  };
  all.leaves(slot_of("a"), start);
  EXPECT_EQ(slots(), 2u);
  all.leaves(slot_of("b"), start);
  all.leaves(slot_of("c"), start);
  EXPECT_EQ(slots(), 3u);
  EXPECT_EQ(all.memory(), (slot_memory{333}));
}

// planning_desk

TEST(planning_desk, causes_are_named_once_and_not_without_end) {
  std::string all;
  for (int i = 0; i < 12; ++i)
    add_cause(all, "cause " + std::to_string(i / 2));
  EXPECT_EQ(all, "cause 0; cause 1; cause 2; cause 3; cause 4; cause 5");
  for (int i = 6; i < 20; ++i)
    add_cause(all, "cause " + std::to_string(i));
  EXPECT_TRUE(all.ends_with("cause 7; and more")) << all;
}

TEST(planning_desk, news_waits_for_the_change_in_progress) {
  planning_desk desk;
  desk.soon("join", std::nullopt);
  EXPECT_EQ(desk.at(), std::nullopt);
  EXPECT_TRUE(desk.take_missed());
  EXPECT_FALSE(desk.take_missed());
  desk.soon(desk.trigger(), start + 1s);
  desk.soon("loss", start + 2s);
  EXPECT_EQ(desk.at(), start + 1s);
  EXPECT_EQ(desk.trigger(), "join; loss");
  EXPECT_TRUE(desk.begin());
  EXPECT_EQ(desk.at(), std::nullopt);
  desk.at_the_latest(start + 5s);
  EXPECT_FALSE(desk.begin()); // without news
  desk.soon("other", start);
  EXPECT_EQ(desk.trigger(), "other");
}

TEST(planning_desk, only_the_newest_question_counts_and_failures_in_a_row_are_slowed_down) {
  planning_desk desk;
  const auto first = desk.ask();
  desk.ask();
  EXPECT_FALSE(desk.awaits(first));
  for (int i = 0; i < 3; ++i)
    desk.count_restart();
  EXPECT_EQ(desk.pause(1s), 0ms);
  std::vector<std::chrono::milliseconds> pauses;
  for (int i = 0; i < 8; ++i) {
    desk.count_restart();
    pauses.push_back(desk.pause(1s));
  }
  EXPECT_THAT(pauses, ElementsAre(1s, 2s, 4s, 8s, 16s, 32s, 32s, 32s));
  desk.forget_restarts();
  EXPECT_EQ(desk.pause(1s), 0ms);
}

// change_log

change_plan plan_of_two() {
  change_plan x;
  x.target.width = 2;
  x.target.depth = 1;
  x.kind = migration::intra_stage;
  x.bytes = 100;
  return x;
}

TEST(change_log, what_never_became_active_is_no_change) {
  change_log log;
  log.open(start, "loss");
  log.open(start + 1s, "other"); // one at a time
  EXPECT_EQ(log.trigger(), "loss");
  log.plan(start, {2}, plan_of_two(), false, 100);
  log.close();
  EXPECT_THAT(log.view().changes, IsEmpty());
  EXPECT_FALSE(log.is_open());
}

TEST(change_log, phases_and_the_stall_are_measured_and_the_decision_learns_its_cost) {
  change_log log;
  log.decided(start, "loss", {});
  log.open(start, "loss");
  log.stall(start);
  log.settle(start + 10ms, 1);
  log.plan(start + 20ms, {2}, plan_of_two(), false, 100);
  log.mark(&change_status::prepared_ms, start + 30ms);
  log.activate(start + 70ms, 30, {2}, 2);
  log.wait_for_state({2}, 5);
  log.first_commit(start + 100ms, {2});
  ASSERT_EQ(log.view().changes.size(), 1u);
  log.wait_for_state({2}, 8); // of another rank, later
  log.wait_for_state({1}, 9);
  log.wait_for_state({2}, 0);
  log.wait_for_state({2}, std::numeric_limits<double>::infinity());
  const auto& x = log.view().changes[0];
  EXPECT_EQ(x.configuration + " " + x.kind, "2×1 intra_stage");
  EXPECT_EQ(x.stall_ms, 70);
  EXPECT_EQ(x.ready_ms, 60);
  EXPECT_EQ(x.state_wait_ms, 8);
  EXPECT_EQ(x.first_commit_ms, 100);
  EXPECT_EQ(log.view().migrations, migration_counts{.intra_stage = 1});
  EXPECT_EQ(log.view().decisions[0].generation, 2u);
  EXPECT_EQ(log.view().decisions[0].realised_ms, 70);
  EXPECT_EQ(log.stall_began(), std::nullopt);
}

TEST(change_log, a_first_commit_after_the_next_change_began_still_counts_for_its_own) {
  change_log log;
  log.open(start, "start");
  log.plan(start, {1}, plan_of_two(), false, 0);
  log.activate(start + 10ms, 0, {1}, 2);
  log.close_if_active();
  log.open(start + 15ms, "join");
  log.first_commit(start + 40ms, {1});
  EXPECT_EQ(log.view().changes.back().first_commit_ms, 40);
  EXPECT_EQ(log.trigger(), "join");
}

TEST(change_log, is_bounded) {
  change_log log;
  for (std::uint64_t g = 1; g <= change_log::changes_kept + 10; ++g) {
    log.decided(start, "x", {});
    log.open(start, "x");
    log.plan(start, {g}, plan_of_two(), false, 0);
    log.activate(start, 0, {g}, 2);
    log.close();
  }
  EXPECT_EQ(log.view().changes.size(), change_log::changes_kept);
  EXPECT_EQ(log.view().decisions.size(), change_log::decisions_kept);
  EXPECT_EQ(log.view().decision_count, change_log::changes_kept + 10);
}

// checkpoint_ledger

struct ledger_test : testing::Test {
  ledger_test() {
    job.specification.name = "my job";
    job.specification.steps = 100;
    job.specification.checkpoint_every = 10;
    job.specification.checkpoints_kept = 2;
    job.model.state_bytes = {10, 10};
    chain.begin({1}, 0);
  }

  const checkpoint* begin(std::uint64_t steps, std::chrono::seconds at = {}) {
    return ledger.begin(start + at, {steps, {1}}, "digest", keepers);
  }

  std::optional<checkpoint_ledger::outcome> say(const slot_id& keeper, std::uint64_t steps,
                                                std::vector<std::uint32_t> layers, std::string problem = "") {
    return ledger.hear(keeper, {job.id, {steps, {1}}, std::move(layers), "/disk/x", std::move(problem)}, chain);
  }

  void write(std::uint64_t steps) {
    ASSERT_TRUE(begin(steps));
    say(k, steps, {0});
    ASSERT_TRUE(say(l, steps, {1})->good);
  }

  conducted_job job{{1}, {}, {}, {}, secret_key{{1}}, {}, {}};
  slot_id k = slot_of("k"), l = slot_of("l");
  std::set<slot_id> keepers{k, l};
  commit_chain chain;
  checkpoint_ledger ledger{job};
};

TEST_F(ledger_test, is_due_so_long_after_the_last_or_the_first_snapshot) {
  job.specification.checkpoint_every = 0;
  job.specification.checkpoint_every_ms = 60'000;
  EXPECT_FALSE(begin(4) || begin(8, 59s));
  ASSERT_TRUE(begin(9, 60s));
  EXPECT_TRUE(!say(k, 9, {0}) && say(l, 9, {1})->good);
  EXPECT_FALSE(begin(30, 119s) || begin(9, 130s)); // 9 is there
  EXPECT_TRUE(begin(30, 130s));
}

TEST_F(ledger_test, is_on_record_when_all_layers_are_on_disk) {
  EXPECT_FALSE(begin(9)); // not due
  const auto* what = begin(10);
  ASSERT_TRUE(what);
  EXPECT_TRUE(what->name.starts_with("my_job-")) << what->name;
  EXPECT_TRUE(what->name.ends_with("/10@1")) << what->name;
  EXPECT_FALSE(begin(20)); // one at a time
  EXPECT_TRUE(ledger.needs(k));
  EXPECT_FALSE(say(k, 10, {0}));
  EXPECT_FALSE(say(k, 10, {0})); // said again
  EXPECT_FALSE(ledger.needs(k));
  const auto outcome = say(l, 10, {1});
  ASSERT_TRUE(outcome);
  EXPECT_TRUE(outcome->good);
  EXPECT_EQ(ledger.newest(), (version{10, {1}}));
  EXPECT_EQ(ledger.view().checkpoint_folders.size(), 2u);
}

TEST_F(ledger_test, a_missing_layer_or_a_voided_version_is_no_checkpoint) {
  ASSERT_TRUE(begin(10));
  say(k, 10, {0});
  auto outcome = ledger.lose(l, chain);
  ASSERT_TRUE(outcome);
  EXPECT_FALSE(outcome->good);
  EXPECT_FALSE(ledger.has_failed({10, {1}})); // a keeper was lost: tried again
  ASSERT_TRUE(begin(10));
  chain.end({1}, 5);
  say(k, 10, {0});
  outcome = say(l, 10, {1});
  ASSERT_TRUE(outcome);
  EXPECT_FALSE(outcome->good);
  EXPECT_EQ(ledger.newest(), version{});
}

TEST_F(ledger_test, a_full_disk_waits_for_the_next_period_or_a_wish) {
  ASSERT_TRUE(begin(10));
  say(k, 10, {}, "disk full");
  EXPECT_EQ(say(l, 10, {1})->text, "no checkpoint of step 10: k/0: disk full");
  EXPECT_TRUE(ledger.has_failed({10, {1}}));
  EXPECT_FALSE(begin(15));
  ledger.ask({15, {1}});
  EXPECT_TRUE(begin(15));
  ledger.drop();
  EXPECT_TRUE(begin(20));
}

TEST_F(ledger_test, keeps_one_more_until_the_new_one_is_whole) {
  write(10);
  write(20);
  write(30);
  const auto* what = begin(40);
  ASSERT_TRUE(what);
  EXPECT_THAT(what->kept, ElementsAre(30u));
}

TEST_F(ledger_test, one_that_takes_too_long_is_given_up_and_the_final_one_is_always_due) {
  ASSERT_TRUE(begin(10));
  EXPECT_EQ(ledger.give_up_late(start), std::nullopt);
  EXPECT_EQ(ledger.give_up_late(start + 1h), (version{10, {1}}));
  EXPECT_EQ(ledger.limit(), std::nullopt);
  EXPECT_TRUE(begin(100));
}

TEST_F(ledger_test, says_how_to_go_on) {
  EXPECT_EQ(ledger.how_to_go_on(), "");
  write(10);
  EXPECT_EQ(ledger.how_to_go_on(), "; go on with: parcae submit --resume /disk/x");
}

// generations

TEST(trained_generation, knows_whether_only_one_can_say_what_a_stage_holds) {
  placement grid{2, 2, {0, 1, 2}, {}};
  for (const auto* name : {"a", "b", "c", "d"})
    grid.participants.push_back({slot_of(name), "", 0});
  trained_generation x({1}, grid, 0, start);
  EXPECT_EQ(x.rank(slot_of("d")), 3u);
  EXPECT_THAT(x.layers_of(slot_of("d")), ElementsAre(1u));
  EXPECT_THAT(x.layers_of(slot_of("e")), IsEmpty());
  x.note_answer(slot_of("a")); // stage 0
  EXPECT_FALSE(x.only_holder_among({slot_of("c")}));
  EXPECT_TRUE(x.only_holder_among({slot_of("c"), slot_of("d")}));
  x.note_answer(slot_of("b"));
  EXPECT_FALSE(x.only_holder_among({slot_of("c"), slot_of("d")}));
}

} // namespace
} // namespace parcae
