// Models of users, tried before anyone trains them: on zeros, so that sizes that lie are found, and what a plug-in must
// not do.

#include "gpu/layers/layers.hpp"
#include "gpu/layers/tensor_device.hpp"
#include "protocols/model/exported_model.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <set>
#include <string>
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
  const c10::NoGradGuard no_gradient;
  const auto flat = at::zeros({static_cast<std::int64_t>(of.parameters())}, pass.on.floats());
  const std::array places{at::Device(at::kCPU), pass.on.place()};
  const std::array before{generator_state(places[0]), generator_state(places[1])};
  const auto parameters = views_of(of, flat);
  const auto written = std::pair(flat._version(), input._version());
  x.forward(parameters, input, pass);
  if (std::pair(flat._version(), input._version()) != written)
    throw exported_model_error("writes to its parameters or its input");
  for (std::size_t i = 0; i < places.size(); ++i)
    if (!at::equal(generator_state(places[i]), before[i]))
      throw exported_model_error(
          "draws from PyTorch's own generator; a plug-in's random numbers come from pass::dropout");
}

/// As a step does it, so that an operator without a deterministic gradient is found.
void try_backward(const layer& x, const layer_description& of, const at::Tensor& input, const forward_pass& pass) {
  auto parameters = views_of(of, at::zeros({static_cast<std::int64_t>(of.parameters())}, pass.on.floats()));
  for (auto& one : parameters)
    one = one.detach().requires_grad_();
  const auto from = input.is_floating_point() ? input.detach().requires_grad_() : input;
  const auto output = x.forward(parameters, from, pass);
  if (output.requires_grad())
    torch::autograd::backward({output}, {at::ones_like(output)});
}

/// The rest of a pass of one layer, of zeros.
forward_pass pass_on_zeros(const model_description& model, std::size_t i, const tensor_device& on) {
  forward_pass pass;
  pass.on = on;
  for (const auto& extra : model.extras)
    pass.extras.push_back(at::zeros(with_samples(extra.shape), on.wholes()));
  if (const auto n = model.layers[i].buffer_values(); n > 0)
    pass.buffers = at::zeros({static_cast<std::int64_t>(n)}, on.floats());
  if (i + 1 == model.layers.size() && model.loss == loss_kind::in_last_layer)
    pass.targets = at::zeros({samples, static_cast<std::int64_t>(model.targets)}, on.wholes());
  return pass;
}

/// What went wrong, on one line; want of memory is no fault of the trial's.
template <class Trial>
std::string failure_of(const Trial& trial) {
  try {
    trial();
    return {};
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& e) {
    const std::string text = e.what_without_backtrace();
    return text.substr(0, text.find('\n'));
  } catch (const exported_model_error& e) {
    return e.what();
  }
}

} // namespace

void try_own_model(const model_specification& x, const tensor_device& on) {
  const auto model = exported_model_of(x);
  const auto& description = model->description;
  const auto layers = make_layers(x, on);
  std::set<std::pair<std::uint32_t, std::vector<std::int64_t>>> tried; // graph, and what goes in
  for (std::uint32_t i = 0; i < layers.size(); ++i) {
    const auto& shape = i == 0 ? description.input : description.layers[i - 1].output;
    if (!tried.emplace(model->layers[i].graphs, shape).second)
      continue;
    const auto input = at::zeros(with_samples(shape), i == 0 ? on.wholes() : on.floats());
    const auto& layer = description.layers[i];
    auto pass = pass_on_zeros(description, i, on);
    for (const bool training : {true, false}) {
      pass.training = training;
      const auto problem = failure_of([&] {
        try_layer(*layers[i], layer, input, pass);
        if (training)
          try_backward(*layers[i], layer, input, pass);
      });
      if (!problem.empty())
        throw exported_model_error(x.path + (x.kind == "exported" ? "/model.json" : "") + ", layer " +
                                   std::to_string(i) + " (" + layer.name + ")" +
                                   (training ? " in training: " : " in evaluation: ") + problem);
    }
  }
}

} // namespace parcae
