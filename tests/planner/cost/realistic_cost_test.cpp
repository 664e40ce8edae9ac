// The realistic cost of a change.
//
//   given                                        expected
//   a change worked out by hand                  phases and bytes add up, moments hide behind a long step
//   random losses, grids, devices per instance   the mean over all subsets
//   random grids and losses                      close to the busiest link of the plans that are really made
//   announced instead of not, faster link,       never dearer
//   more keepers, nothing lost
//   nothing changes                              free

#include "planner/cost/realistic_cost.hpp"
#include "planner/situation/placement.hpp"
#include "tests/planner/workloads.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <string>

namespace parcae {
namespace {

change_figures figures() {
  return {.link_bytes_per_ms = 1e6,
          .detect_ms = 3,
          .settle_ms = 20,
          .loss_ms = 4,
          .plan_ms = 5,
          .prepare_ms = 100,
          .transfer_ms = 7,
          .activate_ms = 9,
          .rank_ms = 0};
}

realistic_options options(bool announced, std::uint32_t devices = 1) {
  realistic_options x;
  x.figures = figures();
  x.announced = announced;
  x.devices = devices;
  return x;
}

profile steps_of_two_seconds() {
  auto workload = made_up::workload(4, 8, 1, true);
  for (const shape x : {shape{1, 1}, shape{1, 2}, shape{2, 2}, shape{3, 1}, shape{4, 1}})
    workload.samples_per_s[x] = 32;
  return workload;
}

TEST(realistic_cost, by_hand) {
  // Four layers of 3e7 values, 12 bytes of state each: 3.6e8 bytes, 360 ms on the link, of which 120 are parameters.
  // The others have 0.63 of a step. 64 samples a step.
  auto workload = made_up::workload(4, 8, 1, true);
  workload.samples_per_s[{2, 2}] = 32; // a step takes 2 s
  workload.samples_per_s[{1, 2}] = 16; // 4 s
  realistic_cost announced(workload, options(true));
  realistic_cost sudden(workload, options(false));
  const std::vector<std::uint32_t> all{2, 2}, one_lost{2, 1}, stage_lost{2, 0};

  // A replica joins each stage: two layers received; each stage has two senders for one receiver.
  EXPECT_EQ(announced.given({2, 2}, {3, 2}, all), (change_cost{16, 240, 0, 0}));
  EXPECT_EQ(sudden.given({2, 2}, {3, 2}, all), (change_cost{16, 240, 0, 0}));
  // Down to one pipeline: nobody needs anything.
  EXPECT_EQ(announced.given({2, 2}, {1, 2}, one_lost), (change_cost{16, 0, 0, 0}));
  EXPECT_EQ(sudden.given({2, 2}, {1, 2}, one_lost), (change_cost{16 + 3 + (20 + 4) + 5 + 100, 0, 0, 2000}));
  // A spare takes the place over.
  EXPECT_EQ(sudden.given({2, 2}, {2, 2}, one_lost), (change_cost{148, 240, 0, 1000}));
  // One pipeline of four: each new stage is half of an old one, which two hold.
  EXPECT_EQ(announced.given({2, 2}, {1, 4}, all), (change_cost{16, 0, 0, 0}));
  // Two of one stage: both need the two layers that the other one holds, and each layer has two holders.
  EXPECT_EQ(announced.given({2, 2}, {2, 1}, all), (change_cost{16, 240, 0, 0}));
  // No replica of a stage is left: all of it comes from the keeper, twice, and its version is five steps old, and
  // those in which it came.
  EXPECT_EQ(sudden.given({2, 2}, {2, 2}, stage_lost),
            (change_cost{16 + 100 + 3 + (20 + 2 * 4) + 5, 2 * 480, 2 * 960 - 1260, 5.5 * 2000 + 1440}));
  // With notice those who leave still send.
  EXPECT_EQ(announced.given({2, 2}, {2, 2}, stage_lost), (change_cost{16, 240, 0, 0}));

  EXPECT_EQ(announced.given({2, 2}, {2, 2}, all), change_cost{});
  EXPECT_EQ(announced.move_ms({2, 2}, {2, 2}, 6, 0), 0);
  EXPECT_EQ(sudden.start({2, 2}, true), (change_cost{116, 0, 0, 0}));
  EXPECT_EQ(sudden.start({2, 2}, false), (change_cost{116, 960, 1920 - 1260, 10000 + 1440}));
}

TEST(realistic_cost, is_the_mean_over_all_subsets) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 60; ++round) {
    const auto workload = made_up::workload(6, 12, random());
    const auto devices = static_cast<std::uint32_t>(1 + random() % 3);
    const shape from{static_cast<std::uint32_t>(1 + random() % 3), static_cast<std::uint32_t>(1 + random() % 4)};
    const shape to{static_cast<std::uint32_t>(1 + random() % 3), static_cast<std::uint32_t>(1 + random() % 4)};
    const auto in_grid = (from.slots() + devices - 1) / devices;
    const auto held = in_grid + static_cast<std::uint32_t>(random() % 3);
    const auto lost = static_cast<std::uint32_t>(random() % std::min(held + 1, 4u));
    realistic_cost costs(workload, options(random() % 2 == 0, devices));
    double sum = 0;
    int subsets = 0;
    for (std::uint32_t bits = 0; bits < 1u << held; ++bits) {
      if (std::popcount(bits) != static_cast<int>(lost))
        continue;
      std::vector<std::uint32_t> left(from.depth, from.width);
      for (std::uint32_t slot = 0; slot < from.slots(); ++slot)
        left[slot % from.depth] -= bits >> slot / devices & 1;
      sum += costs.given(from, to, left).total_ms();
      ++subsets;
    }
    EXPECT_NEAR(costs.move_ms(from, to, held, lost), sum / subsets, 1e-9 * (1 + sum / subsets))
        << to_string(from) << " to " << to_string(to) << ", " << lost << " of " << held << ", devices " << devices;
  }
}

// What the real plan moves over its busiest link when these slots (stage = slot mod P) of the grid are gone.
double planned_bytes(const profile& workload, const shape& from, const shape& to, std::uint32_t lost_bits,
                     std::uint32_t fresh) {
  std::vector<double> layer_ms;
  std::vector<std::uint64_t> layer_bytes;
  for (const auto& x : workload.layers) {
    layer_ms.push_back(x.forward_ms + x.backward_ms);
    layer_bytes.push_back(static_cast<std::uint64_t>(x.parameters * workload.state_bytes_per_parameter()));
  }
  const auto old_cut = partition_layers(layer_ms, from.depth);
  const version at{5, {1}};
  std::vector<candidate> candidates;
  auto add = [&] {
    const auto n = candidates.size();
    candidates.push_back({{{"i" + std::to_string(n), {n + 1}, 0}, "h", 1}, {}, false, false, n});
  };
  for (std::uint32_t slot = 0; slot < from.slots(); ++slot) {
    if (lost_bits >> slot & 1)
      continue;
    add();
    const auto stage = slot % from.depth;
    for (auto layer = old_cut[stage]; layer < old_cut[stage + 1]; ++layer)
      candidates.back().held.push_back({layer, at});
  }
  for (std::uint32_t i = 0; i < fresh; ++i)
    add();
  const auto plan = plan_change(to.width, partition_layers(layer_ms, to.depth), candidates, at, layer_bytes, nullptr);
  return static_cast<double>(busiest_link_bytes(plan.moves, layer_bytes));
}

TEST(realistic_cost, agrees_with_the_plans_really_made) {
  std::mt19937_64 random(11);
  std::vector<double> ratios;
  for (int round = 0; round < 400; ++round) {
    const auto workload = made_up::workload(12, 12, random());
    const shape from{static_cast<std::uint32_t>(1 + random() % 4), static_cast<std::uint32_t>(1 + random() % 4)};
    const shape to{static_cast<std::uint32_t>(1 + random() % 4), static_cast<std::uint32_t>(1 + random() % 4)};
    const auto lost_bits = static_cast<std::uint32_t>(random() & random() & ((1u << from.slots()) - 1));
    std::vector<std::uint32_t> left(from.depth, from.width);
    for (std::uint32_t slot = 0; slot < from.slots(); ++slot)
      left[slot % from.depth] -= lost_bits >> slot & 1;
    if (std::find(left.begin(), left.end(), 0) != left.end())
      continue;
    realistic_cost costs(workload, options(false));
    const double expected =
        costs.given(from, to, left).bytes_ms * figures().link_bytes_per_ms * (1 + workload.optimizer_tensors);
    const auto survivors = from.slots() - static_cast<std::uint32_t>(std::popcount(lost_bits));
    const auto fresh = to.slots() > survivors ? to.slots() - survivors : 0;
    const double planned = planned_bytes(workload, from, to, lost_bits, fresh);
    EXPECT_EQ(expected == 0, planned == 0) << to_string(from) << " to " << to_string(to);
    if (planned > 0 && expected > 0)
      ratios.push_back(expected / planned);
  }
  ASSERT_GT(ratios.size(), 200u);
  std::sort(ratios.begin(), ratios.end());
  // The plan sends whole layers and minimises all bytes, not those of the busiest link.
  EXPECT_NEAR(ratios[ratios.size() / 2], 1, 0.02);
  EXPECT_GT(ratios[ratios.size() / 20], 0.6);
  EXPECT_LT(ratios[ratios.size() * 19 / 20], 1.3);
}

TEST(realistic_cost, never_dearer_with_more) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    const auto workload = made_up::workload(8, 16, random());
    const shape from{static_cast<std::uint32_t>(1 + random() % 3), static_cast<std::uint32_t>(1 + random() % 5)};
    const shape to{static_cast<std::uint32_t>(1 + random() % 3), static_cast<std::uint32_t>(1 + random() % 5)};
    const auto held = from.slots() + static_cast<std::uint32_t>(random() % 4);
    const auto lost = static_cast<std::uint32_t>(random() % 4) % held;
    auto with = [&](auto change) {
      auto x = options(false);
      change(x);
      return realistic_cost(workload, x).move_ms(from, to, held, lost);
    };
    const double base = with([](auto&) {});
    EXPECT_TRUE(std::isfinite(base) && base >= 0);
    EXPECT_LE(with([](auto& x) { x.announced = true; }), base);
    EXPECT_LE(with([](auto& x) { x.figures.link_bytes_per_ms *= 2; }), base);
    EXPECT_LE(with([](auto& x) { x.kept.keepers = 2; }), base);
    realistic_cost costs(workload, options(false));
    EXPECT_LE(costs.move_ms(from, from, held, 0), costs.move_ms(from, from, held, lost));
  }
}

TEST(realistic_cost, refuses_figures_that_mean_nothing) {
  const auto workload = made_up::workload(2, 2, 1);
  auto x = options(false);
  x.figures.link_bytes_per_ms = 0;
  EXPECT_THROW(realistic_cost(workload, x), std::invalid_argument);
}

// given: four layers of 3.6e8 bytes, a snapshot every 5 steps of 2 s, 1e6 bytes/ms / expected: each rank stands still
// for what it copies, the busiest one's; more replicas share the work, and odd layers are not halved
TEST(realistic_cost, processors_copy_snapshots_while_nobody_trains) {
  const auto workload = steps_of_two_seconds();
  auto x = options(false);
  x.kept.every = 5;
  x.kept.copy_bytes_per_ms = 1e6;
  x.kept.processors = true;
  realistic_cost costs(workload, x);
  const auto fraction = [](double copied_ms) { return copied_ms / (5 * 2000 + copied_ms); };
  EXPECT_DOUBLE_EQ(costs.snapshot_fraction({1, 1}), fraction(4 * 360));
  EXPECT_DOUBLE_EQ(costs.snapshot_fraction({1, 2}), fraction(2 * 360));
  EXPECT_DOUBLE_EQ(costs.snapshot_fraction({2, 2}), fraction(360));
  EXPECT_DOUBLE_EQ(costs.snapshot_fraction({3, 1}), fraction(2 * 360));
  EXPECT_DOUBLE_EQ(costs.snapshot_fraction({4, 1}), fraction(360));
  EXPECT_EQ(costs.snapshot_fraction({9, 1}), 0); // does not train
}

// given: the same, as often as links allow / expected: seldom enough that copying takes a two-thousandth of the time
TEST(realistic_cost, processors_rest_of_copying) {
  const auto workload = steps_of_two_seconds();
  auto x = options(false);
  x.kept.every = 0;
  x.kept.copy_bytes_per_ms = 1e6;
  x.kept.processors = true;
  realistic_cost costs(workload, x);
  EXPECT_DOUBLE_EQ(costs.snapshot_fraction({2, 2}), 360 / (360 * 2000.0 + 360));
  EXPECT_DOUBLE_EQ(costs.snapshot_fraction({1, 1}), 1440 / (1440 * 2000.0 + 1440));
}

// given: the same, copied by a device, in less than a step and in more / expected: only what outlasts a step counts
TEST(realistic_cost, devices_copy_snapshots_behind_a_step) {
  const auto workload = steps_of_two_seconds();
  auto x = options(false);
  x.kept.every = 5;
  x.kept.copy_bytes_per_ms = 1e6;
  EXPECT_EQ(realistic_cost(workload, x).snapshot_fraction({1, 1}), 0);
  x.kept.copy_bytes_per_ms = 5e5;
  EXPECT_DOUBLE_EQ(realistic_cost(workload, x).snapshot_fraction({1, 1}), 880.0 / (5 * 2000 + 880));
}

// given: a stage without a replica, keepers and copies / expected: done again is half a period and what is on the way,
// by the keepers' links or by the rank that sends most; a snapshot waits until the one before is there
TEST(realistic_cost, keepers_are_behind_by_half_a_period_and_the_way) {
  const auto workload = steps_of_two_seconds();
  const std::vector<std::uint32_t> stage_lost{2, 0};
  const auto replayed_ms = [&](double every, std::uint32_t keepers, std::uint32_t copies, double link = 1e6) {
    auto x = options(false);
    x.figures.link_bytes_per_ms = link;
    x.kept = {.keepers = keepers, .copies = copies, .every = every};
    return realistic_cost(workload, x).given({2, 2}, {2, 2}, stage_lost).replayed_ms - 1000; // half a step
  };
  EXPECT_DOUBLE_EQ(replayed_ms(10, 1, 1), 10'000 + 1440);
  EXPECT_DOUBLE_EQ(replayed_ms(10, 2, 1), 10'000 + 720);
  EXPECT_DOUBLE_EQ(replayed_ms(10, 2, 2), 10'000 + 1440);
  EXPECT_DOUBLE_EQ(replayed_ms(10, 1, 2), 10'000 + 1440); // there is one
  EXPECT_DOUBLE_EQ(replayed_ms(10, 8, 2), 10'000 + 720);  // a rank sends a layer twice
  // As often as links allow: of the keeper's, or of half of a sender's; in whole steps.
  EXPECT_DOUBLE_EQ(replayed_ms(0, 1, 1), 0.5 * 2000 + 1440);
  EXPECT_DOUBLE_EQ(replayed_ms(0, 8, 1), 0.5 * 2000 + 720);
  EXPECT_DOUBLE_EQ(replayed_ms(0, 8, 2), 0.5 * 2000 + 1440);
  EXPECT_DOUBLE_EQ(replayed_ms(0, 8, 2, 5e5), 0.5 * 4000 + 2880);
  EXPECT_DOUBLE_EQ(replayed_ms(10, 1, 1, 5e4), 1.5 * 28'800); // longer than ten steps
}

// given: a feed / expected: with a join that gains little only that the old configuration trains on until it is done,
// one that gains more than a stall costs begins at once; with notice nothing if all is moved until it ends; without, as
// before; nothing is fed that gradients would overtake
TEST(realistic_cost, a_feed_moves_state_beside_training) {
  auto workload = made_up::workload(4, 8, 1, true);
  workload.samples_per_s[{2, 2}] = 32;
  workload.samples_per_s[{3, 2}] = 33;
  workload.samples_per_s[{4, 2}] = 48;
  const std::vector<std::uint32_t> all{2, 2}, one_lost{2, 1};
  auto x = options(false);
  x.feed = true;
  const auto cost = [&](const shape& to, const std::vector<std::uint32_t>& left) {
    return realistic_cost(workload, x).given({2, 2}, to, left);
  };
  const auto bytes_ms = [&](const shape& to, const std::vector<std::uint32_t>& left) {
    return cost(to, left).bytes_ms;
  };
  EXPECT_EQ(bytes_ms({3, 2}, all), 0);
  EXPECT_DOUBLE_EQ(cost({3, 2}, all).late_ms, (2 * 2000 + 720 / 0.7) * (1 - 32.0 / 33));
  EXPECT_EQ(bytes_ms({4, 2}, all), 240);
  EXPECT_EQ(cost({4, 2}, all).late_ms, 0);
  EXPECT_EQ(bytes_ms({2, 2}, one_lost), 240);
  x.announced = true;
  EXPECT_EQ(bytes_ms({2, 2}, one_lost), 0);
  x.notice_ms = 5000; // takes 5,029 ms
  EXPECT_EQ(bytes_ms({2, 2}, one_lost), 240);
  workload.samples_per_s[{2, 2}] = 64'000.0 / 420; // 240 ms on the link for gradients, of 294
  EXPECT_EQ(bytes_ms({3, 2}, all), 240);
}

// given: what another system takes to build models / expected: no part of our own changes
TEST(realistic_cost, builds_no_models_as_others_do) {
  const auto workload = made_up::workload(4, 8, 1);
  EXPECT_EQ(figures_of(workload), change_figures{});
}

} // namespace
} // namespace parcae
