// Slot and stage: whose commands they obey, and for how long.

#include "tests/actors/node/node_fixture.hpp"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <sstream>

namespace parcae {
namespace {

struct slot_test : node_test {
  slot_id slot{"a", {1}, 0};
  slot_actor actor = system.spawn(parcae::slot, slot, source(), caf::actor_cast<caf::strong_actor_ptr>(self));

  void TearDown() override {
    self->send_exit(actor, caf::exit_reason::user_shutdown);
    run();
    node_test::TearDown();
  }

  template <class T>
  void tell(const T& x, std::uint64_t job = 1) {
    tell(x, addressee{slot, {job}});
  }

  template <class T>
  void tell(const T& x, const addressee& to) {
    self->send(actor, to, x);
    run();
  }

  void attach(std::uint64_t job) {
    self->send(actor, attach_atom_v, addressee{slot, {job}}, sink);
    run();
  }
};

// given: commands before a job was attached / expected: ignored
TEST_F(slot_test, ignores_commands_without_a_job) {
  tell(stop{{1}});
  EXPECT_EQ(made, 0);
  EXPECT_TRUE(reports.empty());
}

// given: a job / expected: commands reach its executor, reports reach its conductor with the slot
TEST_F(slot_test, connects_executor_and_conductor) {
  attach(1);
  attach(1);
  EXPECT_EQ(made, 1);
  tell(stop{{3}});
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].first, slot);
  EXPECT_EQ(std::get<stopped>(reports[0].second).current, generation{3});
}

// given: a command for keepers, and a worker's executor / expected: it goes no further, and an error is logged
TEST_F(slot_test, refuses_what_is_of_another_role) {
  std::ostringstream lines;
  const auto log = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_st>(lines)));
  attach(1);
  tell(guard{{1}, {}, {1}, {}});
  spdlog::set_default_logger(log);
  EXPECT_TRUE(seen.empty());
  EXPECT_TRUE(reports.empty());
  EXPECT_THAT(lines.str(), HasSubstr("[error] a command of another role came to a worker"));
  tell(stop{{1}});
  EXPECT_EQ(reports.size(), 1u);
}

// given: another job / expected: an executor of its own, the former retired
TEST_F(slot_test, starts_empty_for_another_job) {
  attach(1);
  attach(2);
  EXPECT_EQ(made, 2);
  EXPECT_EQ(retired, 1);
}

// given: a command of the job before, which comes late / expected: ignored
TEST_F(slot_test, commands_are_of_one_job) {
  attach(1);
  attach(2);
  tell(stop{{1}}, 1);
  EXPECT_TRUE(seen.empty());
  tell(stop{{1}}, 2);
  EXPECT_EQ(seen.size(), 1u);
}

// given: commands and a conductor for another life of this slot, and for its neighbour: the process has taken the
// number of one that died, and CAF takes it for that / expected: ignored
TEST_F(slot_test, commands_are_for_one_life_of_one_slot) {
  attach(1);
  auto former = slot, neighbour = slot;
  former.life = {2};
  neighbour.index = 1;
  for (const auto& other : {former, neighbour}) {
    tell(stop{{1}}, {other, {1}});
    self->send(actor, attach_atom_v, addressee{other, {2}}, sink);
    run();
  }
  EXPECT_TRUE(seen.empty());
  EXPECT_EQ(made, 1);
  tell(stop{{1}});
  EXPECT_EQ(seen.size(), 1u);
}

// given: the same job attached again, by a handle of a new connection / expected: the executor stays, reports go there
TEST_F(slot_test, attached_again_it_keeps_its_executor) {
  attach(1);
  tell(stop{{1}});
  int heard = 0;
  const auto first = sink;
  sink = sink_for([&heard](const slot_id&, const auto&) { ++heard; });
  attach(1);
  tell(stop{{1}});
  EXPECT_EQ(made, 1);
  EXPECT_EQ(reports.size(), 1u);
  EXPECT_EQ(heard, 1);
}

// given: an executor that throws / expected: the stage dies alone, the loss is reported for the newest generation, a
// new one works
TEST_F(slot_test, replaces_a_dead_stage) {
  attach(1);
  tell(activate{{7}, {}});
  EXPECT_EQ(made, 2);
  EXPECT_EQ(retired, 1);
  ASSERT_EQ(reports.size(), 1u);
  const auto& x = std::get<failed>(reports[0].second);
  EXPECT_EQ(x.current, generation{7});
  EXPECT_EQ(x.kind, failure::computation);
  tell(stop{{8}});
  EXPECT_EQ(reports.size(), 2u);
}

// given: exits and errors from elsewhere to slot and stage, also in each other's name and that of their parent
// expected: neither ends, the executor stays
TEST_F(slot_test, nobody_elsewhere_ends_slot_or_stage) {
  caf::strong_actor_ptr speaker;
  sink = owned(system.spawn([&](report_sink::pointer by) {
    return behavior_of_each_from<report_sink::behavior_type>(
        std::type_identity<slot_id>{}, std::type_identity<report>{},
        [&speaker, by](const slot_id&, const auto&) { speaker = by->current_sender(); });
  }));
  attach(1);
  tell(stop{{1}});
  const auto here = caf::actor_cast<caf::strong_actor_ptr>(actor), stage = speaker;
  ASSERT_TRUE(stage);
  ASSERT_NE(stage, here) << "the stage speaks for itself";
  for (const auto& to : {here, stage}) {
    say_the_end_to(to, {caf::actor_cast<caf::strong_actor_ptr>(self), here, stage});
    speaker = nullptr;
    tell(stop{{1}});
    EXPECT_EQ(speaker, stage);
  }
  EXPECT_EQ(made, 1);
  EXPECT_EQ(retired, 0);
}

// given: the instance ends its slot / expected: the executor is retired
TEST_F(slot_test, retires_its_executor_at_the_end) {
  attach(1);
  self->send_exit(actor, caf::exit_reason::user_shutdown);
  run();
  EXPECT_EQ(retired, 1);
}

// given: an instance that is killed / expected: its gpus end, and with them the executors
TEST_F(slot_test, does_not_outlive_its_parent) {
  caf::scoped_actor other(system, true);
  const auto orphan = [&] {
    caf::scoped_actor parent(system, true);
    return system.spawn(parcae::slot, slot, source(), caf::actor_cast<caf::strong_actor_ptr>(parent));
  }();
  run();
  other->send(orphan, attach_atom_v, addressee{slot, {1}}, sink);
  run();
  other->monitor(orphan);
  run();
  EXPECT_EQ(made, retired);
  other->receive([&](const caf::down_msg& x) { EXPECT_EQ(x.source, orphan.address()); });
}

} // namespace
} // namespace parcae
