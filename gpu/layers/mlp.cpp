#include "gpu/layers/layers.hpp"

#include <ATen/ATen.h>

namespace parcae {

namespace {

class embedding_layer : public layer {
public:
  at::Tensor forward(const std::vector<at::Tensor>& parameters, const at::Tensor& tokens,
                     const forward_pass&) const override {
    return at::embedding(parameters[0], tokens);
  }
};

class head_layer : public layer {
public:
  at::Tensor forward(const std::vector<at::Tensor>& parameters, const at::Tensor& input,
                     const forward_pass&) const override {
    return converted(product(input, parameters[0], parameters[1]), input.scalar_type());
  }
};

class hidden_layer : public layer {
public:
  hidden_layer(double probability, std::uint32_t number) : probability_(probability), number_(number) {}

  at::Tensor forward(const std::vector<at::Tensor>& parameters, const at::Tensor& input,
                     const forward_pass& pass) const override {
    dropout drop{probability_, pass, number_};
    return drop(at::relu(converted(product(input, parameters[0], parameters[1]), input.scalar_type())));
  }

private:
  double probability_;
  std::uint32_t number_;
};

} // namespace

std::vector<std::unique_ptr<layer>> make_mlp_layers(const model_specification& x) {
  std::vector<std::unique_ptr<layer>> result;
  result.push_back(std::make_unique<embedding_layer>());
  for (std::uint32_t i = 1; i <= x.layers; ++i)
    result.push_back(std::make_unique<hidden_layer>(x.dropout, i));
  result.push_back(std::make_unique<head_layer>());
  return result;
}

} // namespace parcae
