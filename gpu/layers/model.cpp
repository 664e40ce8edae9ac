#include "gpu/layers/model.hpp"

#include "gpu/layers/layers.hpp"
#include "protocols/model/seed.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <stdexcept>

namespace parcae {

std::vector<std::unique_ptr<layer>> make_layers(const model_specification& x, const tensor_device& on) {
  if (x.kind == "gpt")
    return make_gpt_layers(x, on);
  if (x.kind == "mlp")
    return make_mlp_layers(x);
  if (x.kind == "bert")
    return make_bert_layers(x);
  if (x.kind == "resnet")
    return make_resnet_layers(x);
  if (x.kind == "vgg")
    return make_vgg_layers(x);
  if (x.kind == "exported")
    return make_exported_layers(x, on);
  if (x.kind == "plugin")
    return make_plugin_layers(x);
  throw std::invalid_argument("unknown kind of model \"" + x.kind + "\"");
}

sample_tensors empty_samples(const model_description& model, std::int64_t samples) {
  auto shape = model.input;
  if (!model.extras.empty())
    shape = {static_cast<std::int64_t>(model.input_values())};
  shape.insert(shape.begin(), samples);
  return {at::empty(shape, at::kLong), at::empty({samples, static_cast<std::int64_t>(model.targets)}, at::kLong)};
}

namespace {

/// Values [first, first + those of the shape) of each sample.
at::Tensor part_of(const at::Tensor& inputs, std::int64_t first, std::vector<std::int64_t> shape) {
  shape.insert(shape.begin(), inputs.size(0));
  const auto values = c10::multiply_integers(shape) / inputs.size(0);
  return inputs.narrow(1, first, values).reshape(shape);
}

} // namespace

at::Tensor first_input(const model_description& model, const at::Tensor& inputs) {
  return model.extras.empty() ? inputs : part_of(inputs, 0, model.input);
}

std::vector<at::Tensor> extra_inputs(const model_description& model, const at::Tensor& inputs) {
  std::vector<at::Tensor> result;
  auto first = c10::multiply_integers(model.input);
  for (const auto& x : model.extras) {
    result.push_back(part_of(inputs, first, x.shape));
    first += static_cast<std::int64_t>(x.values());
  }
  return result;
}

at::Tensor converted(const at::Tensor& x, at::ScalarType type) {
  return x.scalar_type() == type ? x : x.to(type);
}

at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto type = weight.scalar_type();
  return at::linear(converted(x, type), weight, bias.defined() ? converted(bias, type) : bias);
}

pixel_scale pixel_scale_of(const job_specification& x, const tensor_device& on) {
  const auto& data = x.data;
  if (data.mean.empty() && data.deviation.empty())
    return {};
  std::vector<float> scale, shift;
  for (std::size_t c = 0; c < x.model.channels; ++c) {
    const auto mean = data.mean.empty() ? 0.5 : data.mean.at(c);
    const auto deviation = data.deviation.empty() ? 0.5 : data.deviation.at(c);
    scale.push_back(static_cast<float>(1 / (255 * deviation)));
    shift.push_back(static_cast<float>(-mean / deviation));
  }
  return {at::tensor(scale).view({-1, 1, 1}).to(on.place()), at::tensor(shift).view({-1, 1, 1}).to(on.place())};
}

std::span<std::int64_t> sample_values(const at::Tensor& of_all, std::int64_t sample) {
  const auto values = of_all.numel() / of_all.size(0);
  return {of_all.data_ptr<std::int64_t>() + sample * values, static_cast<std::size_t>(values)};
}

at::Tensor loss_of(const model_description& model, const at::Tensor& output, const at::Tensor& targets) {
  switch (model.loss) {
  case loss_kind::mean_squared_error:
    return at::mse_loss(output.reshape(targets.sizes()), targets.to(output.scalar_type()));
  case loss_kind::in_last_layer:
    return output;
  case loss_kind::cross_entropy:
    break;
  }
  return loss_of(output, targets);
}

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.view({-1, logits.size(-1)}), targets.reshape({-1}), {}, at::Reduction::Mean,
                                no_target);
}

at::Tensor initial_parameters(const model_description& model, std::uint32_t layer, std::uint64_t seed,
                              const tensor_device& on) {
  c10::NoGradGuard no_grad;
  const auto& description = model.layers.at(layer);
  auto flat = at::zeros({static_cast<std::int64_t>(description.parameters())}, on.floats());
  auto views = views_of(description, flat);
  for (std::size_t i = 0; i < views.size(); ++i) {
    const auto& tensor = description.tensors[i];
    bool second_use = model.tied && model.tied->second_layer == layer && model.tied->second_tensor == i;
    const auto& name =
        second_use ? model.layers[model.tied->first_layer].tensors[model.tied->first_tensor].name : tensor.name;
    const auto values = on.values_of(views[i]);
    const auto count = static_cast<std::size_t>(tensor.values());
    const auto stream = mix_seed(seed, name, {});
    const auto scale = static_cast<float>(tensor.scale);
    switch (tensor.initial) {
    case initial_value::zeros:
      break;
    case initial_value::stored:
      throw std::logic_error(tensor.name + " is stored, not drawn");
    case initial_value::ones:
      views[i].fill_(1);
      break;
    case initial_value::normal:
      on.compute().draw_normal(values, count, stream, scale, 0);
      break;
    case initial_value::uniform:
      on.compute().draw_uniform(values, count, stream, scale, 0);
      break;
    }
  }
  return flat;
}

at::Tensor initial_buffers(const layer_description& layer, const tensor_device& on) {
  if (layer.buffers.empty())
    return {};
  std::vector<at::Tensor> parts;
  for (const auto& x : layer.buffers)
    parts.push_back(
        at::full({static_cast<std::int64_t>(x.values())}, x.initial == initial_value::ones ? 1.0 : 0.0, on.floats()));
  return at::cat(parts);
}

at::Tensor variances_in(const layer_description& layer, const tensor_device& on) {
  if (layer.buffers.empty())
    return {};
  std::vector<at::Tensor> parts;
  for (const auto& x : layer.buffers)
    parts.push_back(at::full({static_cast<std::int64_t>(x.values())}, x.is_variance, on.floats().dtype(at::kBool)));
  return at::cat(parts);
}

// Sums of two float32 in float64, then rounded, are those of float32; products of two are exact in float64.
void update_buffers(at::Tensor& buffers, const at::Tensor& statistics, const at::Tensor& is_variance) {
  const auto type = buffers.scalar_type();
  const double share = type == at::kFloat ? 0.1F : 0.1;
  const double rest = type == at::kFloat ? 1 - 0.1F : 1 - 0.1;
  const auto exact = statistics.to(at::kDouble) * share;
  const auto added = at::where(is_variance, exact, exact.to(type).to(at::kDouble));
  for (std::int64_t m = 0; m < added.size(0); ++m)
    buffers.copy_(buffers.mul_(rest).to(at::kDouble).add_(added.select(0, m)));
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
