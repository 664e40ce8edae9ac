#include "gpu/layers/layers.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace parcae {

namespace {

constexpr double norm_epsilon = 1e-5;

at::Tensor normalise(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, norm_epsilon);
}

/// Sum of token and position embeddings.
class embedding_layer : public layer {
public:
  explicit embedding_layer(double probability) : probability_(probability) {}

  at::Tensor forward(const std::vector<at::Tensor>& parameters, const at::Tensor& tokens,
                     const forward_pass& pass) const override {
    dropout drop{probability_, pass, 0};
    const auto positions =
        pass.rows ? at::embedding(parameters[1], pass.rows->positions) : parameters[1].narrow(0, 0, tokens.size(1));
    return drop(at::embedding(parameters[0], tokens) + positions);
  }

private:
  double probability_;
};

/// Pre-norm transformer block: x + attention(norm(x)), then x + mlp(norm(x)).
class block_layer : public layer {
public:
  block_layer(const model_specification& x, std::uint32_t number, const tensor_device& on) :
      heads_(x.heads), probability_(x.dropout), number_(number) {
    if (probability_ > 0)
      future_ = at::full({x.sequence, x.sequence}, -std::numeric_limits<float>::infinity(), on.floats()).triu_(1);
  }

  at::Tensor forward(const std::vector<at::Tensor>& parameters, const at::Tensor& input,
                     const forward_pass& pass) const override {
    const auto* p = parameters.data();
    dropout drop{probability_, pass, number_};
    const auto residual = [&](const at::Tensor& y) { return drop(converted(y, input.scalar_type())); };
    auto mixed = mix(product(normalise(input, p[0], p[1]), p[2], p[3]), pass, drop);
    auto x = input + residual(product(mixed, p[4], p[5]));
    auto inner = at::gelu(product(normalise(x, p[6], p[7]), p[8], p[9]), "tanh");
    return x + residual(product(inner, p[10], p[11]));
  }

private:
  /// qkv: [samples, sequence, 3·width], queries, keys and values side by side. Returns [samples, sequence, width].
  at::Tensor mix(const at::Tensor& qkv, const forward_pass& pass, dropout& drop) const {
    auto samples = qkv.size(0), sequence = qkv.size(1), width = qkv.size(2) / 3;
    auto parts = qkv.view({samples, sequence, 3, heads_, width / heads_}).permute({2, 0, 3, 1, 4}).unbind(0);
    const auto scale = 1 / std::sqrt(static_cast<double>(width / heads_));
    const auto mixed = pass.rows ? pass.rows->caches->attend(number_, parts[0], parts[1], parts[2], scale)
                                 : attention(parts[0], parts[1], parts[2], true, future_, drop);
    return mixed.transpose(1, 2).reshape({samples, sequence, width});
  }

  std::int64_t heads_;
  double probability_;
  std::uint32_t number_;
  at::Tensor future_; ///< [sequence, sequence]: -inf where the key is later than the query; only with dropout
};

/// Final norm and the product with the (tied or own) output embedding.
class head_layer : public layer {
public:
  at::Tensor forward(const std::vector<at::Tensor>& parameters, const at::Tensor& input,
                     const forward_pass&) const override {
    return converted(product(normalise(input, parameters[0], parameters[1]), parameters[2]), input.scalar_type());
  }
};

} // namespace

std::vector<std::unique_ptr<layer>> make_gpt_layers(const model_specification& x, const tensor_device& on) {
  return transformer_layers<embedding_layer, block_layer, head_layer>(x, on);
}

} // namespace parcae
