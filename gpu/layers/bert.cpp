#include "gpu/layers/layers.hpp"

#include <ATen/ATen.h>

namespace parcae {

namespace {

at::Tensor normalise(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, 1e-12);
}

/// Normalised sum of token, position and type embeddings; all tokens are of type 0.
class embedding_layer : public layer {
public:
  explicit embedding_layer(double probability) : probability_(probability) {}

  at::Tensor forward(const std::vector<at::Tensor>& parameters, const at::Tensor& tokens,
                     const forward_pass& pass) const override {
    const auto* p = parameters.data();
    dropout drop{probability_, pass, 0};
    const auto sum = at::embedding(p[0], tokens) + (p[1].narrow(0, 0, tokens.size(1)) + p[2].select(0, 0));
    return drop(normalise(sum, p[3], p[4]));
  }

private:
  double probability_;
};

/// Post-norm transformer block: norm(x + attention(x)), then norm(x + mlp(x)).
class block_layer : public layer {
public:
  block_layer(const model_specification& x, std::uint32_t number) :
      heads_(x.heads), probability_(x.dropout), number_(number) {}

  at::Tensor forward(const std::vector<at::Tensor>& parameters, const at::Tensor& input,
                     const forward_pass& pass) const override {
    const auto* p = parameters.data();
    dropout drop{probability_, pass, number_};
    const auto samples = input.size(0), sequence = input.size(1), width = input.size(2);
    const auto residual = [&](const at::Tensor& y) { return drop(converted(y, input.scalar_type())); };
    const auto factor = converted(input, p[0].scalar_type()); // once for all three
    auto heads = [&](const at::Tensor& weight, const at::Tensor& bias) {
      return product(factor, weight, bias).view({samples, sequence, heads_, width / heads_}).transpose(1, 2);
    };
    const auto mixed = attention(heads(p[0], p[1]), heads(p[2], p[3]), heads(p[4], p[5]), false, {}, drop)
                           .transpose(1, 2)
                           .reshape({samples, sequence, width});
    const auto x = normalise(input + residual(product(mixed, p[6], p[7])), p[8], p[9]);
    const auto inner = at::gelu(product(x, p[10], p[11]));
    return normalise(x + residual(product(inner, p[12], p[13])), p[14], p[15]);
  }

private:
  std::int64_t heads_;
  double probability_;
  std::uint32_t number_;
};

/// Predicts masked tokens: linear, GELU and norm, then the product with the (tied or own) output embedding.
class head_layer : public layer {
public:
  at::Tensor forward(const std::vector<at::Tensor>& parameters, const at::Tensor& input,
                     const forward_pass&) const override {
    const auto* p = parameters.data();
    const auto type = input.scalar_type();
    const auto inner = converted(at::gelu(product(input, p[0], p[1])), type);
    return converted(product(normalise(inner, p[2], p[3]), p[4], p[5]), type);
  }
};

} // namespace

std::vector<std::unique_ptr<layer>> make_bert_layers(const model_specification& x) {
  return transformer_layers<embedding_layer, block_layer, head_layer>(x);
}

} // namespace parcae
