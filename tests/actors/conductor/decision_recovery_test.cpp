// A decision outlives the manager that made it, and whoever else knew what it says.

#include "tests/actors/conductor/conductor_fixture.hpp"

namespace parcae {
namespace {

TEST_F(conductor_test, a_decision_outlives_all_others_who_knew_its_result) {
  // given: two replicas, of which one has applied a step when their communication ends; the manager dies after each
  // number of effects, and then the one that alone knew the step's result. expected: if the end of the generation is in
  // the journal the other applies the step, by what that says, whether it had been told or not; else that step is given
  // up, and none before it.
  int decided_untold = 0, decided_told = 0, open = 0;
  for (std::uint64_t at = 1;; ++at) {
    SCOPED_TRACE("after " + std::to_string(at) + " effects");
    ASSERT_LT(at, 100u);
    dummy_cluster d(4);
    d.join({"a", "b"});
    ASSERT_EQ(d.view().now, phase::running);
    d.step();
    d.kill_manager(at);
    d.half_step(1);
    if (!d.is_dead())
      break;
    ASSERT_FALSE(d.durable().chain.empty());
    const bool decided = d.durable().chain.front().last == 2;
    ++(!decided ? open : d.all_told<decide>("b").empty() ? decided_untold : decided_told);
    d.lose("a");
    d.restart_manager();
    d.advance(20s);
    EXPECT_EQ(d.view().now, phase::running) << d.view().problem;
    EXPECT_EQ(d.view().chain.front().last, decided ? 2u : 1u);
    EXPECT_EQ(d.view().steps_done, decided ? 2u : 1u);
    EXPECT_EQ(d.reached(), decided ? 2u : 1u);
    EXPECT_THAT(d.errors(), ::testing::IsEmpty());
  }
  EXPECT_GE(decided_untold, 1);
  EXPECT_GE(decided_told, 1);
  EXPECT_GE(open, 1);
}

TEST_F(conductor_test, nobody_is_told_a_decision_that_leaves_nothing_to_apply) {
  // given: a loss between two steps, or in one whose gradients all have and whose result nobody knows. expected: who is
  // left is told no decision, and prepares the next generation before the end of this one is in the journal; it begins
  // when that has both.
  for (const bool in_a_step : {false, true}) {
    SCOPED_TRACE(in_a_step);
    dummy_cluster d(4);
    d.join({"a", "b"});
    d.step();
    d.keep_back<prepared>();
    if (in_a_step)
      d.half_step(0);
    d.lose("a");
    if (in_a_step) // both were to go on
      d.advance(20ms);
    ASSERT_EQ(d.view().now, phase::preparing);
    EXPECT_THAT(d.all_told<decide>("b"), ::testing::IsEmpty());
    EXPECT_EQ(d.view().chain.back().last, 1u);
    EXPECT_EQ(d.durable().chain.back().last, UINT64_MAX);
    d.hold_back = nullptr;
    d.say("b", d.held_back.back());
    EXPECT_EQ(d.view().now, phase::running);
    ASSERT_EQ(d.durable().chain.size(), 2u);
    EXPECT_EQ(d.durable().chain.front().last, 1u);
    EXPECT_EQ(d.durable().chain.back().base, 1u);
  }
}

TEST_F(conductor_test, who_has_a_step_to_apply_is_told_when_that_is_in_the_journal) {
  // given: one of two ranks has applied a step, of which the other has complete gradients. expected: both are told the
  // decision, and the journal has it by then
  c.join({"a", "b"});
  c.step();
  std::vector<std::uint64_t> ends;
  c.drop = [&](const std::string&, const command& x) {
    if (std::holds_alternative<decide>(x))
      ends.push_back(c.durable().chain.back().last);
    return false;
  };
  c.half_step(1);
  EXPECT_THAT(ends, ::testing::ElementsAre(2u, 2u));
  EXPECT_EQ(c.view().steps_done, 2u);
}

} // namespace
} // namespace parcae
