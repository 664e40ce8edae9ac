// MIGRATION_CONDUCTOR between a dummy job_manager and dummy slots, in virtual time.

#include "actors/conductor/model_facts.hpp"
#include "actors/manager/journal_store.hpp"
#include "actors/manager/migration_conductor.hpp"
#include "protocols/wire/behaviors.hpp"
#include "tests/support/actor_fixture.hpp"
#include "tests/support/other_node.hpp"

#include <algorithm>

namespace parcae {
namespace {

struct sink_of_slot {
  sink_of_slot() = default; // else CAF takes the first member for its constructor's argument
  report_sink to;
};

/// Answers when it is told to.
using dummy_journal_actor = journal_actor::extend<caf::reacts_to<timer_atom>>;

struct migration_conductor_test : actor_test {
  job_specification job = small();
  std::map<std::string, std::vector<command>> told;
  std::vector<job_outcome> outcomes;
  std::vector<request_plan> questions;
  bool answers = false; ///< the planner
  bool writes = true;   ///< the journal
  std::vector<journal_entries> journaled;
  std::vector<caf::response_promise> unwritten;
  job_manager_actor manager = dummy_manager();
  dummy_journal_actor journal = dummy_journal();
  conductor_actor conductor = spawn_conductor();
  std::uint64_t lives = 0;

  static job_specification small() {
    job_specification x;
    x.data.path = "/data";
    x.planning_interval_ms = 10'000;
    return x;
  }

  job_manager_actor dummy_manager() {
    return owned(system.spawn([this](job_manager_actor::pointer) -> job_manager_actor::behavior_type {
      return {
          [](const slot_offer&) {},
          [](const job_event&) {},
          [this](const job_outcome& x) { outcomes.push_back(x); },
          [](released_atom, const slot_id&) {},
          [](const fleet_news&) {},
          [](const forecast_query&) { return forecast_answer{}; },
          [this](const request_plan& x) -> caf::result<plan_chosen> {
            questions.push_back(x);
            if (!answers)
              return caf::make_error(caf::sec::request_receiver_down); // as of a planner that is being restarted
            return plan_chosen{x.request,
                               {{1, 1, {0, static_cast<std::uint32_t>(x.now.costs.size())}, 1, "asked"}, {}}};
          },
          [](view_atom) { return job_picture{}; },
          [](const trace_request&) { return trace_reply{}; },
      };
    }));
  }

  dummy_journal_actor dummy_journal() {
    return owned(system.spawn([this](dummy_journal_actor::pointer journal) -> dummy_journal_actor::behavior_type {
      return {[this, journal](const journal_entries& x) -> caf::result<void> {
                journaled.push_back(x);
                if (writes)
                  return caf::unit;
                auto answer = journal->make_response_promise<void>();
                unwritten.push_back(answer);
                return answer;
              },
              [this](timer_atom) { unwritten.back().deliver(caf::unit); }};
    }));
  }

  /// The journal has written what it was told last.
  void write() { tell(journal, timer_atom_v); }

  conductor_actor spawn_conductor() {
    migration_conductor_config x{{1}, job, facts_of(job), {}, secret_key{{1}}, manager, false, journal, {}};
    return owned(system.spawn(migration_conductor, x));
  }

  /// Carries out what it is told, and trains no step.
  slot_actor dummy_slot(const slot_id& slot) {
    return owned(system.spawn([this, slot](slot_actor::stateful_pointer<sink_of_slot> self) {
      return behavior_of_each_from<slot_actor::behavior_type>(
          std::type_identity<addressee>{}, std::type_identity<command>{},
          [=, this](const addressee& to, const auto& x) {
            EXPECT_EQ(to, (addressee{slot, {1}}));
            told[slot.instance].emplace_back(x);
            answer(self, slot, x);
          },
          [=](attach_atom, const addressee&, const report_sink& sink) { self->state.to = sink; });
    }));
  }

  template <class T>
  void answer(slot_actor::stateful_pointer<sink_of_slot> self, const slot_id& slot, const T& x) {
    if constexpr (std::is_same_v<T, load>)
      self->send(self->state.to, slot, loaded{x.job, "digest"});
    else if constexpr (std::is_same_v<T, prepare>)
      self->send(self->state.to, slot, prepared{x.next, checksum_of(x)});
    else if constexpr (std::is_same_v<T, activate>)
      self->send(self->state.to, slot, active{x.next});
    else if constexpr (std::is_same_v<T, abort_generation>)
      self->send(self->state.to, slot, aborted{x.current, {}, no_step, {}, {}});
  }

  slot_offer offer(const std::string& name, bool keeper = false) {
    const slot_id slot{name, {++lives}, 0};
    return {{slot, "127.0.0.1", 1}, keeper, "cpu", {}, {}, dummy_slot(slot)};
  }

  void offer_to_conductor(const slot_offer& x) { tell(conductor, x); }

  template <class Command>
  std::ptrdiff_t count(const std::string& name) {
    return std::ranges::count_if(told[name], [](const command& x) { return std::holds_alternative<Command>(x); });
  }

  phase now() { return ask<job_picture>(conductor, view_atom_v)->view->now; }

  std::vector<std::string> log() {
    std::vector<std::string> result;
    for (const auto& line : *ask<job_picture>(conductor, view_atom_v)->events)
      result.push_back(line.text);
    return result;
  }

  /// What the keeper holds of the version that a generation of one rank has made.
  kept snapshot(std::uint64_t steps) {
    kept x{{1}, {}, {}, {}};
    for (std::uint32_t layer = 0; layer < facts_of(job).state_bytes.size(); ++layer)
      x.held.push_back({layer, {steps, {1}}});
    return x;
  }
};

// given: a planner that does not answer, nothing runs / expected: it is asked three times, then another plans by
// throughput; the job goes on
TEST_F(migration_conductor_test, a_broken_planner_does_not_keep_a_job_from_running) {
  offer_to_conductor(offer("a"));
  advance(1s);
  EXPECT_EQ(now(), phase::running);
  EXPECT_EQ(questions.size(), 3u);
  EXPECT_THAT(log(), Contains(HasSubstr("planning by throughput")));
  EXPECT_TRUE(outcomes.empty());
}

// given: it breaks while a generation is healthy / expected: the configuration stays; the planner is asked again
TEST_F(migration_conductor_test, a_broken_planner_does_not_end_a_healthy_generation) {
  answers = true;
  offer_to_conductor(offer("a"));
  advance(1s);
  ASSERT_EQ(now(), phase::running);
  answers = false;
  advance(11s);
  EXPECT_GE(questions.size(), 4u);
  EXPECT_EQ(now(), phase::running);
  EXPECT_EQ(count<prepare>("a"), 1);
  EXPECT_THAT(log(), Contains(HasSubstr("the configuration stays")));
  EXPECT_TRUE(outcomes.empty());
}

// given: a known slot offered again / expected: attached anew, and asked again what the phase waits for; no other
// change
TEST_F(migration_conductor_test, a_slot_with_a_new_connection_keeps_its_place) {
  answers = true;
  auto a = offer("a");
  offer_to_conductor(a);
  advance(1s);
  ASSERT_EQ(now(), phase::running);
  a.handle = dummy_slot(a.where.slot);
  offer_to_conductor(a);
  advance(1s);
  EXPECT_EQ(now(), phase::running);
  EXPECT_EQ(count<prepare>("a"), 1);
  EXPECT_EQ(count<activate>("a"), 2);
  EXPECT_EQ(count<abort_generation>("a"), 0);
}

template <class F, class... Ts>
void for_each_of(std::type_identity<std::variant<Ts...>>, F f) {
  (f(Ts{}), ...);
}

template <class F>
void each_report(F f) {
  for_each_of(std::type_identity<report>{}, f);
}

// given: a report in a slot's name that would end the job, and one of each kind, said by another node or nobody /
// expected: nothing happens; said by its own, each is heard, and the job ends
TEST_F(migration_conductor_test, hears_of_a_slot_only_from_its_own_node) {
  answers = true;
  const auto a = offer("a");
  offer_to_conductor(a);
  advance(1s);
  ASSERT_EQ(now(), phase::running);
  const failed forged{{1}, failure::sample, 0, "forged", {}};
  const auto other = on_another_node(system, owned(system.spawn(ignore_all)));
  caf::send_as(other, conductor, a.where.slot, forged);
  caf::anon_send(conductor, a.where.slot, forged);
  run();
  EXPECT_TRUE(outcomes.empty());
  const auto view = [&] { return ask<job_picture>(conductor, view_atom_v)->view; }; // another one for each event
  each_report([&](const auto& x) {
    const auto before = view();
    caf::send_as(other, conductor, a.where.slot, x);
    caf::anon_send(conductor, a.where.slot, x);
    run();
    EXPECT_EQ(view(), before) << typeid(x).name();
    tell(conductor, a.where.slot, x);
    EXPECT_NE(view(), before) << typeid(x).name();
  });
  EXPECT_EQ(now(), phase::running);
  tell(conductor, a.where.slot, forged);
  EXPECT_EQ(outcomes.size(), 1u);
}

// given: spans are asked for, of more steps than may be; the rank tells of its generation, of another, and what is no
// span / expected: it is told to tell as many as may be; what is of the generation is answered, by parts, until all
// came; and asked for again, it begins anew
TEST_F(migration_conductor_test, collects_the_spans_that_were_asked_for) {
  answers = true;
  const auto ask_for = [&](std::uint32_t steps, std::uint64_t from = 0) {
    return *ask<trace_reply>(conductor, trace_request{1, steps, from});
  };
  EXPECT_TRUE(ask_for(3).is_over) << "nothing trains";
  const auto a = offer("a");
  offer_to_conductor(a);
  advance(1s);
  ASSERT_EQ(now(), phase::running);
  const auto begun = ask_for(1'000);
  EXPECT_EQ(begun.steps, trace_steps::most);
  EXPECT_EQ(begun.slots, std::vector{to_string(a.where.slot)});
  EXPECT_FALSE(begun.is_over);
  run();
  ASSERT_EQ(count<trace_steps>("a"), 1);
  EXPECT_EQ(std::get<trace_steps>(told["a"].back()).steps, trace_steps::most);
  const auto tells = [&](std::uint64_t of, std::uint64_t step, step_part part) {
    tell(conductor, a.where.slot, traced{{of}, {step, {{part, 0, 1, 2}}, false}});
  };
  tells(1, 5, step_part::forward);
  tells(1, 6, step_part::data);
  tells(2, 7, step_part::data);
  tells(1, 7, static_cast<step_part>(77));
  const auto told_of = ask_for(0, 1);
  EXPECT_EQ(told_of.number, begun.number);
  EXPECT_EQ(told_of.count, 2u);
  ASSERT_EQ(told_of.traces.size(), 1u);
  EXPECT_EQ(told_of.traces[0].step, 6u);
  EXPECT_EQ(told_of.traces[0].spans, (std::vector<step_span>{{step_part::data, 0, 1, 2}}));
  const auto again = ask_for(1);
  EXPECT_NE(again.number, begun.number);
  EXPECT_EQ(again.count, 0u);
  tells(1, 8, step_part::data);
  tells(1, 9, step_part::data);
  EXPECT_TRUE(ask_for(0).is_over);
  EXPECT_EQ(ask_for(0).count, 1u);
}

// given: more spans than are kept / expected: as many as fit into a reply at a time; then traces without spans. Given
// more spans than a trace has, or times that are none: nothing
TEST(trace_collection, is_bounded) {
  const placement grid{2, 1, {0, 1}, {{{"a", 1}, "host", 1}, {{"b", 1}, "host", 1}}};
  trace_collection all;
  all.begin({1}, {1}, grid, trace_steps::most);
  const step_trace large{0, std::vector<step_span>(step_trace::max_spans), false};
  for (std::uint32_t i = 0; i < trace_steps::most; ++i)
    for (const auto* name : {"a", "b"})
      all.hear({name, 1}, {{1}, large});
  std::size_t spans = 0, traces = 0;
  for (;;) {
    const auto x = all.part(traces, {1});
    EXPECT_LE(encode(reply{x}).size(), client_message_limit_bytes);
    if (x.traces.empty())
      break;
    traces += x.traces.size();
    for (const auto& trace : x.traces)
      spans += trace.spans.size();
  }
  EXPECT_EQ(traces, 2 * trace_steps::most);
  EXPECT_LE(spans, trace_collection::max_spans);
  EXPECT_GT(spans, trace_collection::max_spans - step_trace::max_spans);
  all.begin({1}, {2}, grid, 1);
  all.hear({"a", 1}, {{2}, {0, std::vector<step_span>(step_trace::max_spans + 1), false}});
  all.hear({"a", 1}, {{2}, {0, {{step_part::data, 0, UINT64_MAX, 1}}, false}});
  all.hear({"a", 1}, {{2}, {0, {{step_part::data, 0, 1, UINT64_MAX}}, false}});
  EXPECT_EQ(all.part(0, {2}).count, 0u);
}

// given: a thousand failures of a generation that is over, by one slot; one by another / expected: some lines, and the
// other's
TEST_F(migration_conductor_test, a_slot_that_reports_ever_more_does_not_fill_the_log) {
  answers = true;
  const auto a = offer("a"), b = offer("b");
  offer_to_conductor(a);
  offer_to_conductor(b);
  advance(1s);
  const auto before = log().size();
  for (int i = 0; i < 1'000; ++i)
    self->send(conductor, a.where.slot, failed{{77}, failure::computation, 0, "stale " + std::to_string(i), {}});
  run();
  tell(conductor, b.where.slot, failed{{77}, failure::computation, 0, "of b", {}});
  const auto lines = log();
  EXPECT_THAT(lines, Contains(HasSubstr("stale 0")));
  EXPECT_THAT(lines.back(), HasSubstr("of b"));
  EXPECT_LE(lines.size(), before + 101);
  advance(2s);
  tell(conductor, a.where.slot, failed{{77}, failure::computation, 0, "later", {}});
  EXPECT_THAT(log().back(), AllOf(HasSubstr("later ("), HasSubstr("more like it were not written")));
}

// given: a keeper with a snapshot that is on no disk; the actor is killed / expected: the keeper is told to write it,
// and nothing to forget; the worker may forget
TEST_F(migration_conductor_test, whatever_ends_it_the_keepers_write_what_they_hold) {
  answers = true;
  const auto k = offer("k", true), a = offer("a");
  offer_to_conductor(k);
  offer_to_conductor(a);
  advance(1s);
  self->send(conductor, a.where.slot, progress{{1}, {5, {1}}, {4}, 100, {}});
  tell(conductor, k.where.slot, snapshot(5));
  ASSERT_EQ(count<checkpoint>("k"), 0) << "none is due";
  kill(conductor);
  EXPECT_EQ(count<checkpoint>("k"), 1);
  EXPECT_EQ(count<forget>("k"), 0);
  EXPECT_EQ(count<forget>("a"), 1);
}

// given: a journal that takes its time / expected: no rank is told to begin before the journal has it
TEST_F(migration_conductor_test, nothing_begins_that_is_not_in_the_journal) {
  answers = true;
  const auto a = offer("a");
  offer_to_conductor(a);
  writes = false;
  advance(1s);
  ASSERT_EQ(unwritten.size(), 1u) << "numbers of generations";
  EXPECT_EQ(count<prepare>("a"), 0);
  write();
  ASSERT_EQ(unwritten.size(), 2u);
  const auto memory = decode_journal<durable_state>(journaled.back().all.at(0).bytes);
  EXPECT_EQ(memory.last, generation{1});
  EXPECT_EQ(memory.chain, (std::vector<chain_link>{{{1}, 0, UINT64_MAX}}));
  EXPECT_EQ(memory.grid.participants.at(0).slot, a.where.slot);
  EXPECT_EQ(memory.data_digest, "digest");
  EXPECT_EQ(count<activate>("a"), 0);
  write();
  EXPECT_EQ(count<activate>("a"), 1);
  EXPECT_EQ(now(), phase::running);
}

// given: exits that are not its job_manager's / expected: ignored
TEST_F(migration_conductor_test, exits_of_strangers_are_ignored) {
  answers = true;
  self->send_exit(conductor, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(conductor, caf::exit_reason::unhandled_exception);
  run();
  offer_to_conductor(offer("a"));
  advance(1s);
  EXPECT_EQ(now(), phase::running);
}

} // namespace
} // namespace parcae
