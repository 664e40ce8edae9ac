// The oracle for the layers: the same GPT written independently with torch::nn, trained with LibTorch's own optimizer
// and clipping from the same weights. Also: a small GPT learns text better than its letter frequencies.

#include "gpu/data/dataset.hpp"
#include "gpu/layers/model.hpp"
#include "gpu/layers/optimizer.hpp"
#include "tests/support/reference_gpt.hpp"
#include "tests/support/relative_difference.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace parcae {
namespace {

/// The layers trained on one device: what a job with one slot computes.
class trainer {
public:
  trainer(const model_specification& model, const optimizer_specification& optimizer, std::uint64_t seed) :
      description(describe(model)), optimizer_(optimizer), layers_(make_layers(model)) {
    for (std::uint32_t i = 0; i < layers_.size(); ++i) {
      parameters.push_back(initial_parameters(description, i, seed));
      moments_.emplace_back();
      for (std::uint32_t k = 0; k < moments_of(optimizer); ++k)
        moments_.back().push_back(at::zeros_like(parameters.back()));
    }
  }

  at::Tensor loss(const at::Tensor& tokens, const at::Tensor& targets, bool with_gradients = false) {
    std::vector<std::vector<at::Tensor>> views;
    std::vector<at::Tensor> all;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      views.push_back(views_of(description.layers[i], parameters[i]));
      for (auto& view : views.back()) {
        view = view.detach().requires_grad_(with_gradients);
        all.push_back(view);
      }
    }
    at::Tensor x = tokens;
    for (std::size_t i = 0; i < layers_.size(); ++i)
      x = layers_[i]->forward(views[i], x, {1, steps_, 0});
    auto result = loss_of(x, targets);
    if (with_gradients) {
      auto by_tensor = torch::autograd::grad({result}, all);
      gradients.clear();
      for (std::size_t i = 0, next = 0; i < layers_.size(); ++i) {
        std::vector<at::Tensor> flat;
        for (std::size_t k = 0; k < views[i].size(); ++k)
          flat.push_back(by_tensor[next++].flatten());
        gradients.push_back(at::cat(flat));
      }
      if (description.tied) {
        auto input = tied_part(description.tied->first_layer, description.tied->first_tensor);
        auto output = tied_part(description.tied->second_layer, description.tied->second_tensor);
        input.add_(output);
        output.copy_(input);
      }
    }
    return result.detach();
  }

  /// Norm over all gradients of the last loss(), a tied tensor counted once.
  double gradient_norm() {
    double square = 0;
    for (const auto& gradient : gradients)
      square += gradient.to(at::kDouble).square().sum().item<double>();
    if (description.tied)
      square -= tied_part(description.tied->second_layer, description.tied->second_tensor)
                    .to(at::kDouble)
                    .square()
                    .sum()
                    .item<double>();
    return std::sqrt(square);
  }

  double step(const at::Tensor& tokens, const at::Tensor& targets, double rate) {
    auto result = loss(tokens, targets, true).item<double>();
    auto norm = gradient_norm();
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      auto gradient = gradients[i];
      if (optimizer_.clip_norm > 0 && norm > optimizer_.clip_norm)
        gradient = gradient * (optimizer_.clip_norm / norm);
      apply_optimizer(optimizer_, parameters[i], moments_[i], gradient, steps_, rate);
    }
    ++steps_;
    return result;
  }

  at::Tensor tied_part(std::uint32_t layer, std::uint32_t tensor) {
    return views_of(description.layers[layer], gradients[layer])[tensor];
  }

  model_description description;
  std::vector<at::Tensor> parameters; ///< flat, one per layer
  std::vector<at::Tensor> gradients;  ///< of the last loss(), before clipping, tied ones added

private:
  optimizer_specification optimizer_;
  std::vector<std::unique_ptr<layer>> layers_;
  std::vector<std::vector<at::Tensor>> moments_;
  std::uint64_t steps_ = 0;
};

class model_reference_test : public testing::Test {
protected:
  void SetUp() override { at::set_num_threads(1); }
};

// given: tied or not, optimizer / expected: 20 steps with clipping give the losses, gradients and parameters of
// torch::nn
TEST_F(model_reference_test, trains_like_plain_libtorch) {
  for (bool tied : {true, false})
    for (const auto& optimizer : {optimizer_specification{.kind = "adamw", .weight_decay = 0.1, .clip_norm = 0.5},
                                  optimizer_specification{.kind = "sgd", .clip_norm = 0.5}}) {
      SCOPED_TRACE(optimizer.kind + (tied ? ", tied" : ", untied"));
      const double rate = optimizer.kind == "adamw" ? 1e-3 : 0.1;
      model_specification model{
          .layers = 3, .width = 32, .heads = 4, .sequence = 24, .vocabulary = 64, .tied_embeddings = tied};
      trainer ours{model, optimizer, 11};
      reference_gpt theirs{model};
      auto named = theirs.named();
      {
        torch::NoGradGuard no_grad;
        for (std::size_t i = 0; i < ours.parameters.size(); ++i) {
          auto views = views_of(ours.description.layers[i], ours.parameters[i]);
          for (std::size_t k = 0; k < views.size(); ++k)
            named.at(ours.description.layers[i].tensors[k].name).copy_(views[k]);
        }
      }
      std::unique_ptr<torch::optim::Optimizer> their_optimizer;
      if (optimizer.kind == "adamw")
        their_optimizer = std::make_unique<torch::optim::AdamW>(
            theirs.parameters(), torch::optim::AdamWOptions(rate).weight_decay(optimizer.weight_decay));
      else
        their_optimizer = std::make_unique<torch::optim::SGD>(
            theirs.parameters(), torch::optim::SGDOptions(rate).momentum(optimizer.momentum));
      for (std::uint64_t step = 0; step < 20; ++step) {
        SCOPED_TRACE("step " + std::to_string(step));
        // The target of a token is fixed, so that there is something to learn.
        auto tokens = at::randint(64, {4, 24}, at::detail::createCPUGenerator(step), at::kLong);
        auto targets = (tokens * 5 + 3) % 64;
        their_optimizer->zero_grad();
        auto their_loss = -torch::log_softmax(theirs.forward(tokens), -1).gather(-1, targets.unsqueeze(-1)).mean();
        their_loss.backward();
        auto our_loss = ours.step(tokens, targets, rate);
        EXPECT_NEAR(our_loss / their_loss.item<double>(), 1, 1e-5);
        for (std::size_t i = 0; i < ours.parameters.size(); ++i) {
          auto views = views_of(ours.description.layers[i], ours.gradients[i]);
          std::vector<at::Tensor> reference;
          for (std::size_t k = 0; k < views.size(); ++k)
            reference.push_back(named.at(ours.description.layers[i].tensors[k].name).grad().flatten());
          EXPECT_LT(relative_difference(ours.gradients[i], at::cat(reference)), 1e-5) << "layer " << i;
        }
        auto their_norm = nn::utils::clip_grad_norm_(theirs.parameters(), optimizer.clip_norm);
        EXPECT_NEAR(ours.gradient_norm() / their_norm, 1, 1e-5);
        their_optimizer->step();
      }
      for (std::size_t i = 0; i < ours.parameters.size(); ++i) {
        auto views = views_of(ours.description.layers[i], ours.parameters[i]);
        for (std::size_t k = 0; k < views.size(); ++k) {
          const auto& name = ours.description.layers[i].tensors[k].name;
          EXPECT_TRUE(at::allclose(views[k], named.at(name).detach(), 1e-3, 1e-5)) << name;
        }
      }
    }
}

TEST_F(model_reference_test, mlp_is_a_chain_of_torch_modules) {
  model_specification model{.kind = "mlp", .layers = 2, .width = 20, .sequence = 8, .vocabulary = 30};
  trainer ours{model, {}, 3};
  nn::Sequential theirs{nn::Embedding(30, 20), nn::Linear(20, 20), nn::ReLU(),
                        nn::Linear(20, 20),    nn::ReLU(),         nn::Linear(20, 30)};
  auto reference = theirs->parameters(); // in the order of the description
  std::size_t next = 0;
  torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < ours.parameters.size(); ++i)
    for (const auto& view : views_of(ours.description.layers[i], ours.parameters[i]))
      reference[next++].copy_(view);
  ASSERT_EQ(next, reference.size());
  torch::AutoGradMode with_grad{true};
  auto tokens = at::randint(30, {4, 8}, at::detail::createCPUGenerator(1), at::kLong);
  auto targets = at::randint(30, {4, 8}, at::detail::createCPUGenerator(2), at::kLong);
  auto their_loss = -torch::log_softmax(theirs->forward(tokens), -1).gather(-1, targets.unsqueeze(-1)).mean();
  their_loss.backward();
  EXPECT_NEAR(ours.loss(tokens, targets, true).item<double>() / their_loss.item<double>(), 1, 1e-6);
  next = 0;
  for (std::size_t i = 0; i < ours.parameters.size(); ++i)
    for (const auto& view : views_of(ours.description.layers[i], ours.gradients[i])) {
      EXPECT_LT(relative_difference(view, reference[next].grad()), 1e-5) << "tensor " << next;
      ++next;
    }
}

// The entropy of single bytes is what a model reaches that looks at no context at all.
TEST_F(model_reference_test, loss_on_text_falls_below_its_unigram_entropy) {
  for (const char* kind : {"gpt", "mlp"}) {
    SCOPED_TRACE(kind);
    model_specification model{.kind = kind, .layers = 2, .width = 64, .heads = 4, .sequence = 64, .dropout = 0.05};
    auto data = load_dataset({.path = "/usr/share/common-licenses/GPL-3"}, model);
    std::map<std::int64_t, double> counts;
    auto input = at::empty({8, 64}, at::kLong), target = at::empty_like(input);
    auto load = [&](std::int64_t row, std::uint64_t index) {
      data->read(index, {input[row].data_ptr<std::int64_t>(), 64}, {target[row].data_ptr<std::int64_t>(), 64});
    };
    for (std::uint64_t i = 0; i < data->size(); ++i) {
      load(0, i);
      for (std::int64_t k = 0; k < 64; ++k)
        counts[target[0][k].item<std::int64_t>()] += 1;
    }
    double entropy = 0, total = static_cast<double>(data->size()) * 64;
    for (auto [byte, count] : counts)
      entropy -= count / total * std::log(count / total);
    EXPECT_GT(entropy, 2.5);

    trainer x{model, {.clip_norm = 1}, 1};
    sample_order order{1, data->size()};
    double recent = 0;
    const std::uint64_t steps = 200, last = 20;
    for (std::uint64_t step = 0; step < steps; ++step) {
      for (std::int64_t row = 0; row < 8; ++row)
        load(row, order(step * 8 + static_cast<std::uint64_t>(row)));
      auto loss = x.step(input, target, 3e-3);
      if (step == 0) {
        EXPECT_GT(loss, 5.0); // about log(256) before any learning
      }
      if (step >= steps - last)
        recent += loss / last;
    }
    EXPECT_LT(recent, entropy - 0.3) << "unigram entropy " << entropy;
  }
}

} // namespace
} // namespace parcae
