// Random events: whatever happens, the job goes on and nothing kept is voided.

#include "tests/actors/dummy_cluster.hpp"

namespace parcae {
namespace {

TEST_F(conductor_test, survives_whatever_happens) {
  // given: random joins, losses, notices, silences, failures, slow plans, steps and snapshots. expected: no illegal
  // transition, no exception, nobody asked for what it does not hold, no busy waiting; trains when left in peace.
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    const bool ends = seed % 2;
    dummy_cluster d(5, ends ? 15 : 1'000'000);
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t n) { return random() % n; };
    const auto worker = [&] { return "w" + std::to_string(below(6)); };
    const auto keeper = [&] { return "k" + std::to_string(below(2)); };
    for (int i = 0; i < 300 && !d.ended(); ++i) {
      const auto before = d.handled;
      const auto name = worker();
      const auto g = generation{d.view().current.value + below(2)};
      switch (below(14)) {
      case 0:
      case 1:
        if (!d.has(name))
          d.add(name);
        break;
      case 2:
        if (d.has(name))
          d.lose(name);
        break;
      case 3:
        if (d.has(name))
          d.notice(name, milliseconds(below(10'000)));
        break;
      case 4:
        d.silent.insert(below(3) ? name : keeper());
        break;
      case 5:
        d.silent.clear();
        break;
      case 6:
        if (d.has(name))
          d.say(name, failed{g,
                             static_cast<failure>(std::array{1, 2, 4, 5}[below(4)]),
                             static_cast<std::uint32_t>(below(4)),
                             "random",
                             {}});
        break;
      case 7:
        if (const auto k = keeper(); !d.has(k))
          d.add(k, true);
        else if (below(4) == 0)
          d.lose(k);
        else
          d.snapshot(k);
        break;
      case 8:
        d.slow_planner = below(2);
        d.answer_plans();
        break;
      case 9:
        d.depth = 1 + static_cast<std::uint32_t>(below(3));
        d.width = static_cast<std::uint32_t>(below(3));
        d.event(plan_wanted{"random"});
        break;
      case 10:
        if (below(3) == 0)
          d.half_step(random);
        break;
      default:
        d.step();
        d.advance(milliseconds(below(below(8) == 0 ? 100'000 : 50)));
      }
      ASSERT_LT(d.handled - before, 2000u) << to_string(d.view().now);
      ASSERT_THAT(d.errors(), ::testing::IsEmpty());
    }
    if (d.ended())
      continue;
    d.silent.clear();
    d.slow_planner = false;
    d.answer_plans();
    d.depth = 1;
    d.width = 0;
    d.add("fresh");
    d.add("keeper", true);
    for (int i = 0; i < 600 && !d.ended() && !(d.view().now == phase::running && !ends); ++i) {
      d.advance(1s);
      d.step();
      d.snapshot("keeper");
    }
    ASSERT_EQ(d.view().now, ends ? phase::ended : phase::running) << d.view().problem;
    ASSERT_THAT(d.errors(), ::testing::IsEmpty());
  }
}

TEST_F(conductor_test, what_the_keepers_had_complete_is_never_voided) {
  // given: the keepers were complete at version 2; then all workers are lost while one keeper's word is missing (it was
  // lost, or is not heard yet). expected: the chain still reaches version 2, so that whoever has it is believed.
  c.kept_silent = true;
  const auto keeper = c.add("k", true);
  run_two();
  c.step();
  inventory held;
  for (std::uint32_t layer = 0; layer < 4; ++layer)
    held.push_back({layer, {2, c.view().current}});
  c.event(slot_reported{keeper.slot, kept{job_id{1}, held, {{.step = 1}}, {}}});
  ASSERT_EQ(c.view().protected_version.steps, 2u);
  c.event(slot_reported{keeper.slot, kept{job_id{1}, {}, {}, {}}});
  c.lose("a");
  c.lose("b");
  EXPECT_EQ(c.view().chain.back().last, 2u);
}

TEST_F(conductor_test, cancel_ends_the_job_in_every_phase) {
  run_two();
  c.event(cancel_requested{});
  EXPECT_TRUE(c.ended());
  EXPECT_EQ(c.view().problem, "cancelled");
}

} // namespace
} // namespace parcae
