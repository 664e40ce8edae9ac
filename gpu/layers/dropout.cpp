#include "gpu/layers/layers.hpp"
#include "gpu/layers/tensor_device.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <memory>

namespace parcae {

namespace {

/// x times the mask, in the order of its elements; no part of a graph.
at::Tensor dropped(const at::Tensor& x, const dropout_mask& mask, const tensor_device& on) {
  const c10::NoGradGuard no_gradient;
  if (x.scalar_type() != at::kFloat) // a user's model may compute in other types
    return dropped(at::ones(x.sizes(), x.options().dtype(at::kFloat)), mask, on).to(x.scalar_type()).mul_(x);
  const auto from = x.contiguous();
  auto result = at::empty(x.sizes(), x.options());
  on.compute().drop_values(on.values_of(result), on.values_of(from), static_cast<std::size_t>(from.numel()), mask, 0);
  return result;
}

/// Makes the mask again instead of keeping it.
struct dropout_backward final : torch::autograd::Node {
  dropout_backward(const dropout_mask& x, const tensor_device& y) : mask(x), on(y) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return {gradients[0].defined() ? dropped(gradients[0], mask, on) : at::Tensor()};
  }

  dropout_mask mask;
  tensor_device on;
};

} // namespace

std::uint64_t dropout::next_seed() {
  return mix_seed(position_.seed, "dropout", {position_.step, position_.micro_batch, layer_, uses_++});
}

at::Tensor dropout::operator()(const at::Tensor& x) {
  if (!active())
    return x;
  const auto mask = mask_of(next_seed(), probability_);
  auto result = dropped(x, mask, on_);
  if (c10::GradMode::is_enabled() && x.requires_grad()) {
    const std::shared_ptr<dropout_backward> node(new dropout_backward(mask, on_), torch::autograd::deleteNode);
    node->set_next_edges(torch::autograd::collect_next_edges(x));
    torch::autograd::set_history(result, node);
  }
  return result;
}

} // namespace parcae
