#include "gpu/model_description.hpp"

#include <cmath>
#include <numbers>
#include <stdexcept>

namespace parcae {

namespace {

// A linear layer as torch.nn.Linear names and stores it: weight [out, in], then bias [out].
void add_linear(layer_description& layer, const std::string& name, std::int64_t in, std::int64_t out,
                initial_value initial, double scale, initial_value bias) {
  layer.tensors.push_back({name + ".weight", {out, in}, initial, scale});
  layer.tensors.push_back({name + ".bias", {out}, bias, bias == initial_value::uniform ? scale : 0});
}

void add_norm(layer_description& layer, const std::string& name, std::int64_t width) {
  layer.tensors.push_back({name + ".weight", {width}, initial_value::ones, 0});
  layer.tensors.push_back({name + ".bias", {width}, initial_value::zeros, 0});
}

// GPT-2: all weights normal(0.02), those that write to the residual stream divided by the root of how many do so.
model_description describe_gpt(const model_specification& x) {
  const std::int64_t width = x.width, sequence = x.sequence, vocabulary = x.vocabulary;
  const double w = x.width, t = x.sequence, v = x.vocabulary;
  const double normal = 0.02;
  const double residual = normal / std::sqrt(2.0 * x.layers);
  const auto zeros = initial_value::zeros;
  model_description result;

  layer_description embedding{"embedding", {}, t * w, std::uint64_t{x.sequence} * x.width};
  embedding.tensors.push_back({"transformer.wte.weight", {vocabulary, width}, initial_value::normal, normal});
  embedding.tensors.push_back({"transformer.wpe.weight", {sequence, width}, initial_value::normal, normal});
  result.layers.push_back(std::move(embedding));

  for (std::uint32_t i = 0; i < x.layers; ++i) {
    // 12·w² weights, twice per token; scores and their use are two products of t² by w.
    layer_description block{
        "block " + std::to_string(i), {}, 24 * t * w * w + 4 * t * t * w, std::uint64_t{x.sequence} * x.width};
    auto prefix = "transformer.h." + std::to_string(i);
    add_norm(block, prefix + ".ln_1", width);
    add_linear(block, prefix + ".attn.c_attn", width, 3 * width, initial_value::normal, normal, zeros);
    add_linear(block, prefix + ".attn.c_proj", width, width, initial_value::normal, residual, zeros);
    add_norm(block, prefix + ".ln_2", width);
    add_linear(block, prefix + ".mlp.c_fc", width, 4 * width, initial_value::normal, normal, zeros);
    add_linear(block, prefix + ".mlp.c_proj", 4 * width, width, initial_value::normal, residual, zeros);
    result.layers.push_back(std::move(block));
  }

  layer_description head{"head", {}, 2 * t * w * v, 0};
  add_norm(head, "transformer.ln_f", width);
  head.tensors.push_back({"lm_head.weight", {vocabulary, width}, initial_value::normal, normal});
  result.layers.push_back(std::move(head));
  if (x.tied_embeddings)
    result.tied = tied_tensors{0, 0, x.layers + 1, 2};
  return result;
}

// Initial values are those of torch.nn.Embedding and torch.nn.Linear.
model_description describe_mlp(const model_specification& x) {
  const std::int64_t width = x.width, vocabulary = x.vocabulary;
  const double w = x.width, t = x.sequence, v = x.vocabulary;
  const double bound = 1 / std::sqrt(w);
  const auto uniform = initial_value::uniform;
  const auto output = std::uint64_t{x.sequence} * x.width;
  model_description result;
  result.layers.push_back(
      {"embedding", {{"embedding.weight", {vocabulary, width}, initial_value::normal, 1}}, 0, output});
  for (std::uint32_t i = 0; i < x.layers; ++i) {
    layer_description hidden{"hidden " + std::to_string(i), {}, 2 * t * w * w, output};
    add_linear(hidden, "hidden." + std::to_string(i), width, width, uniform, bound, uniform);
    result.layers.push_back(std::move(hidden));
  }
  layer_description head{"head", {}, 2 * t * w * v, 0};
  add_linear(head, "head", width, vocabulary, uniform, bound, uniform);
  result.layers.push_back(std::move(head));
  return result;
}

} // namespace

std::uint64_t tensor_description::values() const {
  std::uint64_t n = 1;
  for (auto extent : shape)
    n *= static_cast<std::uint64_t>(extent);
  return n;
}

std::uint64_t layer_description::parameters() const {
  std::uint64_t n = 0;
  for (const auto& tensor : tensors)
    n += tensor.values();
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
  throw std::invalid_argument("unknown kind of model \"" + x.kind + "\"");
}

std::uint32_t moments_of(const optimizer_specification& x) {
  return x.kind == "adamw" ? 2 : 1;
}

double learning_rate(const optimizer_specification& x, std::uint64_t step, std::uint64_t steps) {
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
