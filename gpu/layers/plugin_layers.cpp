// Layers of plug-ins (gpu/plugin): what they may use of a forward pass, and what they must not touch.

#include "gpu/layers/layers.hpp"
#include "gpu/plugin/plugin_models.hpp"

#include <ATen/ATen.h>

#include <string>
#include <utility>

namespace parcae {

namespace {

/// The layers, which point into the library, and what is known of them.
struct made_model {
  std::shared_ptr<const exported_model> facts;
  plugin::model made;
};

class plugin_pass final : public plugin::pass {
public:
  plugin_pass(const forward_pass& pass, std::uint32_t number, const layer_description& layer,
              const std::vector<std::int64_t>& offsets) :
      pass_(pass),
      drop_(0, pass, number), layer_(layer), offsets_(offsets) {}

  bool training() const override { return pass_.training; }

  at::Tensor dropout(const at::Tensor& x, double probability) override {
    if (!(probability >= 0 && probability < 1))
      throw exported_model_error("dropout of " + std::to_string(probability) + ", must be from 0, and below 1");
    return drop_.with(probability)(x);
  }

  // As bound_graph does it.
  at::Tensor batch_norm(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, std::size_t first,
                        double epsilon) override {
    const auto channels = x.size(1);
    if (first + 1 >= offsets_.size() || layer_.buffers[first].shape != std::vector{channels} ||
        layer_.buffers[first + 1].shape != std::vector{channels})
      throw exported_model_error("batch_norm of " + std::to_string(channels) +
                                 " channels wants a mean and a variance of that shape as buffers " +
                                 std::to_string(first) + " and " + std::to_string(first + 1));
    if (!pass_.training)
      return at::batch_norm(x, scale, shift, pass_.buffers.narrow(0, offsets_[first], channels),
                            pass_.buffers.narrow(0, offsets_[first + 1], channels), false, 0, epsilon, false);
    auto mean = at::zeros({channels}, x.options().requires_grad(false)), variance = at::zeros_like(mean);
    auto result = at::batch_norm(x, scale, shift, mean, variance, true, 1, epsilon, false);
    if (pass_.statistics.defined()) {
      pass_.statistics.narrow(0, offsets_[first], channels).copy_(mean);
      pass_.statistics.narrow(0, offsets_[first + 1], channels).copy_(variance);
    }
    return result;
  }

  at::Tensor targets() const override {
    if (!pass_.targets.defined())
      throw exported_model_error("asks for the targets, which only the last layer has, if it returns the loss");
    return pass_.targets;
  }

private:
  const forward_pass& pass_;
  parcae::dropout drop_;
  const layer_description& layer_;
  const std::vector<std::int64_t>& offsets_;
};

class plugin_layer final : public layer {
public:
  plugin_layer(std::shared_ptr<const made_model> model, std::uint32_t number) :
      model_(std::move(model)), number_(number), facts_(model_->facts->layers[number]),
      description_(model_->facts->description.layers[number]) {}

  at::Tensor forward(const std::vector<at::Tensor>& parameters, const at::Tensor& input,
                     const forward_pass& pass) const override {
    plugin_pass with(pass, number_, description_, facts_.buffer_offsets);
    try {
      auto output = model_->made.layers[number_]->forward(parameters, input, with);
      const auto& all = model_->facts->description;
      require_output(output, description_, input.size(0),
                     number_ + 1 == all.layers.size() && all.loss == loss_kind::in_last_layer, "the plug-in");
      return output;
    } catch (const exported_model_error&) {
      throw;
    } catch (const c10::OutOfMemoryError&) { // says nothing of the plug-in
      throw;
    } catch (const c10::Error& e) {
      throw exported_model_error("layer " + description_.name + ": " + e.what_without_backtrace());
    } catch (const std::exception& e) {
      throw exported_model_error("layer " + description_.name + ": " + e.what());
    }
  }

private:
  std::shared_ptr<const made_model> model_;
  std::uint32_t number_;
  const exported_layer& facts_;
  const layer_description& description_;
};

} // namespace

std::vector<std::unique_ptr<layer>> make_plugin_layers(const model_specification& x) {
  const auto model = std::make_shared<const made_model>(made_model{exported_model_of(x), make_plugin_model(x)});
  std::vector<std::unique_ptr<layer>> result;
  for (std::uint32_t i = 0; i < model->made.layers.size(); ++i)
    result.push_back(std::make_unique<plugin_layer>(model, i));
  return result;
}

} // namespace parcae
