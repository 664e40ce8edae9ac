// Training on fake devices by instances with several slots, which copy from device to device: through changes, and
// kills of whole instances, against a run of one slot.

#include "tests/gpu/training/short_job.hpp"
#include "tests/support/executor_cluster.hpp"
#include "tests/support/fake_device.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

namespace parcae {
namespace {

device* device_for_each(std::uint64_t n) {
  know_fake_devices();
  return &fake_device(static_cast<std::uint32_t>(n % fake_devices));
}

/// As many for each instance.
worker_kind slots_on_devices(std::uint32_t slots) {
  return {device_for_each, {}, slots};
}

class peer_training : public ::testing::TestWithParam<std::tuple<const char*, std::uint32_t, const char*>> {};

// given: gpt in both precisions, with sums of both types, through ten changes of shape, in one process, or in two
// between which it is TCP / expected: the bits of the undisturbed run, and copies from device to device unless the job
// says TCP, which has the same bits
TEST_P(peer_training, changes_no_bit) {
  auto job = short_job("gpt");
  job.precision = std::get<0>(GetParam());
  job.gradient_sums = std::get<2>(GetParam());
  job.steps = 36;
  const shapes ten_changes{{2, 2}, {3, 1}, {1, 4}, {2, 1}, {1, 2}, {4, 1}, {2, 2}, {1, 3}, {1, 4}, {3, 1}, {2, 2}};
  const auto workers = slots_on_devices(std::get<1>(GetParam()));
  auto by_tcp = job;
  by_tcp.transport = "tcp";
  const auto before = copies_between_devices();
  const auto expected = digest_after(by_tcp, {{2, 2}, {1, 4}}, workers);
  EXPECT_EQ(copies_between_devices(), before);
  EXPECT_EQ(undisturbed_digest(job, workers), expected);
  EXPECT_EQ(digest_after(job, ten_changes, workers), expected);
  EXPECT_GT(copies_between_devices(), before + job.steps) << "at least one in each step";
}

INSTANTIATE_TEST_SUITE_P(precisions, peer_training,
                         ::testing::Values(std::tuple("float32", 2u, "float32"), std::tuple("bfloat16", 4u, "float32"),
                                           std::tuple("float32", 2u, "bfloat16")),
                         [](const auto& x) {
                           return std::string(std::get<0>(x.param)) + "_" + std::to_string(std::get<1>(x.param)) +
                                  (std::string(std::get<2>(x.param)) == "float32" ? "" : "_sums_in_bfloat16");
                         });

// given: three instances of two slots each, of which one dies at each of these points, while the other slot of its
// process is anywhere / expected: the bits of the undisturbed run; all ranks copy to the one beside them
TEST(peer_training_kills, change_no_bit) {
  auto job = short_job("gpt");
  job.steps = 10;
  job.keeper_every = 1;
  const auto expected = undisturbed_digest(job, slots_on_devices(1));
  for (const std::string_view phase : points_of_step) {
    SCOPED_TRACE(phase);
    executor_cluster cluster(job);
    cluster.workers = slots_on_devices(2);
    cluster.planner = [&](std::uint32_t slots, const auto&) {
      return slots < 4 ? configuration{0, 0, {}, 0, "too few"} : shape(job, 2, 2);
    };
    std::atomic<bool> killed = false;
    cluster.add_keeper("keeper");
    for (const auto* name : {"a", "b", "c"})
      cluster.add_worker(name, [&](const fault_point& x) {
        return x.step == 4 && x.phase == phase && !killed.exchange(true) ? fault_action::kill : fault_action::none;
      });
    ASSERT_TRUE(cluster.run_until_ended()) << cluster.log().back();
    EXPECT_TRUE(killed);
    EXPECT_EQ(cluster.final_digest(), expected);
    EXPECT_FALSE(cluster.view().transports.empty());
    for (const auto& [rank, x] : cluster.view().transports)
      EXPECT_EQ(x.peers, (peer_copies{true, {}})) << rank;
  }
}

} // namespace
} // namespace parcae
