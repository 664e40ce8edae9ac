// Connections that are lost and come back, lives whose loss was declared, and the end of the manager.

#include "tests/actors/conductor/conductor_fixture.hpp"

namespace parcae {
namespace {

struct conductor_returns : conductor_test {
  /// What a connection takes with it: the first command of this kind to b, or its first answer of that kind.
  template <class Command>
  void lose_command(std::set<std::string> to = {"b"}) {
    c.drop = [to](const std::string& name, const command& x) mutable {
      return std::holds_alternative<Command>(x) && to.erase(name) > 0;
    };
  }

  template <class Report>
  void lose_report() {
    c.hold_back = [done = false](const report& x) mutable {
      return std::holds_alternative<Report>(x) && !std::exchange(done, true);
    };
  }

  void start_two() { c.join({"b", "a"}); }

  /// The phase waits for what was lost; all slots have a new connection, and it goes on as if nothing had been.
  void goes_on_from(phase in) {
    ASSERT_EQ(c.view().now, in);
    c.reconnect("b");
    c.reconnect("a");
    EXPECT_EQ(c.view().now, phase::running);
    EXPECT_THAT(c.log(), Not(Contains(HasSubstr("not used for now"))));
  }

  void start_while_losing(const std::function<void()>& lose, phase in) {
    lose();
    start_two();
    goes_on_from(in);
  }

  /// What is lost during a change from 2×1 to 3×1.
  void change_while_losing(const std::function<void()>& lose, phase in) {
    start_two();
    c.step();
    lose();
    c.join({"d"});
    goes_on_from(in);
    EXPECT_EQ(c.view().grid->width, 3u);
    EXPECT_EQ(c.view().replayed_steps, 0u);
  }

  /// And after the loss of one of three, in a step that one of the others has applied.
  void loss_while_losing(const std::function<void()>& lose, phase in) {
    start_two();
    c.join({"d"});
    c.step();
    lose();
    c.half_step(1);
    c.lose("d");
    goes_on_from(in);
    EXPECT_EQ(c.view().grid->width, 2u);
    EXPECT_LE(c.view().replayed_steps, 1u);
  }

  std::string ended_by_manager(milliseconds after = 0ms) {
    c.event(manager_ends{c.now() + 30s});
    c.advance(after);
    return c.why_ended();
  }
};

// given: STOP reaches one rank of two / expected: all stop by its bit
TEST_F(conductor_returns, lost_stop_to_one_of_two) {
  lose_command<stop>();
  run_two();
  c.join({"d"});
  EXPECT_EQ(c.running(), 3u);
}

// given: after a loss one of two ranks is silent, and the other's connection is a new one every second / expected: the
// silent one is given up all the same
TEST_F(conductor_returns, who_comes_again_and_again_keeps_no_phase_open) {
  run_two();
  c.join({"d"});
  c.silent = {"b"};
  c.lose("d");
  for (int i = 0; i < 10 && c.running() == 0; ++i) {
    c.advance(1s);
    c.reconnect("a");
  }
  EXPECT_EQ(c.running(), 1u);
}

// given: a rank that prepares has a new connection soon, and another one a second before the limit / expected: it has
// time to answer
TEST_F(conductor_returns, who_comes_for_the_second_time_late_may_still_answer) {
  c.silent = {"b"};
  start_two();
  ASSERT_EQ(c.view().now, phase::preparing);
  c.advance(10s);
  c.reconnect("b");
  c.advance(49s);
  c.reconnect("b");
  c.advance(3s);
  c.silent.clear();
  c.reconnect("b");
  EXPECT_EQ(c.running(), 2u);
  EXPECT_THAT(c.log(), Not(Contains(HasSubstr("not used for now"))));
}

/// What is lost, when: in the first start, in a change beside a healthy generation, after the loss of a place.
struct lost_word {
  std::string name;
  void (conductor_returns::*play)(const std::function<void()>& lose, phase in);
  void (*lose)(conductor_returns&);
  phase in; ///< waits for what was lost
};

class lost_words : public conductor_returns, public testing::WithParamInterface<lost_word> {};

// given: a command or its answer is lost in each phase / expected: asked again on return; no step is lost in a change
TEST_P(lost_words, are_said_again) {
  (this->*GetParam().play)([this] { GetParam().lose(*this); }, GetParam().in);
}

template <class Command>
void command_to_b(conductor_returns& x) {
  x.lose_command<Command>();
}

template <class Report>
void answer(conductor_returns& x) {
  x.lose_report<Report>();
}

void stop_to_both(conductor_returns& x) {
  x.lose_command<stop>({"a", "b"});
}

constexpr auto at_start = &conductor_returns::start_while_losing, beside = &conductor_returns::change_while_losing,
               after_loss = &conductor_returns::loss_while_losing;
const lost_word words[] = {
    {"prepare", at_start, command_to_b<prepare>, phase::preparing},
    {"prepared", at_start, answer<prepared>, phase::preparing},
    {"activate", at_start, command_to_b<activate>, phase::activating},
    {"active", at_start, answer<active>, phase::activating},
    {"prepare_beside_training", beside, command_to_b<prepare>, phase::readying},
    {"prepared_beside_training", beside, answer<prepared>, phase::readying},
    {"stop", beside, stop_to_both, phase::stopping},
    {"stopped", beside, answer<stopped>, phase::stopping},
    {"abort", after_loss, command_to_b<abort_generation>, phase::aborting},
    {"aborted", after_loss, answer<aborted>, phase::aborting},
    {"decide", after_loss, command_to_b<decide>, phase::deciding},
    {"decided", after_loss, answer<decided>, phase::deciding},
};

INSTANTIATE_TEST_SUITE_P(lost, lost_words, testing::ValuesIn(words), [](const auto& x) { return x.param.name; });

// given: a rank that stops at the final version unasked, which nobody hears / expected: it says so again
TEST_F(conductor_returns, lost_stopped_at_the_final_version) {
  dummy_cluster d(4, 3);
  d.join({"a"});
  d.silent = {"a"};
  d.step(3);
  d.silent.clear();
  ASSERT_EQ(d.view().now, phase::running);
  d.reconnect("a");
  EXPECT_EQ(d.view().now, phase::finishing);
}

// given: a keeper that was told neither to confirm the final version with digests nor to write it / expected: told
// again
TEST_F(conductor_returns, lost_commands_to_a_keeper) {
  dummy_cluster d(4, 3);
  d.add_keeper_and_worker();
  d.drop = [](const std::string& name, const command& x) {
    return name == "k" && (std::holds_alternative<confirm>(x) || std::holds_alternative<checkpoint>(x));
  };
  d.train(3);
  ASSERT_EQ(d.view().now, phase::finishing);
  const auto guards = [&] { return d.all_told<guard>("k").size(); };
  const auto before = guards();
  d.drop = {};
  d.reconnect("k");
  EXPECT_TRUE(d.ended());
  EXPECT_EQ(d.why_ended(), "done");
  EXPECT_GT(guards(), before);
}

// given: a keeper comes while the connection of a worker is broken / expected: on return that is told whom its
// snapshots are for, and sends one at once
TEST_F(conductor_returns, lost_protect) {
  start_two();
  c.step();
  c.drop = [](const std::string& name, const command& x) { return name == "b" && std::holds_alternative<protect>(x); };
  c.add("k", true);
  c.advance(20ms);
  c.drop = {};
  const auto before = c.all_told<protect>("b").size();
  c.reconnect("b");
  const auto told = c.all_told<protect>("b");
  ASSERT_EQ(told.size(), before + 1);
  ASSERT_EQ(told.back().keepers.size(), 1u);
  EXPECT_EQ(told.back().keepers[0].keeper.slot.instance, "k");
  EXPECT_TRUE(told.back().now);
}

// given: a healthy generation / expected: a new connection of all its ranks and of the keeper changes nothing
TEST_F(conductor_returns, training_goes_on_over_a_new_connection) {
  c.add("k", true);
  run_two();
  const auto g = c.view().current;
  for (const auto* name : {"a", "b", "k"})
    c.reconnect(name);
  c.step();
  c.advance(1s);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().current, g);
  EXPECT_EQ(c.view().steps_done, 2u);
}

// given: this process stands still while an answer is awaited / expected: the limit that passed meanwhile excludes
// nobody; once it goes on, the usual limit holds
TEST_F(conductor_returns, limits_that_pass_during_a_standstill_do_not_count) {
  lose_report<active>();
  start_two();
  ASSERT_EQ(c.view().now, phase::activating);
  c.stand_still(8s);
  c.advance(4s);
  EXPECT_EQ(c.view().now, phase::activating);
  c.reconnect("b");
  c.reconnect("a");
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().replayed_steps, 0u);
}

// given: the same, and the standstill ends just after the limit / expected: the same
TEST_F(conductor_returns, limit_that_passes_just_before_the_end_of_a_standstill_does_not_count) {
  lose_report<active>();
  start_two();
  c.stand_still(60'100ms);
  c.event(tick{});
  EXPECT_EQ(c.view().now, phase::activating);
  c.reconnect("b");
  c.reconnect("a");
  EXPECT_EQ(c.view().now, phase::running);
}

TEST_F(conductor_returns, limits_count_again_after_a_standstill) {
  lose_report<active>();
  start_two();
  c.stand_still(70s);
  c.advance(5s);
  EXPECT_NE(c.view().now, phase::activating);
}

// given: two replicas; b is declared lost, the other trains on, is lost too; b was only frozen / expected: what b holds
// counts, as far as it is in the chain: the job goes on from there and not from the start
TEST_F(conductor_returns, a_lost_life_returns_with_its_state) {
  run_two();
  c.step(4);
  c.lose("b");
  c.advance(20ms);
  ASSERT_EQ(c.view().grid->width, 1u);
  c.step(3);
  EXPECT_EQ(c.view().steps_done, 8u);
  c.lose("a");
  ASSERT_EQ(c.view().now, phase::waiting);
  c.come_back("b");
  c.advance(20ms);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().steps_done, 5u);
  c.step();
  EXPECT_EQ(c.view().steps_done, 6u);
}

// given: the same, but the life computed a step that was decided to be dropped / expected: that one does not count
TEST_F(conductor_returns, what_is_outside_the_chain_does_not_return) {
  run_two();
  c.lose("b");
  c.advance(20ms);
  c.step();
  c.lose("a");
  c.add("d");
  c.advance(20ms); // nobody holds anything: from version 0
  ASSERT_EQ(c.view().steps_done, 0u);
  c.step();
  c.lose("d");
  c.come_back("b"); // with a version that was given up
  c.advance(20ms);
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().chain.back().base, 0u);
}

// given: a life that returns / expected: no place before it has said what it holds, which is asked by ending all that
// it may still compute
TEST_F(conductor_returns, a_returned_life_is_used_once_it_has_answered) {
  run_two();
  const auto g = c.view().current;
  c.lose("b");
  c.advance(20ms);
  c.step();
  c.silent = {"b"};
  c.come_back("b");
  c.advance(1s);
  EXPECT_EQ(c.view().grid->width, 1u);
  EXPECT_THAT(c.all_told<abort_generation>("b"), Contains(testing::Field(&abort_generation::current, g)));
  c.silent.clear();
  c.advance(10s);
  EXPECT_EQ(c.running(), 2u);
}

// given: the keeper is lost, then all workers; it comes back / expected: from its snapshot
TEST_F(conductor_returns, a_lost_keeper_returns_with_its_snapshots) {
  c.add("k", true);
  run_two();
  c.step();
  c.snapshot("k");
  c.lose("k");
  c.step();
  c.lose("a");
  c.lose("b");
  c.come_back("k");
  c.join({"d"});
  EXPECT_EQ(c.view().now, phase::running);
  EXPECT_EQ(c.view().steps_done, 2u);
}

// given: the manager ends while a job trains, with a keeper / expected: it stops for a snapshot, which goes to disk,
// and the text says from where to go on
TEST_F(conductor_returns, the_manager_ends_and_the_job_is_kept) {
  c.add("k", true);
  run_two();
  c.step(4);
  EXPECT_EQ(ended_by_manager(1s), "");
  EXPECT_EQ(stops_with_snapshot("a"), 1);
  EXPECT_EQ(c.view().now, phase::waiting);
  c.snapshot("k");
  EXPECT_TRUE(c.ended());
  EXPECT_THAT(c.why_ended(), HasSubstr("stopped at step 5; go on with: parcae submit --resume /state/"));
  EXPECT_EQ(c.view().checkpoint.steps, 5u);
}

// given: it ends in the middle of changes / expected: the same
TEST_F(conductor_returns, the_manager_ends_during_a_change) {
  for (const auto& hold : std::vector<std::function<bool(const report&)>>{
           [](const report& x) { return std::holds_alternative<prepared>(x); },
           [](const report& x) { return std::holds_alternative<stopped>(x); },
           [](const report& x) { return std::holds_alternative<active>(x); }}) {
    dummy_cluster d;
    d.add("k", true);
    d.join({"a", "b"});
    d.step();
    d.hold_back = hold;
    d.join({"d"});
    const auto before = d.view().now;
    d.event(manager_ends{d.now() + 30s});
    d.hold_back = {};
    for (const auto* name : {"a", "b", "d"})
      d.reconnect(name);
    d.advance(10s);
    EXPECT_FALSE(d.ended()) << to_string(before);
    d.snapshot("k");
    EXPECT_TRUE(d.ended()) << to_string(before);
    EXPECT_THAT(d.why_ended(), HasSubstr("stopped at step 1; go on with")) << to_string(before);
    EXPECT_THAT(d.errors(), ::testing::IsEmpty());
  }
}

// given: no keeper; one whose snapshot does not come in time; one that cannot write / expected: says what is not kept
TEST_F(conductor_returns, the_manager_ends_and_says_what_is_lost) {
  run_two();
  EXPECT_EQ(ended_by_manager(), "stopped at step 1; nothing is kept: there is no keeper");

  dummy_cluster late;
  late.add("k", true);
  late.join({"a"});
  late.step();
  late.event(manager_ends{late.now() + 30s});
  late.advance(29s);
  EXPECT_FALSE(late.ended());
  late.advance(1s);
  EXPECT_EQ(late.why_ended(), "stopped at step 1; nothing is kept: it took too long");

  dummy_cluster full;
  full.disk_problem = "no space left";
  full.add("k", true);
  full.join({"a"});
  full.step();
  full.event(manager_ends{full.now() + 30s});
  full.snapshot("k");
  EXPECT_THAT(full.why_ended(), HasSubstr("nothing is kept: no checkpoint of step 1: k/0: no space left"));
}

// given: an error in the host of a job with a snapshot newer than its checkpoint / expected: the keepers are told to
// write, and not to forget; workers are; the text says where to look
TEST_F(conductor_returns, a_last_will_keeps_what_the_keepers_hold) {
  c.add("k", true);
  run_two();
  c.step();
  c.snapshot("k");
  c.step();
  const auto will = c.machine().last_will();
  std::map<std::string, std::vector<std::string>> told;
  for (const auto& effect : will)
    if (const auto* t = std::get_if<tell>(&effect))
      told[t->to.instance].push_back(std::holds_alternative<checkpoint>(*t->what)         ? "checkpoint"
                                     : std::holds_alternative<remember>(*t->what)         ? "remember"
                                     : std::holds_alternative<forget>(*t->what)           ? "forget"
                                     : std::holds_alternative<abort_generation>(*t->what) ? "abort"
                                                                                          : "else");
  EXPECT_THAT(told["k"], ::testing::ElementsAre("remember", "checkpoint"));
  EXPECT_THAT(told["a"], ::testing::ElementsAre("abort", "forget"));
  EXPECT_THAT(c.machine().how_to_go_on(), HasSubstr("the keepers write step 2 to"));
}

struct conductor_evaluations : ::testing::Test {
  dummy_cluster c{4, [](job_specification& job) {
                    job.virtual_replicas = 2;
                    job.data.validation = 4;
                    job.evaluate_every = 1;
                    job.steps = 1000;
                  }};

  void SetUp() override {
    c.join({"a", "b"});
    ASSERT_EQ(c.view().now, phase::running);
  }

  /// What one of the two replicas found at a version.
  void say(const std::string& name, std::uint64_t steps, double sum = 1) {
    const auto g = c.view().current;
    c.say(name, evaluated{g, {steps, g}, name == "a" ? 0u : 1u, {sum}});
  }
};

// given: an evaluation that comes again, after a new connection / expected: counted once
TEST_F(conductor_evaluations, said_again_count_once) {
  std::uint64_t last = 0;
  while (++last <= 258) { // a point of the curve stands for several by then
    say("a", last, static_cast<double>(last));
    say("b", last, static_cast<double>(last));
  }
  const auto before = c.view().validation_losses;
  --last;
  say("a", last, static_cast<double>(last));
  say("b", last, static_cast<double>(last));
  const auto after = c.view().validation_losses;
  ASSERT_EQ(after.size(), before.size());
  EXPECT_EQ(after.back().steps, before.back().steps);
  EXPECT_EQ(after.back().loss, before.back().loss);
}

// given: the report of one replica is lost with its connection, and comes again / expected: counts
// given: the same of an older version, when another replica has told its part of the next / expected: the next counts
TEST_F(conductor_evaluations, said_again_complete_those_of_the_others) {
  say("a", 10);
  EXPECT_EQ(c.view().evaluated_steps, -1);
  say("a", 10);
  say("b", 10);
  EXPECT_EQ(c.view().evaluated_steps, 10);
  say("a", 20);
  say("b", 10);
  say("b", 20);
  EXPECT_EQ(c.view().evaluated_steps, 20);
}

// given: the report of one replica is lost for good; who is asked for the next steps begins with the one before /
// expected: the evaluation is in the record
TEST_F(conductor_evaluations, that_were_not_told_come_with_the_record) {
  for (int i = 0; i < 10; ++i) {
    c.step();
    c.advance(1s);
  }
  say("a", 10);
  auto known = c.machine().losses().part(9, 10);
  ASSERT_EQ(known.all.size(), 1u);
  known.all[0].validation_loss = 0.5;
  c.say("b", recalled{{1}, 10, encode(known)});
  EXPECT_EQ(c.machine().losses().find(9)->validation_loss, 0.5);
}

// given: the report of one replica is lost with its life, which returns when another generation trains / expected:
// counts
TEST_F(conductor_evaluations, of_a_life_that_was_declared_lost_count_when_it_returns) {
  c.step(10);
  const auto g = c.view().current;
  const evaluated of_b{g, {10, g}, 1, {1}};
  say("a", 10);
  c.lose("b");
  c.advance(20ms);
  ASSERT_GT(c.view().current, g);
  c.step();
  c.come_back("b");
  c.say("b", of_b);
  EXPECT_EQ(c.view().evaluated_steps, 10);
}

} // namespace
} // namespace parcae
