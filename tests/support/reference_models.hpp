#pragma once

// BERT, ResNet and VGG written independently of gpu/, with torch::nn, and a plain training loop: the oracle for the
// layers of the same kinds and for training.

#include "protocols/values/job_specification.hpp"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace parcae {

/// Parameters and running statistics by the names of the description.
struct reference_model : torch::nn::Module {
  virtual torch::Tensor run(const torch::Tensor& inputs) = 0;
  std::map<std::string, torch::Tensor> named;
};

/// kind "bert", "resnet" or "vgg", without dropout.
std::shared_ptr<reference_model> make_reference(const model_specification& x);

/// The same with version 0 of a job's parameters. Float64 not for bert, some of whose `named` stay what they were.
std::shared_ptr<reference_model> make_reference(const model_specification& x, std::uint64_t seed,
                                                torch::Dtype type = torch::kFloat);

/// Mean cross-entropy over the targets that are not negative.
torch::Tensor reference_loss(reference_model& model, const torch::Tensor& inputs, const torch::Tensor& targets);

struct plain_training {
  std::vector<double> losses;                      ///< by step
  std::vector<double> validation_losses;           ///< before every evaluate_every-th step and at the end
  std::map<std::string, torch::Tensor> parameters; ///< at the end
  std::map<std::string, torch::Tensor> statistics; ///< running statistics at the end
};

/// The job on one device, in one process, with LibTorch's modules, gradient accumulation, optimizer (AdamW) and
/// clipping.
plain_training train_plainly(const job_specification& job, torch::Dtype type = torch::kFloat);

} // namespace parcae
