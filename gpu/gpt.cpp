#include "gpu/layers.hpp"

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
                     const random_position& position) const override {
    dropout drop{probability_, position, 0};
    return drop(at::embedding(parameters[0], tokens) + parameters[1].narrow(0, 0, tokens.size(1)));
  }

private:
  double probability_;
};

/// Pre-norm transformer block: x + attention(norm(x)), then x + mlp(norm(x)).
class block_layer : public layer {
public:
  block_layer(const model_specification& x, std::uint32_t number) :
      heads_(x.heads), probability_(x.dropout), number_(number) {
    if (probability_ > 0)
      future_ = at::full({x.sequence, x.sequence}, -std::numeric_limits<float>::infinity(), at::kFloat).triu_(1);
  }

  at::Tensor forward(const std::vector<at::Tensor>& parameters, const at::Tensor& input,
                     const random_position& position) const override {
    const auto* p = parameters.data();
    dropout drop{probability_, position, number_};
    auto mixed = attention(at::linear(normalise(input, p[0], p[1]), p[2], p[3]), drop);
    auto x = input + drop(at::linear(mixed, p[4], p[5]));
    auto inner = at::gelu(at::linear(normalise(x, p[6], p[7]), p[8], p[9]), "tanh");
    return x + drop(at::linear(inner, p[10], p[11]));
  }

private:
  /// qkv: [samples, sequence, 3·width], queries, keys and values side by side. Returns [samples, sequence, width].
  at::Tensor attention(const at::Tensor& qkv, dropout& drop) const {
    auto samples = qkv.size(0), sequence = qkv.size(1), width = qkv.size(2) / 3;
    auto size = width / heads_;
    auto parts = qkv.view({samples, sequence, 3, heads_, size}).permute({2, 0, 3, 1, 4}).unbind(0);
    at::Tensor mixed; // [samples, heads, sequence, size]
    if (probability_ == 0) {
      mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
    } else {
      // The fused kernels have no dropout on the CPU. One product scales the scores and adds the causal mask.
      auto flat = [&](const at::Tensor& x) { return x.reshape({samples * heads_, sequence, size}); };
      auto mask = future_.narrow(0, 0, sequence).narrow(1, 0, sequence);
      auto scores = at::baddbmm(mask, flat(parts[0]), flat(parts[1]).transpose(1, 2), 1,
                                1 / std::sqrt(static_cast<double>(size)));
      mixed = at::bmm(drop(at::softmax(scores, -1)), flat(parts[2])).view({samples, heads_, sequence, size});
    }
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
                     const random_position&) const override {
    return at::linear(normalise(input, parameters[0], parameters[1]), parameters[2]);
  }
};

} // namespace

std::vector<std::unique_ptr<layer>> make_gpt_layers(const model_specification& x) {
  std::vector<std::unique_ptr<layer>> result;
  result.push_back(std::make_unique<embedding_layer>(x.dropout));
  for (std::uint32_t i = 1; i <= x.layers; ++i)
    result.push_back(std::make_unique<block_layer>(x, i));
  result.push_back(std::make_unique<head_layer>());
  return result;
}

} // namespace parcae
