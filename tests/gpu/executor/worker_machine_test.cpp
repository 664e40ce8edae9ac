// The rules of a worker: each row of the table is taken, from each of its phases, and leads where it says.

#include "gpu/executor/executor.hpp"
#include "tests/gpu/executor/worker_scenes.hpp"

namespace parcae {
namespace {

TEST(worker_machine, takes_each_row_from_each_of_its_phases) {
  const auto rows = worker_machine::table();
  play_each_row(rows, scenes(), phase::absent, phase::aborted, [&](std::size_t i, phase from, const play& scene) {
    worker w;
    w.bring_to(from);
    w.taken.clear();
    std::pair<std::size_t, worker_phase> other{rows.size(), phase::absent};
    try {
      scene(w, from);
    } catch (const std::pair<std::size_t, worker_phase>& x) {
      other = x;
    }
    if (other != std::pair(i, from)) {
      EXPECT_THAT(w.taken, Contains(std::pair(i, from)));
      EXPECT_EQ(w.m.phase_of(of(now)), rows[i].to.value_or(from));
    }
  });
}

template <class Own>
struct hearing : executor_of<Own> {
  void want_snapshot() override {}
  void obey(Own x) override { heard.push_back(generation_of(widened<command>(std::move(x)))); }

  std::vector<generation> heard;
};

// given: commands for workers alone, for keepers alone, for both / expected: each role hears its own, and goes on
TEST(worker_machine, hears_nothing_that_is_for_keepers) {
  hearing<worker_command> w;
  hearing<keeper_command> k;
  for (executor* x : {static_cast<executor*>(&w), static_cast<executor*>(&k)})
    for (const command& what :
         std::vector<command>{stop{.current = before, .snapshot = false, .recorded = 0}, confirm{},
                              abort_generation{.current = now, .recorded = 0, .keeps_followed = false}})
      x->submit(what);
  EXPECT_THAT(w.heard, ElementsAre(before, now));
  EXPECT_EQ(k.heard.size(), 2u);
  EXPECT_EQ(k.heard.back(), now);
}

TEST(worker_machine, hides_no_row_by_one_before) {
  expect_no_row_hidden(worker_machine::table());
}

TEST(worker_machine, has_its_table_in_the_readme) {
  expect_in_file(table_of(worker_machine::table()), "gpu/executor/README.md");
}

// given / expected: a generation from PREPARE to STOPPED says each word once, and all again when asked again
TEST(worker_machine, says_its_last_word_again) {
  worker w;
  w.does(w.m.hear(plan(now)));
  EXPECT_THAT(w.did(), ElementsAre("connect"));
  w.does(w.m.hear(plan(now)));
  EXPECT_THAT(w.did(), IsEmpty());
  w.does(w.m.connected(of(now), 7));
  EXPECT_THAT(w.did(), ElementsAre("PREPARED"));
  w.does(w.m.hear(plan(now)));
  EXPECT_THAT(w.did(), ElementsAre("PREPARED"));
  EXPECT_EQ(w.said<prepared>().checksum, 7);
  w.tell(activate{now, {}});
  EXPECT_THAT(w.did(), ElementsAre("leave", "move"));
  w.tell(activate{now, {}}); // which it answers once it computes
  EXPECT_THAT(w.did(), IsEmpty());
  w.does(w.m.hear(plan(now)));
  EXPECT_THAT(w.did(), ElementsAre("PREPARED"));
  w.does(w.m.moved(of(now), stage_at({})));
  EXPECT_THAT(w.did(), ElementsAre("begin"));
  training_state begun;
  begun.began_ms = 5;
  begun.early_bytes = 10;
  begun.early_ms = 2;
  w.does(w.m.begun(begun));
  EXPECT_THAT(w.did(), ElementsAre("ACTIVE"));
  EXPECT_EQ(w.said<active>().since_ms, 5);
  EXPECT_EQ(w.said<active>().early_bytes, 10);
  EXPECT_EQ(w.said<active>().early_ms, 2);
  w.tell(stop{now});
  EXPECT_THAT(w.did(), ElementsAre("ask to stop", "ask to stop"));
  auto x = trained(1);
  x.result.stop = true;
  w.does(w.m.committed(x));
  EXPECT_THAT(w.did(), ElementsAre("progress", "STOPPED"));
  EXPECT_EQ(w.said<stopped>().held, stage_at({1, now}));
  w.tell(stop{now});
  EXPECT_THAT(w.did(), ElementsAre("STOPPED"));
  w.tell(activate{now, {}});
  EXPECT_THAT(w.did(), ElementsAre("ACTIVE", "STOPPED"));
}

// given: WARM of a generation that is prepared, twice; it follows all; then ACTIVATE / expected: it begins once, says
// WARMED once and when asked again, and moves the rest
TEST(worker_machine, goes_ahead_of_a_change) {
  worker w;
  w.bring_to(phase::prepared);
  w.tell(warm{after});
  EXPECT_THAT(w.did(), IsEmpty()) << "of another generation";
  w.tell(warm{now});
  EXPECT_THAT(w.did(), ElementsAre("warm"));
  w.tell(warm{now});
  EXPECT_THAT(w.did(), IsEmpty());
  w.does(w.m.warmed(of(now), 10, 2));
  EXPECT_THAT(w.did(), ElementsAre("WARMED"));
  EXPECT_EQ(w.said<warmed>().bytes, 10u);
  EXPECT_EQ(w.said<warmed>().ms, 2);
  w.tell(warm{now});
  EXPECT_THAT(w.did(), ElementsAre("WARMED"));
  w.tell(activate{now, {3, before}});
  EXPECT_THAT(w.did(), ElementsAre("leave", "move"));
  w.does(w.m.warmed(of(now), 10, 2)); // which comes late
  EXPECT_THAT(w.did(), IsEmpty());
}

// given: a layer cannot be followed / expected: FAILED, and no ACTIVATE is obeyed; ABORT is answered
TEST(worker_machine, says_that_it_cannot_follow) {
  worker w;
  w.bring_to(phase::warming);
  w.does(w.m.not_fed(of(now), failure::computation, "no memory"));
  EXPECT_THAT(w.did(), ElementsAre("cut", "FAILED"));
  EXPECT_EQ(w.said<failed>().what, "no memory");
  w.tell(activate{now, {3, before}});
  EXPECT_THAT(w.did(), IsEmpty());
  w.tell(abort_generation{now});
  EXPECT_THAT(w.did(), ElementsAre("cut", "ABORTED", "drop"));
}

// given: ABORT of a generation to which layers went ahead, with the word that they are to be kept / expected: they are
// held, and said each time; without it, or of what was never warm, nothing is; said again without it, they go
TEST(worker_machine, keeps_what_it_followed) {
  for (const bool keeps : {true, false}) {
    worker w;
    w.bring_to(phase::warming);
    w.does(w.m.not_fed(of(now), failure::communication, "closed")); // as who sent it is gone
    w.tell(abort_generation{now, 0, keeps});
    if (!keeps) {
      EXPECT_THAT(w.did(), ElementsAre("cut", "ABORTED", "drop"));
      EXPECT_THAT(w.m.held(), IsEmpty());
      continue;
    }
    EXPECT_THAT(w.did(), ElementsAre("cut", "keep followed"));
    w.does(w.m.kept_followed(of(now), stage_at({3, before})));
    EXPECT_THAT(w.did(), ElementsAre("ABORTED", "drop"));
    EXPECT_EQ(w.said<aborted>().held, stage_at({3, before}));
    w.tell(abort_generation{before});
    EXPECT_THAT(w.did(), ElementsAre("ABORTED"));
    EXPECT_EQ(w.said<aborted>().held, stage_at({3, before}));
    w.tell(abort_generation{now});
    EXPECT_THAT(w.did(), ElementsAre("free", "ABORTED"));
    EXPECT_THAT(w.said<aborted>().held, IsEmpty());
  }
  worker w;
  w.bring_to(phase::prepared);
  w.tell(abort_generation{now, 0, true});
  EXPECT_THAT(w.did(), ElementsAre("cut", "ABORTED", "drop"));
}

// given: what was followed and kept, and the next generation takes it / expected: it goes with RELEASE, as other state
TEST(worker_machine, hands_what_it_followed_to_the_next_generation) {
  worker w;
  w.bring_to(phase::warming);
  w.tell(abort_generation{now, 0, true});
  w.does(w.m.kept_followed(of(now), stage_at({3, before})));
  w.bring_to(phase::running, after);
  w.tell(abort_generation{now});
  EXPECT_THAT(w.m.held(), stage_at({3, before}));
}

// given: TRACE of more steps than may be asked for, and of another generation / expected: of as many as may; nothing
TEST(worker_machine, traces_a_bounded_number_of_steps) {
  worker w;
  w.bring_to(phase::running);
  w.tell(trace_steps{now, 1'000'000});
  ASSERT_THAT(w.did(), ElementsAre("trace"));
  EXPECT_EQ(std::get<worker_effects::trace>(w.all[0]).steps, trace_steps::most);
  w.tell(trace_steps{before, 3});
  EXPECT_THAT(w.did(), IsEmpty());
}

// given: ABORT in a step whose gradients are complete; DECIDE to commit, twice / expected: applied once
TEST(worker_machine, applies_a_decision_once) {
  worker w;
  w.bring_to(phase::running);
  w.does(w.m.hear(abort_generation{now}));
  EXPECT_THAT(w.did(), ElementsAre("cut"));
  EXPECT_FALSE(w.m.trains());
  training_state x;
  x.at = {3, before};
  x.complete = 3;
  w.m.interrupted(x);
  w.does(w.m.take(abort_generation{now}));
  EXPECT_THAT(w.did(), ElementsAre("settle", "ABORTED"));
  EXPECT_EQ(w.said<aborted>().complete, 3);
  w.does(w.m.take(decide{now, result_of(3)}));
  EXPECT_THAT(w.did(), ElementsAre("apply"));
  w.does(w.m.applied(trained(4)));
  EXPECT_THAT(w.did(), ElementsAre("DECIDED"));
  EXPECT_EQ(w.said<decided>().held, stage_at({4, now}));
  w.does(w.m.take(decide{now, result_of(3)}));
  EXPECT_THAT(w.did(), ElementsAre("drop gradients", "DECIDED"));
  EXPECT_EQ(w.m.held(), stage_at({4, now}));
}

// given: an apply that throws / expected: FAILED, and the stage's shards are gone, also from what is said of it later
TEST(worker_machine, holds_nothing_of_a_stage_that_is_void) {
  worker w;
  w.bring_to(phase::running);
  auto x = trained(3);
  x.voided = true;
  w.does(w.m.step_failed(x, failure::computation, "no memory"));
  EXPECT_THAT(w.did(), ElementsAre("free", "drop gradients", "FAILED"));
  EXPECT_THAT(w.said<failed>().held, IsEmpty());
  w.tell(abort_generation{now});
  EXPECT_EQ(w.said<aborted>().at, version{});
  EXPECT_THAT(w.said<aborted>().held, IsEmpty());
}

// given: PREPARE of a newer generation while an older one prepares / expected: that one goes, and never answers
TEST(worker_machine, prepares_the_newest_only) {
  worker w;
  w.bring_to(phase::preparing);
  w.does(w.m.hear(plan(after)));
  EXPECT_THAT(w.did(), ElementsAre("cut", "drop", "connect"));
  w.does(w.m.connected(of(now), 7));
  EXPECT_THAT(w.did(), IsEmpty());
  w.does(w.m.hear(plan(now)));
  EXPECT_THAT(w.did(), IsEmpty());
}

// given: the job's last version, reached before there was a keeper, and one that comes then, or comes once a manager
// has sent ABORT and died before it decided / expected: it is sent
TEST(worker_machine, sends_the_last_version_to_keepers_that_come_late) {
  worker w;
  w.bring_to(phase::running);
  auto x = trained(4);
  x.is_final = true;
  w.does(w.m.committed(x));
  w.does(w.m.no_step_left(x));
  EXPECT_THAT(w.did(), ElementsAre("STOPPED"));
  w.tell(with_keepers(true));
  EXPECT_THAT(w.did(), ElementsAre("use keepers", "send a snapshot"));
  w.tell(abort_generation{now});
  w.tell(with_keepers());
  EXPECT_THAT(w.did(), ElementsAre("use keepers", "send a snapshot"));
}

// given: the job's last version, as it turns out at once or when it is evaluated, whose snapshot may go to a keeper
// that is gone, and others named before it is told that no step is left / expected: it goes to those
TEST(worker_machine, sends_the_last_version_to_keepers_that_are_named_meanwhile) {
  for (const bool at_once : {true, false}) {
    worker w;
    w.bring_to(phase::running);
    w.tell(with_keepers());
    auto x = trained(4);
    x.result.snapshot = true;
    x.is_final = at_once;
    w.does(w.m.committed(x));
    EXPECT_THAT(w.did(), ElementsAre("send a snapshot", "progress"));
    w.tell(with_keepers());
    EXPECT_THAT(w.did(), ElementsAre("use keepers"));
    x.is_final = true;
    w.does(w.m.no_step_left(x));
    EXPECT_THAT(w.did(), ElementsAre("send a snapshot", "STOPPED"));
  }
}

// given: stopped, and shards move for the next generation, when its manager dies; the next one knows of none, or not
// even of this one / expected: nobody waits for the shards, and it says what it holds
TEST(worker_machine, a_transfer_that_no_manager_knows_of_keeps_none_waiting) {
  for (const auto asked : {now, generation{}}) {
    worker w;
    w.bring_to(phase::stopped);
    w.bring_to(phase::moving, after);
    w.does(w.m.hear(abort_generation{asked}));
    EXPECT_THAT(w.did(), testing::Contains("cut"));
    EXPECT_EQ(w.m.phase_of(of(after)), phase::cut);
    w.does(w.m.not_moved(of(after), failure::communication, "cut", stage_at({3, now})));
    w.does(w.m.take(abort_generation{asked}));
    EXPECT_EQ(w.said<aborted>().held, stage_at({3, now}));
    w.bring_to(phase::running, {7});
    EXPECT_EQ(w.m.phase_of(of({7})), phase::running);
  }
}

// given: FORGET while shards move, or a step waits for a peer that is gone / expected: nobody waits for that, nothing
// is left
TEST(worker_machine, a_job_that_is_over_keeps_none_waiting) {
  for (const auto from : {phase::moving, phase::running}) {
    worker w;
    w.bring_to(from);
    w.does(w.m.hear(forget{job}));
    EXPECT_THAT(w.did(), testing::Contains("cut"));
    w.does(w.m.take(forget{job}));
    EXPECT_EQ(w.m.phase_of(of(now)), phase::absent);
    EXPECT_THAT(w.m.held(), IsEmpty());
  }
}

// given: ABORTED, and a part in the next generation, for which an older version is moved there; ABORT again, or PROTECT
// / expected: the version that was trained is not said to be held, nor sent
TEST(worker_machine, has_no_version_that_others_took_the_place_of) {
  worker w;
  w.bring_to(phase::aborted);
  w.does(w.m.hear(plan(after)));
  w.does(w.m.connected(of(after), 7));
  w.tell(activate{after, {2, before}});
  w.does(w.m.not_moved(of(after), failure::communication, "closed", stage_at({2, before})));
  w.tell(abort_generation{now});
  EXPECT_EQ(w.said<aborted>().at, version{});
  w.tell(with_keepers(false, true));
  EXPECT_THAT(w.did(), ElementsAre("use keepers"));
}

// given: ABORT in the first step, when one of two layers has come whole, and after both have / expected: what is whole
// is said to be held; a stage of which a part is missing is of no version
TEST(worker_machine, holds_only_what_is_whole) {
  for (const bool all : {false, true}) {
    worker w;
    w.does(w.m.hear(plan(now)));
    w.does(w.m.connected(of(now), 7));
    w.tell(activate{now, {3, before}});
    w.does(w.m.moved(of(now), {}));
    training_state x;
    x.at = {3, before};
    w.does(w.m.begun(x));
    EXPECT_THAT(w.m.held(), IsEmpty());
    if (all)
      w.does(w.m.became_whole(stage_at(x.at)));
    else
      w.keeps = inventory{{0, x.at}};
    w.tell(abort_generation{now});
    EXPECT_THAT(w.did(), ElementsAre("cut", "settle", "ABORTED"));
    EXPECT_EQ(w.said<aborted>().held, all ? stage_at(x.at) : inventory({{0, x.at}}));
    EXPECT_EQ(w.said<aborted>().at, all ? x.at : version{});
  }
}

// given: RELEASE with layers to have room for, to who has no part / expected: room is made; none without such layers
TEST(worker_machine, makes_room_when_told_so) {
  worker w;
  w.tell(release{now, {}, {1, 2}});
  EXPECT_THAT(w.did(), ElementsAre("make room"));
  EXPECT_THAT(std::get<worker_effects::make_room>(w.all.back()).layers, ElementsAre(1u, 2u));
  w.tell(release{now, {}});
  EXPECT_THAT(w.did(), IsEmpty());
}

// given: a job's shards, and ACTIVATE of another job / expected: the first ones go before anything moves
TEST(worker_machine, holds_shards_of_one_job) {
  worker w;
  w.bring_to(phase::unmoved);
  w.m.not_moved(of(now), failure::communication, "closed", stage_at({3, before}));
  auto other = plan(now);
  other.job = {2};
  w.does(w.m.hear(other));
  EXPECT_THAT(w.did(), ElementsAre("cut", "drop", "connect"));
  w.does(w.m.connected({{2}, now}, 7));
  w.tell(activate{now, {}});
  EXPECT_THAT(w.did(), ElementsAre("leave", "free", "move"));
}

} // namespace
} // namespace parcae
