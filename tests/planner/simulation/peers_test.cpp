#include "planner/simulation/peers.hpp"
#include "tests/planner/published.hpp"

#include <gtest/gtest.h>

namespace parcae {
namespace {

constexpr peer_kind all_kinds[] = {peer_kind::varuna, peer_kind::bamboo, peer_kind::oobleck};

// 10 samples/s whatever the number of nodes, steps of 10 s.
peer_model even(double restart_s, double rendezvous_s, double checkpoint_s, double reconfiguration_s) {
  peer_system x;
  x.samples_per_s = {{12, 10}, {30, 10}};
  x.restart_s = restart_s;
  x.rendezvous_s = rendezvous_s;
  x.checkpoint_s = checkpoint_s;
  x.checkpoint_every_steps = 2;
  x.reconfiguration_s = reconfiguration_s;
  return {"even", 100, {{"varuna", x}, {"bamboo", x}, {"oobleck", x}}};
}

// Nodes n0 … at 0 s, the given ones removed at the given seconds, the end at 200 s.
std::vector<trace_event> trace_of(std::uint32_t nodes, std::vector<std::pair<std::uint32_t, std::uint32_t>> removed) {
  std::vector<trace_event> result;
  for (std::uint32_t i = 0; i < nodes; ++i)
    result.push_back({0, true, "n" + std::to_string(i), 0});
  for (const auto& [seconds, i] : removed)
    result.push_back({seconds * 1000, false, "n" + std::to_string(i), 0});
  result.push_back({200'000, true, "last", 0});
  return result;
}

// given: reconfiguration 2 s / expected: steps from 47 s on; after a loss at 100 s from 102 s on
TEST(peers, oobleck_loses_the_step_in_flight) {
  const auto model = even(0, 0, 0, 2);
  EXPECT_EQ(replay_peer(peer_kind::oobleck, model, trace_of(13, {}), {}).samples, 1500);
  const auto x = replay_peer(peer_kind::oobleck, model, trace_of(13, {{100, 3}}), {});
  EXPECT_EQ(x.samples, 1400); // 57 … 97, 112 … 192
  EXPECT_EQ(x.regroupings, 2u);
  EXPECT_EQ(x.progress.back().seconds, 192);
  EXPECT_NEAR(x.samples_per_s, 1400 / 145.0, 1e-12);
  EXPECT_EQ(replay_peer(peer_kind::oobleck, model, trace_of(12, {{100, 3}}), {}).samples, 500) << "11 nodes are left";
}

// given: all systems with 10 samples/s / expected: as many from 45 s, when the nodes have started, to the trace's end
TEST(peers, ideal_by_hand) {
  const auto ideal = ideal_progress(even(0, 0, 0, 2), trace_of(13, {}));
  EXPECT_EQ(ideal.back().seconds, 200);
  EXPECT_EQ(ideal.back().samples, 1550);
  EXPECT_EQ(samples_at(ideal, 165), 1200);
  EXPECT_NEAR(samples_at(ideal, 170), 1250, 1e-9);
  EXPECT_EQ(samples_at(ideal, 500), 1550);
}

// given: of two losses at 100 s, restart 2 s / expected: as after one; the artifact's rules stop until the next event
TEST(peers, losses_at_the_same_moment) {
  const auto model = even(0, 0, 0, 2);
  const auto trace = trace_of(14, {{100, 3}, {100, 4}});
  EXPECT_EQ(replay_peer(peer_kind::oobleck, model, trace, {}).samples, 1400);
  EXPECT_EQ(replay_peer(peer_kind::oobleck, model, trace, {false, true, true}).samples, 500);
}

// given: restart 30 s of which 10 s are the checkpoint, one every second step / expected: steps at 75 85 | 105 115 |
// and the loss at 120 s comes while the second checkpoint is written
TEST(peers, varuna_falls_back_to_a_finished_checkpoint) {
  const auto model = even(30, 0, 10, 0);
  const auto trace = trace_of(13, {{120, 3}});
  const auto x = replay_peer(peer_kind::varuna, model, trace, {});
  EXPECT_EQ(x.samples, 500); // 200 of the first checkpoint; 150 | 170 | 190
  EXPECT_EQ(replay_peer(peer_kind::varuna, model, trace, {false, false, false}).samples, 700);
}

// given: a slow regrouping (60 s) with steps of 10 s / expected: the artifact's rules let steps end meanwhile
TEST(peers, steps_while_regrouping) {
  const auto model = even(60, 0, 0, 0);
  const auto trace = trace_of(13, {{120, 3}});
  const auto stands = replay_peer(peer_kind::varuna, model, trace, {false, false, false});
  const auto goes_on = replay_peer(peer_kind::varuna, model, trace, {true, false, false});
  EXPECT_EQ(stands.samples, 200);  // 115, 190
  EXPECT_EQ(goes_on.samples, 800); // 115 … 175, 190
}

// given: 24 nodes of 2 pipelines, one lost at 100 s / expected: its neighbour stands in for it in a step that takes
// longer; then, more than 5 % being without a stand-in, everything is rebalanced
TEST(peers, bamboo_stands_in_and_rebalances) {
  const auto x = replay_peer(peer_kind::bamboo, even(20, 30, 0, 0), trace_of(24, {{100, 3}}), {});
  // From 75 s: 85, 95; the step until 105 takes half of the 5 s since the loss longer; then 20 s, and 137.5 …
  EXPECT_EQ(x.regroupings, 2u);
  EXPECT_EQ(x.samples, 1000);
  EXPECT_EQ(x.progress[2].seconds, 107.5);
  EXPECT_EQ(x.progress[3].seconds, 137.5);
  // Two neighbours lost: all over again, at once.
  const auto both = replay_peer(peer_kind::bamboo, even(20, 30, 0, 0), trace_of(24, {{100, 3}, {101, 2}}), {});
  EXPECT_EQ(both.regroupings, 2u);
  EXPECT_EQ(both.progress[2].seconds, 141);
}

// given: a node that never works is lost / expected: nobody stands in for it; by the artifact's rules all are slower
TEST(peers, bamboo_does_not_miss_a_node_without_a_place) {
  const auto model = even(20, 30, 0, 0);
  auto trace = trace_of(24, {});
  const double undisturbed = replay_peer(peer_kind::bamboo, model, trace, {}).samples;
  trace.insert(trace.end() - 1, {{90'000, true, "short", 0}, {100'000, false, "short", 0}});
  EXPECT_EQ(replay_peer(peer_kind::bamboo, model, trace, {}).samples, undisturbed);
  EXPECT_LT(replay_peer(peer_kind::bamboo, model, trace, {false, false, true, true}).samples, undisturbed);
}

TEST(peers, of_an_empty_trace_and_without_figures) {
  auto model = even(1, 1, 1, 1);
  for (const auto kind : all_kinds) {
    EXPECT_EQ(replay_peer(kind, model, {}, {}).samples, 0);
    model.systems.at(to_string(kind)).samples_per_s.clear();
    EXPECT_EQ(replay_peer(kind, model, trace_of(13, {{100, 3}}), {}).samples, 0);
  }
}

// Published: what the artifact's simulators give on the scaled trace. With its rules all agree within 5 % but Varuna's
// two largest models, see the folder's README.
TEST(peers, published_figures) {
  PARCAE_NEEDS_PUBLISHED_FIGURES();
  const auto trace = parse_events(read_file((published::folder() / "traces" / "p3-scaled-30.csv").string()));
  const auto peers =
      parse_peers(read_file((published::folder() / "profiles" / "peers-oobleck-artifact.json").string()));
  std::size_t compared = 0;
  for (const auto& model : peers)
    for (const auto kind : all_kinds) {
      const double expected = model.systems.at(to_string(kind)).published_samples_per_s;
      const double published = replay_peer(kind, model, trace, peer_rules::published(model.name)).samples_per_s;
      const double fair = replay_peer(kind, model, trace, {}).samples_per_s;
      const auto name = to_string(kind) + "_" + model.name;
      RecordProperty(name, std::to_string(published) + " published " + std::to_string(expected) + " fair " +
                               std::to_string(fair));
      if (kind == peer_kind::oobleck) {
        EXPECT_GT(fair, published) << name; // the artifact stops it after two losses at once
      }
      if (kind == peer_kind::varuna && (model.name == "gpt3-2.7b" || model.name == "gpt3-6.7b"))
        continue;
      EXPECT_NEAR(published, expected, 0.05 * expected) << name;
      ++compared;
    }
  EXPECT_EQ(compared, 13u);
}

} // namespace
} // namespace parcae
