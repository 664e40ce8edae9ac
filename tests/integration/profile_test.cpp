// What the planner measures and reckons with, on real processes: `parcae profile`, memory of slots.

#include "planner/cost/profile.hpp"
#include "tests/support/cluster.hpp"

#include <algorithm>
#include <csignal>

namespace parcae {
namespace {

struct profile_test : cluster_test {};

TEST_F(profile_test, a_job_is_measured_and_its_profile_simulated) {
  const auto output = folder.path() / "mlp.json";
  const auto x = run({"profile", PARCAE_SOURCE_DIR "/deploy/examples/mlp.toml", "--output", output, "--duration",
                      "500ms", "--changes", "3", "--cores", "1", "--slots", "4"},
                     false);
  ASSERT_EQ(x.status, 0) << x.error;
  EXPECT_THAT(x.output, HasSubstr("samples/s predicted"));
  const auto profile = parse_profile(read_file(output));
  EXPECT_EQ(profile.layers.size(), 4u);
  double layers_ms = 0;
  for (const auto& layer : profile.layers) {
    EXPECT_GT(layer.forward_ms, 0);
    EXPECT_GT(layer.backward_ms, 0);
    layers_ms += 4 * (layer.forward_ms + layer.backward_ms) + layer.optimizer_ms;
  }
  ASSERT_TRUE(profile.changes);
  EXPECT_GT(profile.changes->prepare_ms, 0);
  EXPECT_GT(profile.changes->activate_ms, 0);
  // One slot takes what its layers take, and something besides.
  const double step_ms = 1000.0 * profile.global_batch / profile.throughput({1, 1});
  EXPECT_GE(step_ms, 0.5 * layers_ms);
  EXPECT_GT(profile.throughput({2, 1}), 0);
  const auto replay = run({"simulate", "--profile", output, "--trace", "calm:1", "--policy", "liveput", "--accounting",
                           "realistic", "--json"},
                          false);
  ASSERT_EQ(replay.status, 0) << replay.error;
  EXPECT_THAT(replay.output, HasSubstr("share_of_ideal"));
}

TEST_F(profile_test, errors_say_what_to_do) {
  const std::string job = PARCAE_SOURCE_DIR "/deploy/examples/mlp.toml";
  const auto x = run({"profile", job, "--output", "/nowhere/x"}, false);
  EXPECT_EQ(x.status, 2);
  EXPECT_THAT(x.error, HasSubstr("no folder /nowhere"));
  const auto y = run({"profile", job, "--output", folder.path() / "x", "--duration", "soon"}, false);
  EXPECT_EQ(y.status, 2);
}

// A stage that does not fit: nothing is started, and the status says what would be needed. A larger slot is used.
TEST_F(profile_test, a_job_waits_for_slots_with_memory_enough) {
  start_nodes({"small"}, {"--slot-memory", "100KiB"});
  const auto instances = cluster->client().status({}).instances;
  EXPECT_EQ(std::ranges::find(instances, "small", &instance_status::name)->slot_bytes, 100u << 10);
  const auto id = cluster->client().submit(small_job(10));
  const auto x = wait_for_job(id, "a refusal",
                              [&](const auto& j) { return j.problem.find("fits their memory") != std::string::npos; });
  EXPECT_THAT(x.problem, HasSubstr("1×1: stage 0 needs"));
  EXPECT_EQ(x.generation, 0u);
  cluster->node("small").signal(SIGKILL);
  cluster->start_node("large", {"--slot-memory", "1GiB"});
  const auto end = wait_for_done(id);
}

} // namespace
} // namespace parcae
