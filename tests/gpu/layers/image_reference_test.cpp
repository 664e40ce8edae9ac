// The oracle for the layers of images: the same networks of torch::nn, from the same weights, both in float64. Rounding
// errors, which norms over few values magnify from step to step, are then far below what any mistake would change.

#include "gpu/data/dataset.hpp"
#include "gpu/data/samples.hpp"
#include "gpu/layers/model.hpp"
#include "tests/support/executor_cluster.hpp"
#include "tests/support/reference_models.hpp"
#include "tests/support/relative_difference.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace parcae {
namespace {

/// The layers on one device in float64, every layer a graph of its own, cut at both ends, as a stage has them.
class image_trainer {
public:
  image_trainer(const model_specification& model, std::uint64_t seed) :
      description(describe(model)), layers_(make_layers(model)) {
    for (std::uint32_t i = 0; i < layers_.size(); ++i) {
      parameters_.push_back(initial_parameters(description, i, seed).to(at::kDouble));
      moments_.push_back({at::zeros_like(parameters_.back()), at::zeros_like(parameters_.back())});
      const auto values = initial_buffers(description.layers[i]);
      buffers_.push_back(values.defined() ? values.to(at::kDouble) : at::Tensor());
      leaves.push_back(views_of(description.layers[i], parameters_.back()));
      for (auto& leaf : leaves.back())
        leaf = leaf.detach().requires_grad_();
    }
  }

  /// Adds `scale` times the gradients to those of the leaves, and the micro-batch's statistics to the buffers.
  double micro_batch(const at::Tensor& inputs, const at::Tensor& targets, double scale) {
    std::vector<std::pair<at::Tensor, at::Tensor>> ends;
    auto x = inputs;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (i > 0)
        x = x.detach().requires_grad_();
      const auto statistics = buffers_[i].defined() ? at::empty_like(buffers_[i]) : at::Tensor();
      auto output = layers_[i]->forward(leaves[i], x, {{}, true, {}, statistics});
      if (statistics.defined())
        update_buffers(buffers_[i], statistics.unsqueeze(0), variances_in(description.layers[i]));
      ends.emplace_back(x, output);
      x = std::move(output);
    }
    x = x.detach().requires_grad_();
    const auto loss = loss_of(x, targets);
    (loss * scale).backward();
    auto gradient = x.grad();
    for (auto i = layers_.size(); i-- > 0; gradient = ends[i].first.grad())
      torch::autograd::backward({ends[i].second}, {gradient});
    return loss.item<double>();
  }

  /// Clipping and LibTorch's AdamW, as our kernels are for float32 only; the gradients are gone afterwards.
  void apply(const optimizer_specification& optimizer, std::uint64_t step, double rate) {
    const c10::NoGradGuard no_gradient;
    double square = 0;
    std::vector<at::Tensor> gradients;
    for (auto& of_layer : leaves) {
      std::vector<at::Tensor> flat;
      for (auto& leaf : of_layer)
        flat.push_back(std::exchange(leaf.mutable_grad(), at::Tensor()).flatten());
      gradients.push_back(at::cat(flat));
      square += gradients.back().square().sum().item<double>();
    }
    const auto factor = optimizer.clip_norm > 0 ? optimizer.clip_norm / (std::sqrt(square) + 1e-6) : 1;
    const auto count = at::full({}, static_cast<double>(step + 1), at::kFloat);
    for (std::size_t i = 0; i < layers_.size(); ++i)
      at::_fused_adamw_({parameters_[i]}, {factor < 1 ? gradients[i] * factor : gradients[i]}, {moments_[i][0]},
                        {moments_[i][1]}, {}, {count}, rate, optimizer.beta1, optimizer.beta2, optimizer.weight_decay,
                        optimizer.epsilon, false, false);
  }

  /// The loss of evaluation.
  double evaluate(const at::Tensor& inputs, const at::Tensor& targets) const {
    const c10::NoGradGuard no_gradient;
    auto x = inputs;
    for (std::size_t i = 0; i < layers_.size(); ++i)
      x = layers_[i]->forward(leaves[i], x, {{}, false, buffers_[i], {}});
    return loss_of(x, targets).item<double>();
  }

  /// Running statistics by name.
  std::map<std::string, at::Tensor> statistics() const {
    std::map<std::string, at::Tensor> result;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      std::int64_t offset = 0;
      for (const auto& x : description.layers[i].buffers) {
        const auto n = static_cast<std::int64_t>(x.values());
        result[x.name] = buffers_[i].narrow(0, offset, n).view(x.shape);
        offset += n;
      }
    }
    return result;
  }

  model_description description;
  std::vector<std::vector<at::Tensor>> leaves; ///< by layer: views of the parameters, with gradients

private:
  std::vector<std::unique_ptr<layer>> layers_;
  std::vector<at::Tensor> parameters_; ///< flat, one per layer
  std::vector<at::Tensor> buffers_;    ///< flat, one per layer; undefined if it has none
  std::vector<std::vector<at::Tensor>> moments_;
};

/// The job as trained by `image_trainer`, what train_plainly() does with torch::nn.
plain_training train_layers(const job_specification& job) {
  image_trainer x{job.model, job.seed};
  sample_source samples(job, load_dataset(job.data, job.model));
  plain_training result;
  auto evaluate = [&] {
    auto [inputs, targets] = empty_samples(x.description, static_cast<std::int64_t>(job.data.validation));
    for (std::int64_t i = 0; i < inputs.size(0); ++i)
      samples.validation(static_cast<std::uint64_t>(i), sample_values(inputs, i), sample_values(targets, i));
    result.validation_losses.push_back(x.evaluate(inputs, targets));
  };
  std::uint64_t number = 0;
  for (std::uint64_t step = 0; step < job.steps; ++step) {
    if (step % job.evaluate_every == 0)
      evaluate();
    double sum = 0;
    for (std::uint32_t m = 0; m < job.micro_batches(); ++m) {
      auto [inputs, targets] = empty_samples(x.description, job.micro_batch);
      for (std::int64_t i = 0; i < job.micro_batch; ++i)
        samples.training(number++, sample_values(inputs, i), sample_values(targets, i));
      sum += x.micro_batch(inputs, targets, 1.0 / job.micro_batches());
    }
    x.apply(job.optimizer, step, learning_rate(job.optimizer, step, job.steps));
    result.losses.push_back(sum / job.micro_batches());
  }
  evaluate();
  result.statistics = x.statistics();
  return result;
}

struct image_case {
  const char* name;
  model_specification model;
};

void PrintTo(const image_case& x, std::ostream* to) {
  *to << x.name;
}

class image_reference : public ::testing::TestWithParam<image_case> {
protected:
  void SetUp() override { at::set_num_threads(1); }
};

// given: parameters unlike version 0, whose norms all have the same, and one micro-batch / expected: its loss, every
// tensor's gradient and every running statistic as torch::nn has them
TEST_P(image_reference, gradients_are_those_of_torch_modules) {
  const auto& model = GetParam().model;
  image_trainer ours{model, 5};
  const auto theirs = make_reference(model, 5, at::kDouble);
  {
    const c10::NoGradGuard no_gradient;
    for (std::size_t i = 0; i < ours.leaves.size(); ++i)
      for (std::size_t k = 0; k < ours.leaves[i].size(); ++k) {
        auto& mine = ours.leaves[i][k];
        mine.add_(at::randn(mine.sizes(), at::detail::createCPUGenerator(100 * i + k), mine.options()), 0.1);
        theirs->named.at(ours.description.layers[i].tensors[k].name).copy_(mine);
      }
  }
  auto [inputs, targets] = empty_samples(ours.description, 6);
  inputs.random_(0, 256, at::detail::createCPUGenerator(1));
  targets.random_(0, model.classes, at::detail::createCPUGenerator(2));
  const auto their_loss = reference_loss(*theirs, inputs, targets);
  their_loss.backward();
  EXPECT_NEAR(ours.micro_batch(inputs, targets, 1) / their_loss.item<double>(), 1, 1e-12);
  for (std::size_t i = 0; i < ours.leaves.size(); ++i)
    for (std::size_t k = 0; k < ours.leaves[i].size(); ++k) {
      const auto& name = ours.description.layers[i].tensors[k].name;
      const auto expected = theirs->named.at(name).grad();
      EXPECT_GT(expected.norm().item<double>(), 0) << name;
      EXPECT_LT(relative_difference(ours.leaves[i][k].grad(), expected), 1e-9) << name;
    }
  for (const auto& [name, value] : ours.statistics())
    EXPECT_LT(relative_difference(value, theirs->named.at(name)), 1e-9) << name;
}

// given: a job with two samples a micro-batch and usual steps / expected: losses, validation losses and running
// statistics of a plain loop. ResNet-50's agree to 2e-10 at the end; in float32 either loop is 2 to 3 % off at step 2.
TEST_P(image_reference, trains_like_a_plain_loop) {
  auto job = small_job();
  job.model = GetParam().model;
  job.steps = 5;
  job.evaluate_every = 2;
  job.data = {.kind = "synthetic", .samples = 120, .validation = 21};
  ASSERT_EQ(problem_of(job), "");
  const auto expected = train_plainly(job, at::kDouble), came = train_layers(job);
  for (std::size_t i = 0; i < job.steps; ++i)
    EXPECT_NEAR(came.losses[i] / expected.losses[i], 1, 1e-7) << "step " << i;
  ASSERT_EQ(came.validation_losses.size(), expected.validation_losses.size());
  for (std::size_t i = 0; i < came.validation_losses.size(); ++i)
    EXPECT_NEAR(came.validation_losses[i] / expected.validation_losses[i], 1, 1e-7) << "evaluation " << i;
  ASSERT_EQ(came.statistics.size(), expected.statistics.size());
  for (const auto& [name, value] : came.statistics)
    EXPECT_LT(relative_difference(value, expected.statistics.at(name)), 1e-6) << name;
}

const image_case cases[] = {
    {"basic_blocks_small_images", {.kind = "resnet", .layers = 14, .width = 4, .image = 16}},
    {"basic_blocks", {.kind = "resnet", .layers = 18, .width = 4, .image = 64}},
    {"bottlenecks", {.kind = "resnet", .layers = 50, .width = 4, .image = 64}},
    {"vgg", {.kind = "vgg", .layers = 11, .width = 4}},
};

INSTANTIATE_TEST_SUITE_P(models, image_reference, ::testing::ValuesIn(cases),
                         [](const auto& x) { return std::string(x.param.name); });

} // namespace
} // namespace parcae
