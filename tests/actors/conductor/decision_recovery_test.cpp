// A decision outlives the manager that made it, and whoever else knew what it says.

#include "tests/actors/conductor/conductor_fixture.hpp"

namespace parcae {
namespace {

/// Of two ranks in a half step, the first has applied it and the second has not.
std::mt19937_64 first_of_two_applies() {
  for (std::uint64_t seed = 1;; ++seed) {
    std::mt19937_64 draws(seed);
    const bool first = draws() % 2, second = draws() % 2;
    if (first && !second)
      return std::mt19937_64(seed);
  }
}

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
    auto random = first_of_two_applies();
    d.half_step(random);
    if (!d.is_dead())
      break;
    ASSERT_FALSE(d.durable().chain.empty());
    const bool decided = d.durable().chain.front().last == 2;
    ++(!decided ? open : d.all_told<decide>("b").empty() ? decided_untold : decided_told);
    d.lose("a");
    d.restart_manager(random);
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

} // namespace
} // namespace parcae
