#include "protocols/model/model_description.hpp"

#include "protocols/model/descriptions.hpp"
#include "protocols/model/exported_model.hpp"
#include "protocols/model/parameter_runs.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

namespace parcae {

namespace {

std::uint64_t product(const std::vector<std::int64_t>& shape) {
  std::uint64_t n = 1;
  for (auto extent : shape)
    n *= static_cast<std::uint64_t>(extent);
  return n;
}

std::uint64_t values_of(const std::vector<tensor_description>& tensors) {
  std::uint64_t n = 0;
  for (const auto& tensor : tensors)
    n += tensor.values();
  return n;
}

} // namespace

void add_linear(layer_description& layer, const std::string& name, std::int64_t in, std::int64_t out,
                initial_value initial, double scale, initial_value bias) {
  layer.tensors.push_back({name + ".weight", {out, in}, initial, scale, true});
  layer.tensors.push_back({name + ".bias", {out}, bias, bias == initial_value::uniform ? scale : 0});
}

void add_norm(layer_description& layer, const std::string& name, std::int64_t width) {
  layer.tensors.push_back({name + ".weight", {width}, initial_value::ones, 0});
  layer.tensors.push_back({name + ".bias", {width}, initial_value::zeros, 0});
}

std::uint64_t tensor_description::values() const {
  return product(shape);
}

std::uint64_t layer_description::parameters() const {
  return values_of(tensors);
}

std::uint64_t layer_description::buffer_values() const {
  return values_of(buffers);
}

std::uint64_t layer_description::output_values() const {
  return product(output);
}

bool layer_description::has_matrices() const {
  return std::ranges::any_of(tensors, &tensor_description::is_matrix);
}

std::uint64_t extra_input::values() const {
  return product(shape);
}

std::uint64_t model_description::input_values() const {
  auto n = product(input);
  for (const auto& x : extras)
    n += x.values();
  return n;
}

std::uint64_t model_description::parameters() const {
  std::uint64_t n = 0;
  for (const auto& layer : layers)
    n += layer.parameters();
  return tied ? n - layers[tied->second_layer].tensors[tied->second_tensor].values() : n;
}

model_description describe(const model_specification& x) {
  if (x.kind == "gpt")
    return describe_gpt(x);
  if (x.kind == "mlp")
    return describe_mlp(x);
  if (x.kind == "bert")
    return describe_bert(x);
  if (x.kind == "resnet")
    return describe_resnet(x);
  if (x.kind == "vgg")
    return describe_vgg(x);
  if (x.is_own())
    return exported_model_of(x)->description;
  throw std::invalid_argument("unknown kind of model \"" + x.kind + "\"");
}

std::string model_problem_of(const job_specification& x) {
  if (x.model.is_own())
    try {
      const auto model = exported_model_of(x.model);
      if (model->sizes != sizes_in(x.model))
        return "model.path cannot be trained: the job has other sizes than " + x.model.path + " says";
      if (x.serves() && !model->can_be_served())
        return "model.path cannot be served: " + x.model.path + " has no graphs for that; export it with serve=True";
      if (const auto& d = model->description; x.data.kind != "columns" && !x.serves()) {
        if (!d.extras.empty())
          return "data.kind must be \"columns\": besides tokens or pixels the model takes " + d.extras.front().name;
        if (!x.model.of_images() && d.targets != x.model.sequence)
          return "data.kind must be \"columns\": the model wants a label for each sample, not the next tokens";
      }
      for (const auto& layer : model->description.layers)
        if (!layer.buffers.empty() && x.micro_batch == 1)
          return "batch.micro must be at least 2: BatchNorm has no variance over one sample";
    } catch (const exported_model_error& e) {
      return std::string("model.path cannot be trained: ") + e.what();
    }
  const auto model = describe(x.model);
  const auto layers = model.layers.size();
  if (x.model.weights.empty() ? !x.model.weights_digests.empty() : x.model.weights_digests.size() != layers)
    return "model.weights is \"" + x.model.weights +
           "\", and the job does not say what was there when it was submitted";
  if (auto problem = rate_factors_problem(model, x.optimizer); !problem.empty())
    return problem;
  return x.min_depth <= layers ? ""
                               : "parallel.min_depth is " + std::to_string(x.min_depth) + ", but the model has " +
                                     std::to_string(layers) + " layers to make stages of";
}

std::vector<std::uint64_t> cached_values(const model_specification& x) {
  if (x.is_own()) {
    std::vector<std::uint64_t> result;
    for (const auto& layer : exported_model_of(x)->layers)
      result.push_back(layer.cached_values);
    return result;
  }
  std::vector<std::uint64_t> result(std::size_t{x.layers} + 2, 2 * std::uint64_t{x.width}); // keys and values
  result.front() = result.back() = 0;                                                       // embedding and head
  return result;
}

std::uint32_t moments_of(const optimizer_specification& x) {
  return x.kind == "adamw" ? 2 : x.kind == "none" ? 0 : 1;
}

double learning_rate(const optimizer_specification& x, std::uint64_t step, std::uint64_t steps) {
  step -= std::min(step, x.schedule_from);
  steps -= std::min(steps, x.schedule_from);
  if (step < x.warmup_steps)
    return x.learning_rate * static_cast<double>(step + 1) / static_cast<double>(x.warmup_steps);
  if (x.schedule == "constant")
    return x.learning_rate;
  if (step >= steps)
    return 0;
  // Below 1 in every step of the job, so that the last one still learns.
  double progress = static_cast<double>(step - x.warmup_steps) / static_cast<double>(steps - x.warmup_steps);
  if (x.schedule == "linear")
    return x.learning_rate * (1 - progress);
  return x.learning_rate * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

} // namespace parcae
