// Training on devices: final parameters after changes, after kills, and of slots that copy to each other, against 1×1
// on a device. On fake ones, two slots on each; with PARCAE_ON_GPU on the first GPU, all slots on it, or skipped where
// there is none.

#include "gpu/device/cuda_library.hpp"
#include "tests/gpu/training/short_job.hpp"
#include "tests/support/executor_cluster.hpp"
#ifdef PARCAE_ON_GPU
#include "gpu/training/exact_settings.hpp"
#else
#include "tests/support/fake_device.hpp"
#endif

#include <gtest/gtest.h>

#include <string>
#include <tuple>

namespace parcae {
namespace {

#ifdef PARCAE_ON_GPU
struct first_gpu {
  std::unique_ptr<device> it;
  std::string problem; ///< why there is none
};

// Opened before LibTorch is first called; left to the end of the process, as LibTorch leaves what it has there.
const first_gpu& gpu() {
  static const first_gpu& result = *[] {
    auto* x = new first_gpu{nullptr, ask_driver().problem};
    if (x->problem.empty()) {
      x->it = std::move(open_gpus(parse_device_choice("cuda:0"), cuda_library_file(), nccl_reach::host).front().on);
      make_libtorch_exact();
    }
    return x;
  }();
  return result;
}

std::string why_skipped() {
  return gpu().problem;
}

device* computes_on(std::uint64_t) {
  return gpu().it.get();
}
#else
std::string why_skipped() {
  return {};
}

device* computes_on(std::uint64_t n) {
  know_fake_devices();
  return &fake_device(static_cast<std::uint32_t>(n / 2) % fake_devices);
}
#endif

template <class Parameters>
class on_devices : public ::testing::TestWithParam<Parameters> {
  void SetUp() override {
    if (const auto why = why_skipped(); !why.empty())
      GTEST_SKIP() << why;
  }
};

class device_training : public on_devices<std::tuple<const char*, const char*>> {};

// given: a model of each kind on devices, in both precisions, through three changes / expected: the bits of the
// undisturbed run there
TEST_P(device_training, shapes_change_no_bit) {
  auto job = short_job(std::get<0>(GetParam()));
  job.precision = std::get<1>(GetParam());
  ASSERT_EQ(problem_of(job), "");
  EXPECT_EQ(digest_after(job, {{2, 2}, {3, 1}, {1, 4}}, {computes_on}), undisturbed_digest(job, {computes_on}));
}

INSTANTIATE_TEST_SUITE_P(kinds, device_training,
                         ::testing::Combine(::testing::Values("gpt", "mlp", "bert", "resnet", "vgg"),
                                            ::testing::Values("float32", "bfloat16")),
                         [](const auto& x) { return std::string(std::get<0>(x.param)) + "_" + std::get<1>(x.param); });

/// A precision, and whether slots know how much memory they may take, so that their devices copy snapshots.
class device_training_kills : public on_devices<std::pair<const char*, bool>> {};

// given: a worker that dies at each of these points of a step, and another in its place / expected: the same bits
TEST_P(device_training_kills, change_no_bit) {
  auto job = short_job("gpt");
  const auto [precision, known] = GetParam();
  job.precision = precision;
  job.steps = 10;
  job.keeper_every = 1;
#ifndef PARCAE_ON_GPU
  const auto before = copies_within_devices();
#endif
  expect_kills_change_no_bit(
      job, {.on = computes_on, .device_bytes = known ? bytes_for_tensors(computes_on(1)->facts().bytes) : 0});
#ifndef PARCAE_ON_GPU
  EXPECT_EQ(copies_within_devices() > before, known);
#endif
}

INSTANTIATE_TEST_SUITE_P(precisions, device_training_kills,
                         ::testing::Values(std::pair("float32", false), std::pair("bfloat16", false),
                                           std::pair("bfloat16", true)),
                         [](const auto& x) {
                           return std::string(x.param.first) + (x.param.second ? "_with_room" : "");
                         });

/// Precisions, and what gradients are summed in.
class device_training_peers : public on_devices<std::pair<const char*, const char*>> {};

// given: two processes of two slots, in a job that leaves the transport open, or says "tcp" / expected: in the former
// what the slots of a process have for each other is copied from device to device; both have the undisturbed run's bits
TEST_P(device_training_peers, change_no_bit) {
  auto job = short_job("gpt");
  std::tie(job.precision, job.gradient_sums) = GetParam();
  const auto expected = undisturbed_digest(job, {computes_on});
  for (const std::string transport : {"auto", "tcp"}) {
    SCOPED_TRACE(transport);
    job.transport = transport;
    executor_cluster cluster(job);
    cluster.workers = {.on = computes_on, .slots = 2};
    cluster.keep_shape(2, 2);
    cluster.add_keeper("keeper");
    cluster.add_workers(2);
    ASSERT_TRUE(cluster.run_until_ended()) << cluster.log().back();
    EXPECT_EQ(cluster.final_digest(), expected);
    EXPECT_EQ(cluster.view().transports.size(), 4u);
    for (const auto& [rank, x] : cluster.view().transports)
      EXPECT_TRUE(x.peers.used == (transport == "auto") && x.peers.reason.empty()) << rank << ": " << x.peers.reason;
  }
}

INSTANTIATE_TEST_SUITE_P(sums, device_training_peers,
                         ::testing::Values(std::pair("float32", "float32"), std::pair("bfloat16", "float32"),
                                           std::pair("float32", "bfloat16")),
                         [](const auto& x) { return std::string(x.param.first) + "_sums_in_" + x.param.second; });

} // namespace
} // namespace parcae
