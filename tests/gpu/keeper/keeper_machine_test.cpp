// The rules of a keeper: each row of the table is taken, from each of its phases, and leads where it says.

#include "gpu/keeper/keeper_machine.hpp"
#include "tests/support/names.hpp"
#include "tests/support/table_checks.hpp"

#include <algorithm>
#include <functional>
#include <map>

namespace parcae {
namespace {

using phase = keeper_phase;
using on = keeper_trigger;

constexpr generation before{4}, now{5}, after{6};
constexpr job_id job{1}, other_job{2};
constexpr version held{3, before}, next{4, now};
constexpr secret_key key{{1}}, other_key{{2}};
const slot_id self{"k", 0};

/// This keeper is to send layers 0 and 1.
prepare plan(generation g, job_id of = job) {
  prepare x{g, {}, of, {}, {}, {1, 1, {0, 2}, {}}, {{0, 1, 0}, {1, 1, 0}}};
  x.target.participants = {{{"a", 0}, "host", 1}, {self, "host", 1}};
  return x;
}

job_specification specification() {
  job_specification x;
  x.model = {.kind = "mlp", .layers = 1, .width = 5, .vocabulary = 5};
  x.steps = 1000;
  return x;
}

guard guarded(const secret_key& by, job_id of = job) {
  return {of, by, now, specification()};
}

/// All there is, is good up to `safe`.
confirm confirmed(const version& safe) {
  return {job, safe, safe, {{before, 0, 3}, {now, 3, UINT64_MAX}}, true};
}

const replicate there{job, held, {{"l", 0}, "host", 1}, {0, 1}};

checkpoint written(job_id of = job) {
  return {of, held, "x/3@4", {}, {}, {}};
}

restore asked(const version& at = {2, before}) {
  return {job, at, "x/2@4", {}};
}

failed closed(generation g) {
  return {g, failure::communication, 0, "closed", {}};
}

/// A machine, what it said and did last, and which rows it took.
struct keeper {
  explicit keeper(bool has_folder = true) : m(self, has_folder) {
    m.observe = [this](std::size_t row, keeper_phase from) { taken.emplace_back(row, from); };
  }

  void does(keeper_machine::effects x) { all = std::move(x); }
  void tell(const keeper_command& x) { does(m.take(x)); }

  void receive(const version& at, job_id of = job) {
    for (std::uint32_t layer = 0; layer < 2; ++layer)
      does(m.arrived(of, std::make_shared<const shard_bytes>(shard_bytes{layer, at, {{std::byte(layer)}}}), {}));
  }

  void bring_to(phase to, generation g = now) {
    if (to == phase::no_job)
      return;
    tell(guarded(key));
    receive(held);
    does(m.caught_up());
    if (to == phase::holding || to == phase::absent)
      return;
    tell(plan(g));
    if (to == phase::preparing)
      return;
    if (to == phase::broken)
      return does(m.broke(closed(g)));
    does(m.connected(g));
    if (to == phase::prepared)
      return;
    tell(activate{g, held});
    if (to == phase::delivered)
      does(m.sent(g));
  }

  phase stands(phase like) const { return like <= phase::holding ? m.holding_phase() : m.part_phase(); }

  /// Names of what it did, reports by theirs.
  std::vector<std::string> did() const { return names_of<keeper_effects::say>(all, report_names, effect_names); }

  template <class T>
  T effect() const {
    for (const auto& x : all)
      if (const auto* y = std::get_if<T>(&x))
        return *y;
    ADD_FAILURE() << "not done";
    return {};
  }

  template <class T>
  T said() const {
    return report_in<T, keeper_effects::say>(all);
  }

  static constexpr std::array report_names{"PREPARED",     "ABORTED",  "FAILED",  "KEPT",
                                           "CHECKPOINTED", "RESTORED", "RECALLED"};
  static constexpr std::array effect_names{"say",  "take snapshots", "connect", "cut",  "send",
                                           "copy", "end a copy",     "write",   "read", "forget"};
  static_assert(report_names.size() == std::variant_size_v<keeper_report>, "a name for each, in their order");
  static_assert(effect_names.size() == std::variant_size_v<keeper_effect>, "likewise");

  keeper_machine m;
  keeper_machine::effects all; ///< of the last call
  std::vector<std::pair<std::size_t, keeper_phase>> taken;
};

inventory layers_at(const version& x) {
  return {{0, x}, {1, x}};
}

using play = std::function<void(keeper&)>;

/// What brings each row about, from a phase that it names.
std::map<std::pair<keeper_trigger, std::string>, play> scenes() {
  const auto told = [](keeper_command x) { return [x](keeper& k) { k.tell(x); }; };
  return {
      {{on::named, ""}, told(guarded(key))},
      {{on::guard, "its key is new"}, told(guarded(other_key))},
      {{on::guard, ""}, told(guarded(key))},
      {{on::arrived, ""}, [](keeper& k) { k.receive(next); }},
      {{on::caught_up, "it holds more than it said"},
       [](keeper& k) {
         k.receive(next);
         k.does(k.m.caught_up());
       }},
      {{on::confirm, ""}, told(confirmed(held))},
      {{on::replicate, "it is not on its way"}, told(there)},
      {{on::copied, ""}, [](keeper& k) { k.does(k.m.copied(there)); }},
      {{on::checkpoint, "there is no folder"}, told(written())},
      {{on::checkpoint, "nothing of that job is held"}, told(written(other_job))},
      {{on::checkpoint, ""}, told(written())},
      {{on::restore, "there is no folder"}, told(asked())},
      {{on::restore, "it is not being read"}, told(asked())},
      {{on::read, "it is of another job"},
       [](keeper& k) {
         k.does(k.m.read({other_job, held, false, {}, false}));
       }},
      {{on::read, ""},
       [](keeper& k) {
         k.does(k.m.read({job, held, false, {}, false}));
       }},
      {{on::prepare, ""}, told(plan(after))},
      {{on::prepare_again, ""}, told(plan(now))},
      {{on::connected, ""}, [](keeper& k) { k.does(k.m.connected(now)); }},
      {{on::activate, "it lacks a layer of it"}, told(activate{now, next})},
      {{on::activate, ""}, told(activate{now, held})},
      {{on::sent, ""}, [](keeper& k) { k.does(k.m.sent(now)); }},
      {{on::broke, ""}, [](keeper& k) { k.does(k.m.broke(closed(now))); }},
      {{on::abort_generation, "it is that one"}, told(abort_generation{now})},
      {{on::abort_generation, ""}, told(abort_generation{before})},
      {{on::forget, ""}, told(forget{job})},
  };
}

TEST(keeper_machine, takes_each_row_from_each_of_its_phases) {
  const auto rows = keeper_machine::table();
  play_each_row(rows, scenes(), phase::no_job, phase::broken, [&](std::size_t i, phase from, const play& scene) {
    keeper k(rows[i].condition != "there is no folder");
    k.bring_to(from);
    ASSERT_EQ(k.stands(from), from);
    k.taken.clear();
    scene(k);
    EXPECT_THAT(k.taken, Contains(std::pair(i, from)));
    EXPECT_EQ(k.stands(from), rows[i].to.value_or(from));
  });
}

TEST(keeper_machine, hides_no_row_by_one_before) {
  expect_no_row_hidden(keeper_machine::table());
}

TEST(keeper_machine, has_its_table_in_the_readme) {
  expect_in_file(table_of(keeper_machine::table()), "gpu/keeper/README.md");
}

// given / expected: its part in a generation says each word once, and again when asked again
TEST(keeper_machine, says_its_last_word_again) {
  keeper k;
  k.bring_to(phase::holding);
  k.tell(plan(now));
  EXPECT_THAT(k.did(), ElementsAre("connect"));
  k.tell(plan(now));
  EXPECT_THAT(k.did(), IsEmpty()) << "it connects still";
  k.does(k.m.connected(now));
  EXPECT_EQ(k.said<prepared>().checksum, checksum_of(plan(now)));
  k.tell(plan(now));
  EXPECT_THAT(k.did(), ElementsAre("PREPARED"));
  k.tell(activate{now, held});
  EXPECT_THAT(k.did(), ElementsAre("send"));
  EXPECT_EQ(k.effect<keeper_effects::send>().shards.size(), 2u);
  k.tell(activate{now, held});
  EXPECT_THAT(k.did(), IsEmpty()) << "it sends still";
  k.does(k.m.sent(now));
  EXPECT_THAT(k.did(), IsEmpty());
  EXPECT_EQ(k.m.part_phase(), phase::delivered);
  k.tell(activate{now, held});
  EXPECT_THAT(k.did(), IsEmpty());
  k.tell(abort_generation{now});
  EXPECT_THAT(k.did(), ElementsAre("cut", "ABORTED"));
  k.tell(abort_generation{now});
  EXPECT_THAT(k.did(), ElementsAre("ABORTED"));
  EXPECT_EQ(k.said<aborted>().held, layers_at(held));
  k.tell(plan(now));
  EXPECT_THAT(k.did(), IsEmpty()) << "it is over";
}

// given: a part that fails, and shards that come after that / expected: FAILED again, with what is held then
TEST(keeper_machine, says_again_why_it_failed) {
  keeper k;
  k.bring_to(phase::broken);
  EXPECT_EQ(k.said<failed>().held, layers_at(held));
  k.receive(next);
  for (const auto& again : {keeper_command(plan(now)), keeper_command(activate{now, held})}) {
    k.tell(again);
    EXPECT_EQ(k.said<failed>().what, "closed");
    EXPECT_EQ(k.said<failed>().held.size(), 4u);
  }
}

// given: PREPARE of a newer generation, and what the older one's connections still say / expected: that part ended
// first, and is not heard any more; nor is an older PREPARE
TEST(keeper_machine, prepares_the_newest_only) {
  keeper k;
  k.bring_to(phase::preparing);
  k.tell(plan(after));
  EXPECT_THAT(k.did(), ElementsAre("cut", "connect"));
  EXPECT_EQ(k.effect<keeper_effects::cut>().of, now);
  for (auto x : {k.m.connected(now), k.m.broke(closed(now)), k.m.take(plan(now)), k.m.take(activate{now, held})})
    EXPECT_THAT(x, IsEmpty());
  EXPECT_EQ(k.m.part_phase(), phase::preparing);
}

// given: ACTIVATE at a version that is not held / expected: FAILED, and one at another version is served
TEST(keeper_machine, refuses_what_it_does_not_hold) {
  keeper k;
  k.bring_to(phase::prepared);
  k.tell(activate{now, next});
  EXPECT_EQ(k.said<failed>().kind, failure::refused);
  EXPECT_EQ(k.said<failed>().what, "layer 0 is not held at 4@5");
  k.tell(activate{now, held});
  EXPECT_THAT(k.did(), ElementsAre("send"));
}

// given: shards of a snapshot / expected: one KEPT for all of them, and none for what is there already, or void
TEST(keeper_machine, says_once_what_arrived) {
  keeper k;
  k.tell(guarded(key));
  EXPECT_THAT(k.did(), ElementsAre("take snapshots"));
  k.receive(held);
  EXPECT_THAT(k.did(), IsEmpty());
  k.does(k.m.caught_up());
  EXPECT_EQ(k.said<kept>().held, layers_at(held));
  k.receive(held);
  k.does(k.m.caught_up());
  EXPECT_THAT(k.did(), IsEmpty());
  k.tell(confirmed(held));
  EXPECT_EQ(k.said<kept>().digests.size(), 2u);
  k.receive({9, before});
  k.does(k.m.caught_up());
  EXPECT_THAT(k.did(), IsEmpty());
  k.receive(next, other_job);
  EXPECT_EQ(k.m.shards().held(), layers_at(held));
}

// given: GUARD again, with newer generations and with another key; CONFIRM / expected: snapshots of those are taken
TEST(keeper_machine, takes_snapshots_of_generations_that_were_named) {
  keeper k;
  k.tell(guarded(key));
  const auto admits = k.effect<keeper_effects::take_snapshots>().admits;
  EXPECT_EQ(admits->problem_of({4, after}), "version 4@6 is of a generation not heard of yet");
  auto newer = guarded(key);
  newer.newest = after;
  k.tell(newer);
  EXPECT_THAT(k.did(), IsEmpty());
  EXPECT_EQ(admits->problem_of({4, after}), "");
  auto chain = confirmed({});
  chain.chain.push_back({{7}, 4, UINT64_MAX});
  k.tell(chain);
  EXPECT_EQ(admits->problem_of({5, {7}}), "");
  k.tell(guarded(other_key));
  EXPECT_THAT(k.did(), ElementsAre("take snapshots"));
}

// given: REPLICATE again, before and after its layers have arrived; CONFIRM of a newer version / expected: sent once,
// then once more; ended
TEST(keeper_machine, sends_a_copy_once_at_a_time) {
  keeper k;
  k.bring_to(phase::holding);
  k.tell(there);
  EXPECT_THAT(k.did(), ElementsAre("copy"));
  EXPECT_EQ(k.effect<keeper_effects::copy>().sent->shards.size(), 2u);
  EXPECT_EQ(k.effect<keeper_effects::copy>().permit.token, permit_of(key, self).token);
  k.tell(there);
  EXPECT_THAT(k.did(), IsEmpty());
  k.does(k.m.copied(there));
  k.tell(there);
  EXPECT_THAT(k.did(), ElementsAre("copy"));
  k.tell(confirmed(held));
  EXPECT_THAT(k.did(), ElementsAre("KEPT"));
  k.tell(confirmed(next));
  EXPECT_THAT(k.did(), ElementsAre("end a copy", "KEPT"));
}

// given: RESTORE of an older version, twice, what is read of it, and RESTORE after that / expected: read once, then
// once more; KEPT before RESTORED
TEST(keeper_machine, reads_a_checkpoint_once_at_a_time) {
  keeper k;
  k.bring_to(phase::holding);
  k.tell(confirmed(held));
  k.tell(asked());
  EXPECT_THAT(k.did(), ElementsAre("read"));
  k.tell(asked());
  EXPECT_THAT(k.did(), IsEmpty());
  k.receive({2, before});
  k.does(k.m.read({job, {2, before}, false, {}, false}));
  EXPECT_THAT(k.did(), ElementsAre("KEPT", "RESTORED"));
  EXPECT_EQ(k.said<kept>().held, (inventory{{0, {2, before}}, {0, held}, {1, {2, before}}, {1, held}}));
  k.does(k.m.caught_up());
  EXPECT_THAT(k.did(), IsEmpty());
  k.tell(asked());
  EXPECT_THAT(k.did(), ElementsAre("read"));
}

// given: CHECKPOINT, with a newer version held too / expected: the layers of that version are written
TEST(keeper_machine, writes_one_version) {
  keeper k;
  k.bring_to(phase::holding);
  k.receive(next);
  k.tell(written());
  const auto shards = k.effect<keeper_effects::write>().shards;
  ASSERT_EQ(shards.size(), 2u);
  EXPECT_EQ(shards[0]->at, held);
  EXPECT_EQ(shards[1]->layer, 1u);
}

// given: a command of another job / expected: nothing of the one before is left
TEST(keeper_machine, serves_one_job) {
  keeper k;
  k.bring_to(phase::delivered);
  k.tell(guarded(key, other_job));
  EXPECT_THAT(k.did(), ElementsAre("cut", "forget", "take snapshots"));
  k.tell(abort_generation{now});
  EXPECT_THAT(k.said<aborted>().held, IsEmpty());
  k.tell(forget{job});
  EXPECT_THAT(k.did(), IsEmpty());
  k.tell(forget{other_job});
  EXPECT_THAT(k.did(), ElementsAre("forget"));
}

// given: GUARD of a model that nobody knows / expected: an error, and it can be said again
TEST(keeper_machine, does_nothing_for_a_model_that_is_not_known) {
  keeper k;
  auto unknown = guarded(key);
  unknown.specification.model.kind = "oracle";
  EXPECT_THROW(k.m.take(unknown), std::invalid_argument);
  k.tell(guarded(key));
  EXPECT_THAT(k.did(), ElementsAre("take snapshots"));
}

} // namespace
} // namespace parcae
