// Exported models on devices: their graphs' operators, constants and buffers are there, too.

#include "protocols/model/exported_model.hpp"
#include "tests/gpu/training/short_job.hpp"
#include "tests/support/executor_cluster.hpp"
#include "tests/support/fake_device.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace parcae {
namespace {

class exported_on_devices : public ::testing::TestWithParam<const char*> {};

// given: an exported model on fake devices, two slots on each, through three changes / expected: the bits of the
// undisturbed run there
TEST_P(exported_on_devices, shapes_change_no_bit) {
  know_fake_devices();
  const std::string name = GetParam();
  auto job = short_job("gpt");
  job.model = {.kind = "exported"};
  job.model.path = (std::filesystem::path(PARCAE_EXPORTED_MODELS) / name).string();
  take_exported_model(job.model);
  if (name == "resnet18")
    job.data = {.kind = "synthetic", .samples = 100};
  ASSERT_EQ(problem_of(job), "");
  const worker_kind on{[](std::uint64_t n) { return &fake_device(static_cast<std::uint32_t>(n / 2)); }};
  EXPECT_EQ(digest_after(job, {{2, 2}, {3, 1}, {1, 4}}, on), undisturbed_digest(job, on));
}

INSTANTIATE_TEST_SUITE_P(models, exported_on_devices, ::testing::Values("gpt2_dropout", "resnet18"),
                         [](const auto& x) { return std::string(x.param); });

} // namespace
} // namespace parcae
