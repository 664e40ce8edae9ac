// Models of users, tried before anyone trains them: on zeros, so that sizes that lie are found, and what a plug-in must
// not do.

#include "gpu/layers/layers.hpp"
#include "protocols/model/exported_model.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>

#include <set>
#include <utility>

namespace parcae {

namespace {

constexpr std::int64_t samples = 2;

std::vector<std::int64_t> with_samples(std::vector<std::int64_t> shape) {
  shape.insert(shape.begin(), samples);
  return shape;
}

/// Runs one layer. Throws exported_model_error.
void try_layer(const layer& x, const layer_description& of, const at::Tensor& input, const forward_pass& pass) {
  const auto flat = at::zeros({static_cast<std::int64_t>(of.parameters())});
  const auto generator = at::detail::getDefaultCPUGenerator();
  const auto before = generator.get_state();
  const auto parameters = views_of(of, flat);
  const auto written = std::pair(flat._version(), input._version());
  x.forward(parameters, input, pass);
  if (std::pair(flat._version(), input._version()) != written)
    throw exported_model_error("writes to its parameters or its input");
  if (!at::equal(generator.get_state(), before))
    throw exported_model_error(
        "draws from PyTorch's own generator; a plug-in's random numbers come from pass::dropout");
}

} // namespace

void try_own_model(const model_specification& x) {
  const c10::NoGradGuard no_gradient;
  const auto model = exported_model_of(x);
  const auto& description = model->description;
  const auto layers = make_layers(x);
  std::set<std::pair<std::uint32_t, std::vector<std::int64_t>>> tried; // graph, and what goes in
  for (std::uint32_t i = 0; i < layers.size(); ++i) {
    const auto& shape = i == 0 ? description.input : description.layers[i - 1].output;
    if (!tried.emplace(model->layers[i].graphs, shape).second)
      continue;
    const auto input = at::zeros(with_samples(shape), i == 0 ? at::kLong : at::kFloat);
    const auto& layer = description.layers[i];
    forward_pass pass;
    for (const auto& extra : description.extras)
      pass.extras.push_back(at::zeros(with_samples(extra.shape), at::kLong));
    if (layer.buffer_values() > 0)
      pass.buffers = at::zeros({static_cast<std::int64_t>(layer.buffer_values())});
    if (i + 1 == layers.size() && description.loss == loss_kind::in_last_layer)
      pass.targets = at::zeros({samples, static_cast<std::int64_t>(description.targets)}, at::kLong);
    for (const bool training : {true, false}) {
      pass.training = training;
      try {
        try_layer(*layers[i], layer, input, pass);
      } catch (const exported_model_error& e) {
        throw exported_model_error(x.path + (x.kind == "exported" ? "/model.json" : "") + ", layer " +
                                   std::to_string(i) + " (" + layer.name + ")" +
                                   (training ? " in training: " : " in evaluation: ") + e.what());
      }
    }
  }
}

} // namespace parcae
