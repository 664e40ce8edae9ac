#include "gpu/training/stage_parameters.hpp"

#include "gpu/layers/optimizer.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

namespace parcae {

stage_parameters::stage_parameters(const stage_context& c) :
    c_(c), layers_(make_layers(c.job().model, c.on)), pixels_(pixel_scale_of(c.job(), c.on)) {
  for (auto i = c.first_layer(); i < c.last_layer(); ++i)
    bound_.push_back({parameter_runs(*c.model, i, c.job().optimizer), {}, {}});
}

void stage_parameters::bind() {
  for (auto i = c_.first_layer(); i < c_.last_layer(); ++i)
    bind(i);
}

// Copies do not move: wherever a layer comes from, they are made again, by what the optimizer rounds with.
void stage_parameters::bind(std::uint32_t number) {
  const auto& layer = c_.model->layers[number];
  const auto& flat = c_.layer(number).parameters;
  auto leaves = views_of(layer, flat);
  at::Tensor copy;
  if (c_.job().in_bfloat16() && layer.has_matrices()) {
    copy = at::empty_like(flat, at::kBFloat16);
    c_.on.compute().round_values(c_.on.halves_of(copy), c_.on.values_of(flat), static_cast<std::size_t>(flat.numel()));
    const auto rounded = views_of(layer, copy);
    for (std::size_t t = 0; t < leaves.size(); ++t)
      if (layer.tensors[t].is_matrix)
        leaves[t] = rounded[t];
  }
  for (auto& leaf : leaves)
    leaf = leaf.detach().requires_grad_();
  bound(number).leaves = std::move(leaves);
  bound(number).copy = std::move(copy);
}

at::Tensor stage_parameters::forward(std::uint32_t layer, const at::Tensor& input, forward_pass pass) const {
  pass.pixels = &pixels_;
  pass.on = c_.on;
  return layers_[layer]->forward(bound_[layer - c_.first_layer()].leaves, input, pass).contiguous();
}

std::vector<at::Tensor> stage_parameters::take_gradients(std::uint32_t layer) {
  std::vector<at::Tensor> pieces;
  for (auto& parameter : bound(layer).leaves)
    if (auto piece = std::exchange(parameter.mutable_grad(), at::Tensor()); piece.defined())
      pieces.push_back(std::move(piece));
    else // nothing of the output depends on it, in this micro-batch
      pieces.push_back(at::zeros(parameter.sizes(), c_.on.floats()));
  return pieces;
}

void stage_parameters::apply(std::uint32_t layer, const at::Tensor& gradient, std::uint64_t steps,
                             const commit_result& result) {
  auto& state = c_.layer(layer);
  apply_optimizer(c_.job().optimizer, state.parameters, state.moments, gradient, steps, result.learning_rate,
                  result.clip_factor, bound(layer).runs, c_.on, bound(layer).copy);
}

std::optional<std::uint32_t> stage_parameters::layer_not_finite() const {
  std::vector<std::pair<std::uint32_t, at::Tensor>> looked_at;
  for (auto i = c_.first_layer(); i < c_.last_layer(); ++i)
    for (const auto& x : {c_.layer(i).parameters, c_.layer(i).buffers})
      if (x.defined())
        looked_at.emplace_back(i, x);
  // In double no square of a float is infinite, nor are sums of them.
  const auto norms = at::empty({static_cast<std::int64_t>(looked_at.size())}, c_.on.floats().dtype(at::kDouble));
  auto* next = norms.data_ptr<double>();
  for (const auto& [layer, x] : looked_at)
    c_.on.compute().squared_norm(c_.on.values_of(x), static_cast<std::size_t>(x.numel()), next++);
  const auto here = c_.results->bring(norms, [] {}); // also after an abort, for DECIDE
  for (std::size_t i = 0; i < looked_at.size(); ++i)
    if (!std::isfinite(here.const_data_ptr<double>()[i]))
      return looked_at[i].first;
  return std::nullopt;
}

} // namespace parcae
