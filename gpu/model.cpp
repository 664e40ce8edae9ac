#include "gpu/model.hpp"

#include "gpu/layers.hpp"
#include "gpu/seed.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <stdexcept>

namespace parcae {

std::vector<std::unique_ptr<layer>> make_layers(const model_specification& x) {
  if (x.kind == "gpt")
    return make_gpt_layers(x);
  if (x.kind == "mlp")
    return make_mlp_layers(x);
  throw std::invalid_argument("unknown kind of model \"" + x.kind + "\"");
}

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.view({-1, logits.size(-1)}), targets.reshape({-1}));
}

at::Tensor initial_parameters(const model_description& model, std::uint32_t layer, std::uint64_t seed) {
  c10::NoGradGuard no_grad;
  const auto& description = model.layers.at(layer);
  auto flat = at::zeros({static_cast<std::int64_t>(description.parameters())}, at::kFloat);
  auto views = views_of(description, flat);
  for (std::size_t i = 0; i < views.size(); ++i) {
    const auto& tensor = description.tensors[i];
    bool second_use = model.tied && model.tied->second_layer == layer && model.tied->second_tensor == i;
    const auto& name =
        second_use ? model.layers[model.tied->first_layer].tensors[model.tied->first_tensor].name : tensor.name;
    auto generator = [&] { return at::detail::createCPUGenerator(mix_seed(seed, name, {})); };
    switch (tensor.initial) {
    case initial_value::zeros:
      break;
    case initial_value::ones:
      views[i].fill_(1);
      break;
    case initial_value::normal:
      views[i].normal_(0, tensor.scale, generator());
      break;
    case initial_value::uniform:
      views[i].uniform_(-tensor.scale, tensor.scale, generator());
      break;
    }
  }
  return flat;
}

std::vector<at::Tensor> views_of(const layer_description& layer, const at::Tensor& flat) {
  std::vector<at::Tensor> result;
  result.reserve(layer.tensors.size());
  std::int64_t offset = 0;
  for (const auto& tensor : layer.tensors) {
    auto n = static_cast<std::int64_t>(tensor.values());
    result.push_back(flat.narrow(0, offset, n).view(tensor.shape));
    offset += n;
  }
  return result;
}

} // namespace parcae
