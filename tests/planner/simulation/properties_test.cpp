// What must hold of the optimum and of the simulator, whatever the workload.
//
//   given                                                   expected
//   a joining instance more, all else equal      realistic: the optimum does not fall
//   a spare more                                 realistic: hardly any move is dearer; published: some are
//   real time                                    rows last as long as they do; what is lost adds up; the oracle is best
//   changes that take longer than is looked ahead   nobody waits where something fits; not behind the fastest each time

#include "planner/simulation/simulator.hpp"
#include "planner/simulation/trace_generator.hpp"
#include "tests/planner/workloads.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

namespace parcae {
namespace {

// Samples of the best plan for this future, starting with nothing.
double optimum(const profile& workload, cost_model& costs, const std::vector<fleet_change>& future,
               std::uint32_t instances) {
  move_table table(workload, costs, instances);
  interval_state state;
  const auto plan = plan_known(table, state, 0, future);
  double samples = 0;
  std::uint32_t held = 0;
  for (std::size_t i = 0; i < future.size(); ++i) {
    const auto x = carry_out(table, state, plan[i], held, future[i].lost, interval_s);
    samples += x.samples;
    state = x.next;
    if (state.migrating && costs.real_time()) { // plans count moves in full
      samples -= table.rate(state.at) * state.rest_ms / 1000;
      state = {state.at, true, false, 0};
    }
    held += future[i].joined - future[i].lost;
  }
  return samples;
}

std::vector<fleet_change> random_future(std::mt19937_64& random, std::uint32_t capacity) {
  std::vector<fleet_change> future{{static_cast<std::uint32_t>(1 + random() % capacity), 0}};
  auto held = future[0].joined;
  for (int i = 0; i < 8; ++i) {
    fleet_change x;
    if (random() % 2 == 0)
      x.lost = static_cast<std::uint32_t>(random() % (std::min(held, 3u) + 1));
    if (random() % 2 == 0)
      x.joined = static_cast<std::uint32_t>(random() % (capacity - held + x.lost + 1));
    held += x.joined - x.lost;
    future.push_back(x);
  }
  return future;
}

realistic_options random_options(std::mt19937_64& random) {
  realistic_options result;
  result.announced = random() % 2 == 0;
  result.figures.prepare_ms = static_cast<double>(random() % 3000);
  result.figures.link_bytes_per_ms = 1e5 * static_cast<double>(1 + random() % 20);
  return result;
}

TEST(properties, a_joining_instance_never_lowers_the_optimum) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 600; ++round) {
    auto workload = made_up::workload(6, 9, random());
    workload.global_batch = round % 3 == 0 ? 2000 : 64; // steps that outlast an interval, too
    const auto future = random_future(random, 8);
    auto more = future;
    ++more[random() % more.size()].joined;
    realistic_cost costs(workload, random_options(random));
    const double without = optimum(workload, costs, future, 9), with = optimum(workload, costs, more, 9);
    EXPECT_GE(with, without - 1e-9 * std::abs(without)) << "round " << round;
  }
}

// A move between two of up to 3x4, and how many instances are held and lost.
struct random_move {
  shape from, to;
  std::uint32_t held, lost;

  explicit random_move(std::mt19937_64& random) :
      from{static_cast<std::uint32_t>(1 + random() % 3), static_cast<std::uint32_t>(1 + random() % 4)},
      to{static_cast<std::uint32_t>(1 + random() % 3), static_cast<std::uint32_t>(1 + random() % 4)},
      held(from.slots() + static_cast<std::uint32_t>(random() % 4)),
      lost(static_cast<std::uint32_t>(random() % (std::min(held, 4u) + 1))) {}

  double ms(cost_model& costs, std::uint32_t spares) const { return costs.move_ms(from, to, held + spares, lost); }
};

// What the property above comes from. The exceptions are those of the greedy choice of who stays, which is not always
// the best.
TEST(properties, a_spare_more_makes_hardly_any_move_dearer_in_real_time) {
  std::mt19937_64 random(2);
  int dearer = 0;
  for (int round = 0; round < 2000; ++round) {
    const auto workload = made_up::workload(6, 12, random());
    const random_move x(random);
    realistic_cost costs(workload, random_options(random));
    const double ms = x.ms(costs, 0), with = x.ms(costs, 1);
    dearer += with > ms * (1 + 1e-9) ? 1 : 0;
    EXPECT_LE(with, 1.02 * ms) << to_string(x.from) << " to " << to_string(x.to) << ", " << x.lost << " of " << x.held;
  }
  EXPECT_LE(dearer, 4);
}

// Of a re-cut only the last stage that finds a survivor is charged, so it can be cheaper if more of the grid is lost,
// and a spare more makes that less likely.
TEST(properties, a_spare_more_makes_some_moves_dearer_as_published) {
  std::mt19937_64 random(2);
  const auto network = made_up::network();
  double max_ms = 0;
  for (int round = 0; round < 500; ++round) {
    const auto workload = made_up::workload(6, 12, random());
    const random_move x(random);
    published_cost costs(workload, network);
    max_ms = std::max(max_ms, x.ms(costs, 1) - x.ms(costs, 0));
  }
  RecordProperty("a spare more costs at most, ms", std::to_string(max_ms));
  EXPECT_GT(max_ms, 1'000);
}

fleet_history generated(std::uint64_t seed) {
  auto options = trace_kind("bursty");
  options.hours = 3;
  options.capacity = 10;
  return intervals_of(generate_trace(options, seed));
}

// given: rows that are not 60 s long, changes that outlast some or most of them / expected: nothing is trained until a
// change is done, and what is lost adds up to the difference to the ideal
TEST(properties, real_time_adds_up) {
  const auto workload = made_up::workload(6, 10, 3);
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    auto history = generated(seed);
    std::mt19937_64 random(seed);
    for (std::size_t i = 1; i < history.size(); ++i)
      history[i].seconds = history[i - 1].seconds + static_cast<double>(1 + random() % 90);
    for (int round = 0; round < 4; ++round) {
      auto options = random_options(random);
      if (round >= 2)
        options.figures.link_bytes_per_ms = 1e4;
      simulator x(workload, options, history, {round % 2 ? policy::throughput : policy::liveput, "regime", 0, 12});
      double ideal = 0, rest_ms = 0;
      while (!x.done()) {
        const auto i = x.intervals().size();
        const double seconds = i + 1 < history.size() ? history[i + 1].seconds - history[i].seconds : interval_s;
        const auto copied = x.lost().snapshots;
        x.decide();
        x.advance();
        const auto& last = x.intervals().back();
        EXPECT_LE(last.used.slots(), history[i].available);
        if (rest_ms == 0) {
          const double free_s = seconds - last.cost_ms / 1000;
          EXPECT_NEAR(last.samples + x.lost().snapshots - copied,
                      workload.throughput(last.used) * std::max(0.0, free_s), 1e-9 * ideal + 1e-9);
          EXPECT_NEAR(x.state().rest_ms, 1000 * std::max(0.0, -free_s), 1e-6);
        }
        rest_ms = x.state().rest_ms;
        ideal += seconds * workload.throughput(workload.fastest(history[i].available));
      }
      EXPECT_NEAR(x.ideal(), ideal, 1e-9 * ideal);
      const auto& lost = x.lost();
      for (const double part : {lost.bytes, lost.messages, lost.replayed, lost.snapshots, lost.remainder})
        EXPECT_GE(part, 0);
      EXPECT_GT(lost.bytes, 0);
      EXPECT_GE(x.samples(), 0);
      EXPECT_NEAR(x.samples() + lost.bytes + lost.messages + lost.replayed + lost.snapshots + lost.remainder, ideal,
                  1e-9 * ideal);
    }
  }
}

struct both_policies {
  double fastest = 0; ///< of the ideal's samples
  double planned = 0;
};

both_policies on_slow_link(const profile& workload, std::uint64_t seed, const realistic_options& options) {
  const auto history = generated(seed);
  both_policies result;
  for (const auto kind : {policy::throughput, policy::liveput}) {
    simulator x(workload, options, history, {kind, "auto", 0, 12});
    while (!x.done()) {
      const bool fits = workload.fastest(history[x.intervals().size()].available).width > 0;
      x.decide();
      x.advance();
      EXPECT_EQ(x.intervals().back().used.width > 0, fits);
    }
    (kind == policy::liveput ? result.planned : result.fastest) = x.samples() / x.ideal();
  }
  return result;
}

// given: links on which starting takes up to half an hour, 12 minutes looked ahead / expected: instances that can train
// are never idle, and all in all (40 runs) planning is worth it; a run may be behind by a little, and by more where
// what keepers lack, which is as much as such a link delays, decides over a run
TEST(properties, liveput_trains_on_however_slow_the_link) {
  const auto workload = made_up::workload(6, 10, 3);
  for (const bool at_once : {true, false}) {
    double planned = 0, fastest = 0;
    for (std::uint64_t seed = 1; seed <= 10; ++seed)
      for (const double link_bytes_per_ms : {3e3, 1e4, 3e4, 1e5}) {
        realistic_options options;
        options.figures.link_bytes_per_ms = link_bytes_per_ms;
        options.kept.at_once = at_once;
        const auto x = on_slow_link(workload, seed, options);
        if (at_once) {
          EXPECT_GT(x.planned, x.fastest - 0.02) << "seed " << seed << ", " << link_bytes_per_ms << " bytes/ms";
        }
        fastest += x.fastest;
        planned += x.planned;
      }
    RecordProperty(at_once ? "at once" : "by the link", std::to_string(fastest) + " " + std::to_string(planned));
    EXPECT_GT(planned, fastest);
  }
}

// Costs paid at once, a plan for the whole future is an upper bound for everything else.
TEST(properties, nobody_beats_the_oracle_in_real_time) {
  const auto workload = made_up::workload(6, 10, 3);
  auto history = generated(4);
  std::mt19937_64 random(9);
  auto options = random_options(random);
  options.announced = false;
  auto run = [&](const simulation_options& how) {
    simulator x(workload, options, history, how);
    while (!x.done()) {
      x.decide();
      x.advance();
    }
    return x.samples();
  };
  double sudden = 0;
  for (const bool announced : {false, true}) {
    for (auto& x : history)
      x.announced = announced ? x.lost : 0;
    const double oracle = run({policy::liveput, "oracle", 0, 1'000'000});
    EXPECT_LE(oracle, run({policy::ideal, {}, 0, 12}));
    EXPECT_LE(run({policy::throughput, {}, 0, 12}), oracle * (1 + 1e-9));
    for (const auto& name : method_names())
      for (std::uint32_t notice = 1; notice < 3; ++notice)
        EXPECT_LE(run({policy::liveput, name, notice, 12}), oracle * (1 + 1e-9)) << name << announced;
    if (!announced)
      sudden = oracle;
    else
      EXPECT_GT(oracle, sudden);
  }
}

} // namespace
} // namespace parcae
