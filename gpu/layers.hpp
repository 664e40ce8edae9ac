#pragma once

// What the sources of the layers share; for them only.

#include "gpu/model.hpp"
#include "gpu/seed.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

namespace parcae {

std::vector<std::unique_ptr<layer>> make_gpt_layers(const model_specification& x);
std::vector<std::unique_ptr<layer>> make_mlp_layers(const model_specification& x);

/// The dropouts of one forward call of one layer. Every use draws its mask from a generator of its own, seeded by where
/// in the job the call is, the layer, and how many uses came before; probability 0 draws nothing. One call, one thread.
class dropout {
public:
  dropout(double probability, const random_position& position, std::uint32_t layer) :
      probability_(probability), position_(position), layer_(layer) {}

  at::Tensor operator()(const at::Tensor& x) {
    if (probability_ == 0)
      return x;
    auto seed = mix_seed(position_.seed, "dropout", {position_.step, position_.micro_batch, layer_, uses_++});
    auto mask = at::empty(x.sizes(), x.options().requires_grad(false));
    mask.uniform_(0, 1, at::detail::createCPUGenerator(seed)).ge_(probability_).mul_(1 / (1 - probability_));
    return x * mask;
  }

private:
  double probability_;
  random_position position_;
  std::uint32_t layer_;
  std::uint32_t uses_ = 0;
};

} // namespace parcae
