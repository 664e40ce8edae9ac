// Layers of exported models (protocols/model/exported_model.hpp): their graphs, bound once per process, with this
// layer's tensors.

#include "gpu/checkpoint/exported_weights.hpp"
#include "gpu/layers/bound_graph.hpp"
#include "gpu/layers/layers.hpp"
#include "protocols/base/locks.hpp"
#include "protocols/model/exported_model.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

namespace parcae {

namespace {

std::span<std::byte> bytes_of(const at::Tensor& x) {
  return {static_cast<std::byte*>(x.data_ptr()), x.nbytes()};
}

at::ScalarType type_of(const stored_tensor& x) {
  return x.type == "float32"   ? at::kFloat
         : x.type == "float64" ? at::kDouble
         : x.type == "int64"   ? at::kLong
         : x.type == "int32"   ? at::kInt
         : x.type == "uint8"   ? at::kByte
                               : at::kBool;
}

/// An exported model as LibTorch runs it on one device.
struct bound_model {
  struct graphs {
    bound_graph training;
    bound_graph evaluation;
    std::optional<bound_graph> rows;
  };

  std::shared_ptr<const exported_model> model;
  std::list<graphs> all;         ///< by number
  std::vector<const graphs*> of; ///< the layers
  std::vector<at::Tensor> constants;
};

std::shared_ptr<const bound_model> bind(const model_specification& x, std::shared_ptr<const exported_model> model,
                                        at::Device place) {
  auto result = std::make_shared<bound_model>();
  std::vector<const bound_model::graphs*> made(model->graphs.size());
  for (std::size_t i = 0; i < model->layers.size(); ++i) {
    const auto& layer = model->layers[i];
    const auto& description = model->description.layers[i];
    auto& graphs = made[layer.graphs];
    if (!graphs) {
      const auto bound = [&](const exported_graph& graph) {
        return bound_graph(graph, model->description.extras.size(), description.tensors.size(),
                           description.buffers.size(), layer.constants.size(), place);
      };
      const auto& from = model->graphs[layer.graphs];
      graphs = &result->all.emplace_back(bound_model::graphs{bound(from.training), bound(from.evaluation), {}});
      if (from.rows)
        result->all.back().rows.emplace(bound(*from.rows));
    }
    result->of.push_back(graphs);
  }
  if (!model->constants.empty()) {
    exported_weights file(x);
    for (const auto& constant : model->constants) {
      file.require(constant); // before memory is taken
      const auto read = at::empty(constant.shape, type_of(constant));
      file.read(constant, bytes_of(read));
      result->constants.push_back(read.to(place));
    }
  }
  result->model = std::move(model);
  return result;
}

/// The last few stay bound: generations of a job follow each other, on each device.
std::shared_ptr<const bound_model> bound_model_of(const model_specification& x, at::Device place) {
  constexpr std::size_t kept = 2;
  static parcae::mutex mutex;
  static std::map<std::string, std::list<std::shared_ptr<const bound_model>>> by_place GUARDED_BY(mutex);
  auto model = exported_model_of(x);
  const lock held(mutex);
  auto& recent = by_place[place.str()];
  const auto found = std::ranges::find(recent, model, &bound_model::model);
  if (found != recent.end()) {
    recent.splice(recent.begin(), recent, found);
    return recent.front();
  }
  recent.push_front(bind(x, std::move(model), place));
  if (recent.size() > kept)
    recent.pop_back();
  return recent.front();
}

class exported_model_layer final : public layer {
public:
  exported_model_layer(std::shared_ptr<const bound_model> model, std::uint32_t number) :
      model_(std::move(model)), number_(number), what_(model_->model->layers[number]),
      description_(model_->model->description.layers[number]), row_(description_) {
    for (auto c : what_.constants)
      constants_.push_back(model_->constants[c]);
    if (!row_.output.empty())
      row_.output.front() = 1;
  }

  at::Tensor forward(const std::vector<at::Tensor>& parameters, const at::Tensor& input,
                     const forward_pass& pass) const override {
    const auto& graphs = *model_->of[number_];
    const graph_values given{parameters, constants_, what_.buffer_offsets, description_.buffers, input, number_};
    if (pass.rows) {
      if (!graphs.rows)
        throw exported_model_error("model.json has no graphs of rows; export the model with serve=True");
      auto output = graphs.rows->run(given, pass);
      require_output(output, row_, input.size(0), false, "model.json");
      return output;
    }
    auto output = (pass.training ? graphs.training : graphs.evaluation).run(given, pass);
    require_output(output, description_, input.size(0),
                   number_ + 1 == model_->of.size() && model_->model->description.loss == loss_kind::in_last_layer,
                   "model.json");
    return output;
  }

private:
  std::shared_ptr<const bound_model> model_;
  std::uint32_t number_;
  const exported_layer& what_;
  const layer_description& description_;
  layer_description row_; ///< the same of one position
  std::vector<at::Tensor> constants_;
};

/// Reads tensors one after the other into one flat buffer.
at::Tensor read_flat(exported_weights& file, const exported_model& model, std::uint32_t layer,
                     const std::vector<tensor_description>& tensors) {
  std::int64_t values = 0;
  for (const auto& x : tensors)
    values += static_cast<std::int64_t>(x.values());
  auto flat = at::empty({values}, at::kFloat);
  auto rest = bytes_of(flat);
  const auto& tied = model.description.tied;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool second = &tensors == &model.description.layers[layer].tensors && tied && tied->second_layer == layer &&
                        tied->second_tensor == i;
    const auto& name =
        second ? model.description.layers[tied->first_layer].tensors[tied->first_tensor].name : tensors[i].name;
    const auto stored = std::ranges::find(model.initial, name, &stored_tensor::name);
    file.read(*stored, rest.first(tensors[i].values() * sizeof(float)));
    rest = rest.subspan(tensors[i].values() * sizeof(float));
  }
  return flat;
}

} // namespace

std::vector<std::unique_ptr<layer>> make_exported_layers(const model_specification& x, const tensor_device& on) {
  const auto model = bound_model_of(x, on.place());
  std::vector<std::unique_ptr<layer>> result;
  for (std::uint32_t i = 0; i < model->of.size(); ++i)
    result.push_back(std::make_unique<exported_model_layer>(model, i));
  return result;
}

stored_state exported_layer_state(const model_specification& x, std::uint32_t layer) {
  const auto model = exported_model_of(x);
  const auto& description = model->description.layers.at(layer);
  check_stored_weights(x); // before memory is taken
  exported_weights file(x);
  stored_state result{read_flat(file, *model, layer, description.tensors), {}};
  if (!description.buffers.empty())
    result.buffers = read_flat(file, *model, layer, description.buffers);
  return result;
}

void require_output(const at::Tensor& output, const layer_description& layer, std::int64_t samples, bool is_loss,
                    std::string_view who) {
  auto wanted = layer.output;
  if (!is_loss)
    wanted.insert(wanted.begin(), samples);
  if (!output.defined() || output.sizes() != wanted || output.scalar_type() != at::kFloat)
    throw exported_model_error(
        "layer " + layer.name + " returns " +
        (output.defined() ? c10::str(output.scalar_type(), output.sizes()) : std::string("nothing")) + ", " +
        std::string(who) + " says " + c10::str(at::kFloat, at::IntArrayRef(wanted)));
}

} // namespace parcae
