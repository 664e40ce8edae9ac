// Training with products in bfloat16: final parameters after changes against 1×1, and what float32 makes of the same
// job. After kills: device_training_test.

#include "gpu/layers/model.hpp"
#include "tests/gpu/training/short_job.hpp"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

namespace parcae {
namespace {

job_specification half_job(const std::string& kind) {
  auto job = small_job_of(kind);
  job.precision = "bfloat16";
  job.steps = 8;
  return job;
}

std::map<std::uint64_t, double> undisturbed_losses(const job_specification& job) {
  executor_cluster cluster(job);
  cluster.keep_shape(1, 1);
  cluster.add_keeper("keeper");
  cluster.add_worker("a");
  EXPECT_TRUE(cluster.run_until_ended()) << cluster.log().back();
  return cluster.losses();
}

class bfloat16_training : public ::testing::TestWithParam<const char*> {};

// given: a job of each kind at 1×1, 2×1, 1×2 and others, recomputed too / expected: the bits of 1×1
TEST_P(bfloat16_training, shapes_change_no_bit) {
  auto job = half_job(GetParam());
  ASSERT_EQ(problem_of(job), "");
  const auto expected = undisturbed_digest(job);
  for (const auto& taken : {shapes{{2, 1}}, shapes{{1, 2}}, shapes{{2, 2}, {3, 1}, {1, 5}, {4, 1}}})
    EXPECT_EQ(digest_after(job, taken), expected) << taken.size();
  job.recompute = true;
  EXPECT_EQ(digest_after(job, {{2, 1}, {1, 3}}), expected) << "recomputed";
}

// given: the same job in both precisions / expected: other bits, losses within 2 % of each other
TEST_P(bfloat16_training, loses_as_float32_does) {
  auto job = half_job(GetParam());
  const auto came = undisturbed_losses(job);
  job.precision = "float32";
  const auto expected = undisturbed_losses(job);
  ASSERT_EQ(came.size(), job.steps);
  ASSERT_EQ(expected.size(), job.steps);
  EXPECT_NE(came, expected);
  for (const auto& [step, loss] : came)
    EXPECT_NEAR(loss / expected.at(step), 1, 0.02) << "step " << step;
}

INSTANTIATE_TEST_SUITE_P(kinds, bfloat16_training, ::testing::Values("gpt", "mlp", "bert", "resnet", "vgg"),
                         [](const auto& x) { return std::string(x.param); });

// --- layers

/// Gradients of one micro-batch's loss by tensor, through all layers.
std::map<std::string, at::Tensor> gradients_of(const job_specification& job) {
  const auto model = describe(job.model);
  const auto layers = make_layers(job.model);
  const bool images = job.model.of_images();
  auto shape = model.input;
  shape.insert(shape.begin(), 4);
  at::manual_seed(7);
  auto x = at::randint(256, shape, at::kLong);
  const auto targets = at::randint(images ? 10 : 256, {4, static_cast<std::int64_t>(model.targets)}, at::kLong);
  std::vector<std::vector<at::Tensor>> leaves;
  for (std::uint32_t i = 0; i < layers.size(); ++i) {
    auto& own = leaves.emplace_back(views_of(model.layers[i], initial_parameters(model, i, job.seed)));
    for (std::size_t t = 0; t < own.size(); ++t) {
      if (job.in_bfloat16() && model.layers[i].tensors[t].is_matrix)
        own[t] = own[t].to(at::kBFloat16);
      own[t] = own[t].detach().requires_grad_();
    }
    x = layers[i]->forward(own, x, {.position = {job.seed, 3, 1}});
    EXPECT_EQ(x.scalar_type(), at::kFloat) << model.layers[i].name;
  }
  loss_of(model, x, targets).backward();
  std::map<std::string, at::Tensor> result;
  for (std::uint32_t i = 0; i < layers.size(); ++i)
    for (std::size_t t = 0; t < leaves[i].size(); ++t) {
      const auto& tensor = model.layers[i].tensors[t];
      EXPECT_EQ(leaves[i][t].grad().scalar_type(), leaves[i][t].scalar_type()) << tensor.name;
      result[tensor.name] = leaves[i][t].grad().to(at::kFloat);
    }
  return result;
}

class bfloat16_layers : public ::testing::TestWithParam<const char*> {};

// given: the same micro-batch in both precisions, with dropout and without / expected: every layer returns float32;
// gradients have their parameters' types, and are those of float32 but for roundings, which ReLUs and norms magnify (to
// 0.27 of a bias behind which much cancels out): half of the norm is what a scale wrong by a factor of two makes
TEST_P(bfloat16_layers, have_the_gradients_of_float32) {
  for (const auto dropout : {0.0, 0.1}) {
    auto job = half_job(GetParam());
    job.model.dropout = job.model.kind == "resnet" ? 0 : dropout;
    const auto came = gradients_of(job);
    job.precision = "float32";
    const auto expected = gradients_of(job);
    double largest = 0;
    for (const auto& [name, gradient] : expected)
      largest = std::max(largest, gradient.norm().item<double>());
    for (const auto& [name, gradient] : expected) // but those that cancel out, as keys' biases
      if (const auto norm = gradient.norm().item<double>(); norm > 0.01 * largest) {
        EXPECT_LT((came.at(name) - gradient).norm().item<double>(), norm / 2) << name;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(kinds, bfloat16_layers, ::testing::Values("gpt", "mlp", "bert", "resnet", "vgg"));

} // namespace
} // namespace parcae
