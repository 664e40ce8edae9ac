// Version 0 that is read, not drawn.

#include "gpu/checkpoint/weights.hpp"
#include "gpu/layers/layers.hpp"
#include "protocols/base/input_file.hpp"
#include "protocols/model/exported_model.hpp"
#include "protocols/store/fetch.hpp"

#include <ATen/ops/empty.h>

namespace parcae {

namespace {

std::span<float> values_or_none(const at::Tensor& x) {
  return x.defined() ? std::span(x.data_ptr<float>(), static_cast<std::size_t>(x.numel())) : std::span<float>();
}

stored_state read_layer(initial_weights& weights, std::uint32_t layer) {
  const auto& what = weights.model().layers.at(layer);
  stored_state result{at::empty({static_cast<std::int64_t>(what.parameters())}, at::kFloat), {}};
  if (const auto n = what.buffer_values(); n > 0)
    result.buffers = at::empty({static_cast<std::int64_t>(n)}, at::kFloat);
  weights.read(layer, values_or_none(result.parameters), values_or_none(result.buffers));
  return result;
}

} // namespace

bool is_stored(const model_specification& x) {
  return x.kind == "exported" || !x.weights.empty();
}

stored_state stored_state_of(const model_specification& x, std::uint32_t layer) {
  if (x.weights.empty())
    return exported_layer_state(x, layer);
  initial_weights weights(x);
  return read_layer(weights, layer);
}

void fetch_stored_layers(const model_specification& x, const std::vector<std::filesystem::path>& folders,
                         const std::stop_token& stop) {
  if (is_url(x.weights))
    fetch_weights(x.weights, folders, stop);
}

void try_stored_layers(const model_specification& x, const std::vector<std::filesystem::path>& folders) {
  if (x.weights.empty()) {
    require_within(weights_of(x), folders);
    for (std::uint32_t layer = 0; layer < describe(x).layers.size(); ++layer)
      exported_layer_state(x, layer);
    return;
  }
  initial_weights weights(x, folders);
  for (std::uint32_t layer = 0; layer < weights.model().layers.size(); ++layer)
    read_layer(weights, layer);
}

} // namespace parcae
