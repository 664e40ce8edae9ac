#include "gpu/training/layer_state.hpp"

#include "gpu/layers/model.hpp"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

namespace parcae {

layer_state allocate_layer(const layer_description& layer, std::uint32_t moments) {
  const auto values = static_cast<std::int64_t>(layer.parameters());
  layer_state state;
  state.parameters = at::zeros({values}, at::kFloat);
  for (std::uint32_t i = 0; i < moments; ++i)
    state.moments.push_back(at::zeros({values}, at::kFloat));
  if (const auto n = layer.buffer_values(); n > 0)
    state.buffers = at::zeros({static_cast<std::int64_t>(n)}, at::kFloat);
  return state;
}

layer_state seed_layer(const model_description& model, std::uint32_t layer, const job_specification& job) {
  layer_state state;
  if (job.model.kind == "exported") {
    auto stored = stored_layer(job.model, layer);
    state.parameters = std::move(stored.parameters);
    state.buffers = std::move(stored.buffers);
  } else {
    state.parameters = initial_parameters(model, layer, job.seed);
    state.buffers = initial_buffers(model.layers[layer]);
  }
  for (std::uint32_t i = 0; i < moments_of(job.optimizer); ++i)
    state.moments.push_back(at::zeros_like(state.parameters));
  return state;
}

inventory inventory_of(const layer_store& store) {
  inventory held;
  held.reserve(store.size());
  for (const auto& [layer, state] : store)
    held.push_back({layer, state.at});
  return held;
}

} // namespace parcae
