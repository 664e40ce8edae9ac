#pragma once

// What the sources of the layers share; for them only.

#include "gpu/layers/model.hpp"
#include "protocols/model/seed.hpp"

#include <ATen/core/Tensor.h>

namespace parcae {

std::vector<std::unique_ptr<layer>> make_gpt_layers(const model_specification& x, const tensor_device& on);
std::vector<std::unique_ptr<layer>> make_mlp_layers(const model_specification& x);
std::vector<std::unique_ptr<layer>> make_bert_layers(const model_specification& x);
std::vector<std::unique_ptr<layer>> make_resnet_layers(const model_specification& x);
std::vector<std::unique_ptr<layer>> make_vgg_layers(const model_specification& x);
std::vector<std::unique_ptr<layer>> make_exported_layers(const model_specification& x, const tensor_device& on);
std::vector<std::unique_ptr<layer>> make_plugin_layers(const model_specification& x);

/// Whether a layer of a user's returned what `who` says of it. Throws exported_model_error.
void require_output(const at::Tensor& output, const layer_description& layer, std::int64_t samples, bool is_loss,
                    std::string_view who);

/// Version 0 of a layer as it is in an exported model's folder.
stored_state exported_layer_state(const model_specification& x, std::uint32_t layer);

/// An embedding, as many blocks as the model has layers, numbered from 1, and a head.
template <class Embedding, class Block, class Head>
std::vector<std::unique_ptr<layer>> transformer_layers(const model_specification& x, const auto&... more) {
  std::vector<std::unique_ptr<layer>> result;
  result.push_back(std::make_unique<Embedding>(x.dropout));
  for (std::uint32_t i = 1; i <= x.layers; ++i)
    result.push_back(std::make_unique<Block>(x, i, more...));
  result.push_back(std::make_unique<Head>());
  return result;
}

/// The dropouts of one forward call of one layer. Every use has a mask of its own (gpu/device/random.hpp), seeded by
/// where in the job the call is, the layer, and how many uses came before; the backward pass makes it again.
/// Probability 0 and evaluation draw nothing. One call, one thread.
class dropout {
public:
  dropout(double probability, const forward_pass& pass, std::uint32_t layer) :
      training_(pass.training), probability_(training_ ? probability : 0), position_(pass.position), layer_(layer),
      on_(pass.on) {}

  bool active() const { return probability_ > 0; }

  /// The uses from here on have another probability.
  dropout& with(double probability) {
    probability_ = training_ ? probability : 0;
    return *this;
  }

  at::Tensor operator()(const at::Tensor& x);

  /// For a kernel that drops by itself: a use of its own.
  std::uint64_t next_seed();
  double probability() const { return probability_; }

private:
  bool training_;
  double probability_; ///< of the next use
  random_position position_;
  std::uint32_t layer_;
  tensor_device on_;
  std::uint32_t uses_ = 0;
};

/// x in another type, or as it is.
at::Tensor converted(const at::Tensor& x, at::ScalarType type);

/// x · weightᵀ + bias (undefined: none), in the weight's type.
at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

/// Mixes values by queries and keys, all [samples, heads, sequence, size]; returns the same shape.
/// causal: [sequence, sequence] or larger, -inf where the key is later than the query, 0 elsewhere; undefined: all see
/// all. It is used with dropout only; `is_causal` says the same to the fused kernel. In the queries' type; of bfloat16
/// what is between the two products is float32.
at::Tensor attention(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values, bool is_causal,
                     const at::Tensor& causal, dropout& drop);

/// Of LibTorch's own generator there, as attention finds and leaves it: another one if anything else drew from it.
at::Tensor generator_state(at::Device place);

} // namespace parcae
