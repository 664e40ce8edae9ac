// Random events: whatever happens, the job goes on and nothing kept is voided.

#include "tests/actors/conductor/conductor_fixture.hpp"
#include "tests/actors/conductor/stage_set.hpp"

namespace parcae {
namespace {

TEST_F(conductor_test, survives_whatever_happens) {
  // given: random joins, losses, notices, silences, failures, slow plans, steps, snapshots, checkpoints, new
  // connections, lives that come back, standstills and ends of the manager; in half of the seeds it dies, too, and the
  // next one may not know what was not on disk. expected: no exception, nobody asked for what it does not hold, no busy
  // waiting; trains when left in peace.
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    SCOPED_TRACE(seed);
    const bool ends = seed % 2, dies = seed > 300;
    dummy_cluster d(5, ends ? 15 : 1'000'000, seed % 3 == 0 ? 3 : 0);
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t n) { return random() % n; };
    const auto worker = [&] { return "w" + std::to_string(below(6)); };
    const auto keeper = [&] { return "k" + std::to_string(below(2)); };
    for (int i = 0; i < 300 && !d.ended(); ++i) {
      const auto before = d.handled;
      const auto name = worker();
      const auto g = generation{(d.is_dead() ? 0 : d.view().current.value) + below(2)};
      switch (below(dies ? 26 : seed % 4 == 0 ? 14 : 19)) {
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
        else if (!d.is_dead() && d.view().now == phase::running) // else a change may need what it would replace
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
      case 11:
        if (seed % 4 != 0 && d.has(name))
          d.reconnect(name);
        break;
      case 12:
        if (const auto k = keeper(); seed % 4 != 0 && d.has(k))
          d.reconnect(k);
        break;
      case 13:
        if (seed % 4 != 0 && below(3) == 0)
          d.stand_still(milliseconds(below(10'000)));
        break;
      case 14:
        if (const auto x = below(3) ? name : keeper(); d.has(x)) {
          d.lose(x);
          if (below(2))
            d.advance(milliseconds(below(5'000)));
          d.come_back(x);
        }
        break;
      case 15:
        d.event(checkpoint_wanted{});
        d.disk_problem = below(4) ? "" : "disk full";
        break;
      case 16:
        if (seed % 8 == 3 && below(20) == 0)
          d.event(manager_ends{d.now() + 10s});
        break;
      case 19:
      case 20:
        if (!d.is_dead())
          d.kill_manager(below(40));
        break;
      case 21:
      case 22:
      case 23:
        if (d.is_dead())
          d.restart_manager(random, below(2));
        break;
      default:
        d.step();
        d.advance(milliseconds(below(below(8) == 0 ? 100'000 : 50)));
      }
      ASSERT_LT(d.handled - before, 2000u) << to_string(d.view().now);
      ASSERT_THAT(d.errors(), ::testing::IsEmpty());
    }
    if (dies) {
      d.kill_manager();
      d.restart_manager(random);
    }
    if (d.ended())
      continue;
    d.disk_problem.clear();
    d.silent.clear();
    d.slow_planner = false;
    d.answer_plans();
    d.depth = 1;
    d.width = 0;
    d.add("fresh");
    d.add("keeper", true);
    for (const auto* k : {"k0", "k1"}) // may have a checkpoint that nobody else has
      if (!d.has(k))
        d.add(k, true);
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
  // given: a job in each of its phases, with answers on their way. expected: it ends, all are told to forget it, and
  // what still comes changes nothing.
  for (auto where = phase::waiting; where != phase::ended; where = static_cast<phase>(static_cast<int>(where) + 1)) {
    SCOPED_TRACE(to_string(where));
    conductor_options options;
    if (where == phase::warming)
      options.feed_from = 0ms;
    stage_set s(1000, 0, {}, options);
    auto& d = s.d;
    s.bring_to(where);
    ASSERT_EQ(d.view().now, where);
    d.event(cancel_requested{});
    EXPECT_TRUE(d.ended());
    EXPECT_EQ(d.view().now, phase::ended);
    EXPECT_EQ(d.view().problem, "cancelled");
    for (const auto* name : {"a", "b", "c"})
      if (d.has(name)) {
        EXPECT_TRUE(std::holds_alternative<forget>(d.told(name).back())) << name;
      }
    d.hold_back = nullptr;
    d.answer_plans();
    if (d.has("b"))
      d.say("b", stopped{d.view().current, {}, {}});
    d.advance(1h);
    EXPECT_EQ(d.view().now, phase::ended);
    EXPECT_THAT(d.errors(), ::testing::IsEmpty());
  }
}

} // namespace
} // namespace parcae
