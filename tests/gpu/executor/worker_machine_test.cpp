// The rules of a worker: each row of the table is taken, from each of its phases, and leads where it says.

#include "gpu/executor/worker_machine.hpp"
#include "tests/support/names.hpp"
#include "tests/support/table_checks.hpp"

#include <algorithm>
#include <functional>
#include <map>

namespace parcae {
namespace {

using phase = worker_phase;
using on = worker_trigger;

constexpr generation before{4}, now{5}, after{6};
constexpr job_id job{1};
const slot_id self{"a", 0};

job_generation of(generation g) {
  return {job, g};
}

/// Two stages of two layers. This worker is of the first stage, or no rank, or not in it at all.
prepare plan(generation g, std::size_t place = 0) {
  prepare x{g, {}, job, {}, {}, {1, 2, {0, 2, 4}, {}}, {}};
  for (const auto* name : {"b", "c", "d"})
    x.target.participants.push_back({{name, 0}, "host", 1});
  if (place < 3)
    x.target.participants[place].slot = self;
  return x;
}

constexpr std::size_t no_rank = 2, nowhere = 3;

inventory stage_at(const version& x) {
  return {{0, x}, {1, x}};
}

training_state trained(std::uint64_t steps) {
  training_state x;
  x.at = {steps, now};
  x.result.step = steps - 1;
  return x;
}

/// A machine, what it said and did last, and which rows it took.
struct worker {
  worker() {
    m.observe = [this](std::size_t row, worker_phase from) { taken.emplace_back(row, from); };
  }

  void does(worker_machine::effects x) { all = std::move(x); }
  void tell(const worker_command& x) { // as from the network
    auto first = m.hear(x);
    does(m.take(x));
    all.insert(all.begin(), first.begin(), first.end());
  }

  void bring_to(worker_phase to, generation g = now) {
    const bool ranks = to != phase::delivered;
    if (to == phase::absent)
      return;
    does(m.hear(plan(g, ranks ? 0 : no_rank)));
    if (to == phase::preparing)
      return;
    if (to == phase::unprepared)
      return does(m.not_connected(of(g), {g, failure::unreachable, 1, "nobody there", {}}));
    does(m.connected(of(g), 7));
    if (to == phase::prepared)
      return;
    if (to == phase::cut)
      return does(m.hear(abort_generation{g}));
    tell(transfer{g, {3, before}});
    if (to == phase::moving)
      return;
    if (to == phase::unmoved)
      return does(m.not_moved(of(g), failure::communication, "closed", {}));
    does(m.moved(of(g), {3, before}, 10, stage_at({3, before})));
    if (to == phase::ready || to == phase::delivered)
      return;
    tell(activate{g, {3, before}});
    training_state begun;
    begun.at = {3, before};
    does(m.begun(begun));
    auto x = trained(4);
    if (to == phase::running)
      return;
    if (to == phase::stopped) {
      x.result.stop = true;
      return does(m.committed(x));
    }
    if (to == phase::broken)
      return does(m.step_failed(x, failure::communication, "closed"));
    does(m.hear(abort_generation{g}));
    if (to == phase::aborted)
      does(m.take(abort_generation{g}));
  }

  /// Names of what it did, reports by theirs.
  std::vector<std::string> did() const { return names_of<worker_effects::say>(all, report_names, effect_names); }

  template <class T>
  T said() const {
    return report_in<T, worker_effects::say>(all);
  }

  static constexpr auto report_names =
      std::to_array<const char*>({"loaded", "PREPARED", "STOPPED", "DELIVERED", "READY", "ACTIVE", "ABORTED", "DECIDED",
                                  "PROGRESS", "EVALUATED", "TRACED", "FAILED", "RECALLED"});
  static constexpr auto effect_names =
      std::to_array<const char*>({"say", "connect", "cut", "drop", "move", "leave", "begin", "ask to stop",
                                  "ask for a snapshot", "settle", "apply", "drop gradients", "send a snapshot",
                                  "progress", "trace", "free", "make room", "use keepers", "forget"});
  static_assert(report_names.size() == std::variant_size_v<worker_report>); // each by its place there
  static_assert(effect_names.size() == std::variant_size_v<worker_effect>);

  worker_machine m{self};
  worker_machine::effects all; ///< of the last call
  std::vector<std::pair<std::size_t, worker_phase>> taken;
};

protect with_keepers(bool now = false, bool whole = false) {
  return {job, {{{{"k", 0}, "host", 1}, {0, 1}}}, {}, now, whole};
}

commit_result result_of(std::uint64_t step) {
  commit_result x;
  x.step = step;
  return x;
}

using play = std::function<void(worker&, worker_phase from)>;

/// What brings each row about, from a phase that it names.
std::map<std::pair<worker_trigger, std::string>, play> scenes() {
  const auto final_step = [](worker& w, worker_phase) {
    auto x = trained(4);
    x.is_final = true;
    w.does(w.m.no_step_left(x));
  };
  const auto told = [](worker_command x) { return [x](worker& w, worker_phase) { w.tell(x); }; };
  const auto heard = [](worker_command x) { return [x](worker& w, worker_phase) { w.does(w.m.hear(x)); }; };
  const auto moves = [](worker& w, worker_phase) {
    w.does(w.m.moved(of(now), {3, before}, 10, stage_at({3, before})));
  };
  const auto begins = [](bool last) {
    return [last](worker& w, worker_phase) {
      training_state x;
      x.at = {3, before};
      x.is_final = last;
      w.does(w.m.begun(x));
    };
  };
  const auto open = [](worker& w, worker_phase) { // its gradients are complete
    auto x = trained(4);
    x.complete = 4;
    w.m.interrupted(x);
    w.tell(decide{now, result_of(4)});
  };
  return {
      {{on::prepare_heard, "it is no participant"},
       [](worker& w, worker_phase) { w.does(w.m.hear(plan(now, nowhere))); }},
      {{on::prepare_heard, ""}, [](worker& w, worker_phase) { w.does(w.m.hear(plan(now))); }},
      {{on::connected, ""}, [](worker& w, worker_phase) { w.does(w.m.connected(of(now), 7)); }},
      {{on::not_connected, ""}, [](worker& w, worker_phase) { w.does(w.m.not_connected(of(now), {})); }},
      {{on::stop_heard, ""}, heard(stop{now})},
      {{on::activate_heard, ""}, heard(activate{now, {}})},
      {{on::abort_heard, ""}, heard(abort_generation{now})},
      {{on::stop, ""}, [](worker& w, worker_phase) { w.does(w.m.take(stop{now})); }},
      {{on::transfer, ""}, told(transfer{now, {3, before}})},
      {{on::moved, "a rank"}, moves},
      {{on::moved, ""},
       [moves](worker&, worker_phase) {
         worker w;
         w.does(w.m.hear(plan(now, no_rank)));
         w.does(w.m.connected(of(now), 7));
         w.tell(transfer{now, {3, before}});
         moves(w, phase::moving);
         EXPECT_THAT(w.did(), ElementsAre("DELIVERED"));
         throw w.taken.back(); // of another worker than the one brought here
       }},
      {{on::not_moved, ""},
       [](worker& w, worker_phase) { w.does(w.m.not_moved(of(now), failure::communication, "closed", {})); }},
      {{on::activate, ""}, told(activate{now, {3, before}})},
      {{on::begun, "at the last version"}, begins(true)},
      {{on::begun, ""}, begins(false)},
      {{on::evaluated, ""}, [](worker& w, worker_phase) { w.does(w.m.evaluated(trained(4), 0, {1.0})); }},
      {{on::committed, "a rank asked to stop, and steps are left"},
       [](worker& w, worker_phase) {
         auto x = trained(4);
         x.result.stop = true;
         w.does(w.m.committed(x));
       }},
      {{on::committed, ""}, [](worker& w, worker_phase) { w.does(w.m.committed(trained(4))); }},
      {{on::no_step_left, ""}, final_step},
      {{on::step_failed, ""},
       [](worker& w, worker_phase) { w.does(w.m.step_failed(trained(3), failure::communication, "closed")); }},
      {{on::step_failed, "not for want of its connections"},
       [](worker& w, worker_phase) { w.does(w.m.step_failed(trained(3), failure::computation, "NaN")); }},
      {{on::abort, ""}, [](worker& w, worker_phase) { w.does(w.m.take(abort_generation{now})); }},
      {{on::decide, "its step is open here"}, open},
      {{on::decide, ""}, told(decide{now, {}})},
      {{on::applied, ""}, [](worker& w, worker_phase) { w.does(w.m.applied(trained(5))); }},
      {{on::not_applied, ""},
       [](worker& w, worker_phase) {
         auto x = trained(4);
         x.voided = true;
         w.does(w.m.not_applied(x, "no memory"));
       }},
      {{on::superseded, ""},
       [](worker& w, worker_phase) {
         w.bring_to(phase::prepared, after);
         w.tell(transfer{after, {3, before}});
       }},
      {{on::left_behind, ""}, told(release{after, {}})},
      {{on::released, "no rank"},
       [](worker& w, worker_phase from) { // the one brought here may be a rank
         if (from == phase::delivered)
           return w.tell(release{now, {}});
         worker other;
         other.does(other.m.hear(plan(now, no_rank)));
         if (from == phase::unprepared)
           other.does(other.m.not_connected(of(now), {}));
         else if (from != phase::preparing)
           other.does(other.m.connected(of(now), 7));
         if (from == phase::moving || from == phase::unmoved)
           other.tell(transfer{now, {3, before}});
         if (from == phase::unmoved)
           other.does(other.m.not_moved(of(now), failure::refused, "", {}));
         if (from == phase::cut)
           other.does(other.m.hear(abort_generation{now}));
         other.tell(release{now, {}});
         EXPECT_THAT(other.did(), ElementsAre("drop"));
         throw other.taken.back();
       }},
      {{on::trace, ""}, told(trace_steps{now, 3})},
      {{on::protect, "at the last version"},
       [](worker& w, worker_phase) {
         auto x = trained(4);
         x.is_final = true;
         w.does(w.m.committed(x));
         w.tell(with_keepers());
       }},
      {{on::protect, "a snapshot is due"}, told(with_keepers(true))},
      {{on::protect, "the whole stage is asked for, and is good"}, told(with_keepers(false, true))},
      {{on::protect, "at the last version, and that is good"},
       [](worker& w, worker_phase) {
         auto x = trained(4);
         x.is_final = true;
         w.m.interrupted(x);
         w.tell(with_keepers());
       }},
      {{on::forget, ""}, told(forget{job})},
  };
}

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
  w.tell(transfer{now, {}});
  EXPECT_THAT(w.did(), ElementsAre("leave", "move"));
  w.does(w.m.moved(of(now), {}, 10, stage_at({})));
  EXPECT_THAT(w.did(), ElementsAre("READY"));
  w.tell(activate{now, {}});
  EXPECT_THAT(w.did(), ElementsAre("begin"));
  training_state begun;
  begun.began_ms = 5;
  w.does(w.m.begun(begun));
  EXPECT_THAT(w.did(), ElementsAre("ACTIVE"));
  EXPECT_EQ(w.said<active>().since_ms, 5);
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

// given: the job's last version, whose snapshot may go to a keeper that is gone, and others named before it is told
// that no step is left / expected: it goes to those
TEST(worker_machine, sends_the_last_version_to_keepers_that_are_named_meanwhile) {
  worker w;
  w.bring_to(phase::running);
  w.tell(with_keepers());
  auto x = trained(4);
  x.is_final = x.result.snapshot = true;
  w.does(w.m.committed(x));
  EXPECT_THAT(w.did(), ElementsAre("send a snapshot", "progress"));
  w.tell(with_keepers());
  EXPECT_THAT(w.did(), ElementsAre("use keepers"));
  w.does(w.m.no_step_left(x));
  EXPECT_THAT(w.did(), ElementsAre("send a snapshot", "STOPPED"));
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
    w.bring_to(phase::ready, {7});
    EXPECT_EQ(w.m.phase_of(of({7})), phase::ready);
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
  w.tell(transfer{after, {2, before}});
  w.does(w.m.moved(of(after), {2, before}, 10, stage_at({2, before})));
  w.tell(abort_generation{now});
  EXPECT_EQ(w.said<aborted>().at, version{});
  w.tell(with_keepers(false, true));
  EXPECT_THAT(w.did(), ElementsAre("use keepers"));
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

// given: a job's shards, and TRANSFER of another job / expected: the first ones go before anything moves
TEST(worker_machine, holds_shards_of_one_job) {
  worker w;
  w.bring_to(phase::ready);
  auto other = plan(now);
  other.job = {2};
  w.does(w.m.hear(other));
  EXPECT_THAT(w.did(), ElementsAre("cut", "drop", "connect"));
  w.does(w.m.connected({{2}, now}, 7));
  w.tell(transfer{now, {}});
  EXPECT_THAT(w.did(), ElementsAre("leave", "free", "move"));
}

} // namespace
} // namespace parcae
