// Exported models on devices: their graphs' operators, constants and buffers are there, too.

#include "gpu/layers/model.hpp"
#include "gpu/layers/tensor_device.hpp"
#include "protocols/model/exported_model.hpp"
#include "tests/gpu/training/short_job.hpp"
#include "tests/gpu/training/stage_executor_fixture.hpp"
#include "tests/support/executor_cluster.hpp"
#include "tests/support/fake_device.hpp"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <gmock/gmock.h>
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

// given: a model with an operator whose gradient is not deterministic on the slot's device, though it is on the
// processor / expected: refused when it is tried, with the layer and LibTorch's words
TEST(exported_trial, what_is_not_deterministic_there_is_refused_at_once) {
  know_fake_devices();
  at::set_num_threads(1); // for autograd's threads, which begin here
  model_specification model{.kind = "exported"};
  model.path = (std::filesystem::path(PARCAE_EXPORTED_MODELS) / "gpt2_dropout").string();
  take_exported_model(model);
  const tensor_device on(fake_device(1));
  EXPECT_NO_THROW(try_own_model(model, on));
  watch_work([](std::uint32_t, const std::string& name, const std::string&) {
    TORCH_CHECK(name != "aten::native_layer_norm_backward", name, " does not have a deterministic implementation");
  });
  EXPECT_NO_THROW(try_own_model(model));
  try {
    try_own_model(model, on);
    ADD_FAILURE() << "was taken";
  } catch (const exported_model_error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("layer 1 "));
    EXPECT_THAT(e.what(), ::testing::HasSubstr(" in training: aten::native_layer_norm_backward does not have"));
  }
  watch_work({});
}

// given: a full device at LOAD, and one with room the next time / expected: that it was full is said; it is no fault of
// the model's, nor a reason to end the process
TEST(exported_trial, finds_a_full_device) {
  know_fake_devices();
  auto job = short_job("gpt");
  job.model = {.kind = "exported"};
  job.model.path = (std::filesystem::path(PARCAE_EXPORTED_MODELS) / "gpt2_dropout").string();
  take_exported_model(job.model);
  auto& on = fake_device(7);
  parcae::rig::worker w("w", {}, &on);
  {
    const little_memory card(on, 1, 0);
    w.work->submit(load{{1}, job});
    EXPECT_EQ(w.said.next<failed>().kind, failure::computation);
  }
  EXPECT_GT(on.shortages(), 0u);
  w.work->submit(load{{1}, job});
  EXPECT_NE(w.said.next<loaded>().data_digest, "");
  EXPECT_TRUE(w.reasons_to_end().empty());
}

} // namespace
} // namespace parcae
