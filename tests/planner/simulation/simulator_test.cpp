#include "planner/simulation/simulator.hpp"
#include "planner/simulation/trace_generator.hpp"
#include "tests/planner/workloads.hpp"

#include <gtest/gtest.h>

namespace parcae {
namespace {

fleet_history generated(const char* kind, std::uint64_t seed, double hours) {
  auto options = trace_kind(kind);
  options.hours = hours;
  options.capacity = 10;
  options.largest_group = 4;
  return intervals_of(generate_trace(options, seed));
}

double run(const profile& workload, const fleet_history& history, const simulation_options& options,
           std::uint32_t devices = 1) {
  const auto network = made_up::network();
  published_cost costs(workload, network, devices);
  simulator x(workload, costs, history, options);
  while (!x.done()) {
    x.decide();
    x.advance();
    const auto& last = x.intervals().back();
    EXPECT_LE(last.used.slots(), history[x.intervals().size() - 1].available * devices);
    EXPECT_GE(last.samples, 0);
  }
  return x.samples();
}

// given: any trace and forecast / expected: no policy beats the one that knows the whole trace, and that not the ideal
TEST(simulator, nobody_beats_who_knows_it_all) {
  const auto workload = made_up::workload(6, 10, 3);
  for (const char* kind : {"p3", "bursty", "collapsing"}) {
    const auto history = generated(kind, 1, 3);
    const double ideal = run(workload, history, {policy::ideal, {}, 0, 12});
    const double oracle = run(workload, history, {policy::liveput, "oracle", 0, 1'000'000});
    EXPECT_LE(oracle, ideal);
    EXPECT_LE(run(workload, history, {policy::liveput, "oracle", 0, 12}), oracle * (1 + 1e-9));
    for (const auto& name : method_names())
      for (std::uint32_t notice = 0; notice < 3; ++notice)
        EXPECT_LE(run(workload, history, {policy::liveput, name, notice, 12}), oracle * (1 + 1e-9)) << name << kind;
    EXPECT_LE(run(workload, history, {policy::throughput, {}, 0, 12}), oracle * (1 + 1e-9));
  }
}

TEST(simulator, several_devices_per_instance) {
  const auto workload = made_up::workload(4, 20, 5);
  const auto history = generated("p3", 2, 1);
  const double oracle = run(workload, history, {policy::liveput, "oracle", 0, 1'000'000}, 2);
  EXPECT_GT(oracle, 0);
  EXPECT_LE(run(workload, history, {policy::liveput, "regime", 1, 12}, 2), oracle * (1 + 1e-9));
}

// given: losses without notice, every other one with, all with / expected: less work is computed again, the same as if
// the costs said so of all of them
TEST(simulator, an_announced_loss_costs_no_work) {
  const auto workload = made_up::workload(6, 10, 3);
  auto history = generated("p3", 3, 4);
  const auto replayed = [&](policy how, bool announced) {
    realistic_options costs;
    costs.announced = announced;
    simulator x(workload, costs, history, {how, "auto", 0, 12});
    while (!x.done()) {
      x.decide();
      x.advance();
    }
    const auto& lost = x.lost();
    EXPECT_NEAR(x.samples() + lost.bytes + lost.messages + lost.replayed + lost.snapshots + lost.remainder, x.ideal(),
                1e-9 * x.ideal());
    return std::pair(lost.replayed, x.samples());
  };
  for (const auto how : {policy::throughput, policy::liveput}) {
    for (auto& x : history)
      x.announced = 0;
    const auto sudden = replayed(how, false);
    const auto known = replayed(how, true);
    bool with = false;
    for (auto& x : history)
      if (x.lost > 0)
        x.announced = (with = !with) ? x.lost : x.lost - 1;
    const auto mixed = replayed(how, false);
    EXPECT_EQ(replayed(how, true), known);
    for (auto& x : history)
      x.announced = x.lost;
    const auto told = replayed(how, false);
    EXPECT_GT(sudden.first, mixed.first);
    EXPECT_GT(mixed.first, told.first); // what is left follows waiting
    if (how == policy::throughput) {
      EXPECT_EQ(told, known);
    }
  }
}

TEST(simulator, of_nothing_and_of_too_little) {
  auto workload = made_up::workload(4, 10, 5);
  const fleet_history none;
  const network_profile network = made_up::network();
  published_cost costs(workload, network);
  EXPECT_TRUE(simulator(workload, costs, none, {}).done());
  std::erase_if(workload.samples_per_s, [](const auto& x) { return x.first.slots() < 3; });
  const auto two = parse_trace("0,2\n600,2\n");
  for (const auto kind : {policy::ideal, policy::throughput, policy::liveput})
    for (std::uint32_t notice = 0; notice < 3; ++notice)
      EXPECT_EQ(run(workload, two, {kind, "auto", notice, 12}), 0);
}

} // namespace
} // namespace parcae
