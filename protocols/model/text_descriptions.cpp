#include "protocols/model/descriptions.hpp"

#include <cmath>

namespace parcae {

namespace {

/// What a transformer block keeps per sample; t tokens of width w, h heads.
double block_activations(const model_specification& x) {
  const double w = x.width, t = x.sequence, h = x.heads;
  // Both norms' inputs or outputs, queries, keys, values, the attention's output, what the wide layer makes before and
  // after its activation, the output; and a number per row for norms and attention.
  double values = 16 * t * w + 4 * t + h * t;
  if (x.dropout > 0) // the attention's weights, masked and not; masks are made again
    values += 2 * h * t * t;
  return values;
}

/// The same in bytes with products in bfloat16: the norms' float32 inputs and the output stay, what products take or
/// make is halved; of the attention's weights the masked ones.
double block_bytes(const model_specification& x) {
  const double w = x.width, t = x.sequence, h = x.heads;
  const double residual = x.kind == "bert" ? 3 : 2; // bert's input is copied, and both norms are behind the sums
  double bytes = (4 * residual + 2 * 14) * t * w + 4 * (4 * t + h * t);
  if (x.dropout > 0)
    bytes += 6 * h * t * t;
  return bytes;
}

/// 12·w² weights, twice per token; scores and their use are two products of t² by w.
double block_flop(const model_specification& x) {
  const double w = x.width, t = x.sequence;
  return 24 * t * w * w + 4 * t * t * w;
}

/// Logits, their softmax as the loss keeps it, and what the layer keeps of its own.
double head_activations(const model_specification& x, double of_width) {
  return static_cast<double>(x.sequence) * (2.0 * x.vocabulary + of_width * x.width);
}

/// The same in bytes with products in bfloat16: their factors are halved, the loss is of float32 logits.
double head_bytes(const model_specification& x, double of_width) {
  return static_cast<double>(x.sequence) * (8.0 * x.vocabulary + of_width * x.width);
}

} // namespace

// GPT-2: all weights normal(0.02), those that write to the residual stream divided by the root of how many do so.
model_description describe_gpt(const model_specification& x) {
  const std::int64_t width = x.width, sequence = x.sequence, vocabulary = x.vocabulary;
  const double w = x.width, t = x.sequence, v = x.vocabulary;
  const double normal = 0.02;
  const double residual = normal / std::sqrt(2.0 * x.layers);
  const auto zeros = initial_value::zeros;
  model_description result{{sequence}, x.sequence, {}, {}};

  layer_description embedding{"embedding", {}, {}, {sequence, width}, t * w, t * w, 4 * t * w};
  embedding.tensors.push_back({"transformer.wte.weight", {vocabulary, width}, initial_value::normal, normal});
  embedding.tensors.push_back({"transformer.wpe.weight", {sequence, width}, initial_value::normal, normal});
  result.layers.push_back(std::move(embedding));

  for (std::uint32_t i = 0; i < x.layers; ++i) {
    layer_description block{
        "block " + std::to_string(i), {}, {}, {sequence, width}, block_flop(x), block_activations(x), block_bytes(x)};
    auto prefix = "transformer.h." + std::to_string(i);
    add_norm(block, prefix + ".ln_1", width);
    add_linear(block, prefix + ".attn.c_attn", width, 3 * width, initial_value::normal, normal, zeros);
    add_linear(block, prefix + ".attn.c_proj", width, width, initial_value::normal, residual, zeros);
    add_norm(block, prefix + ".ln_2", width);
    add_linear(block, prefix + ".mlp.c_fc", width, 4 * width, initial_value::normal, normal, zeros);
    add_linear(block, prefix + ".mlp.c_proj", 4 * width, width, initial_value::normal, residual, zeros);
    result.layers.push_back(std::move(block));
  }

  layer_description head{"head",          {}, {}, {sequence, vocabulary}, 2 * t * w * v, head_activations(x, 1),
                         head_bytes(x, 2)};
  add_norm(head, "transformer.ln_f", width);
  head.tensors.push_back({"lm_head.weight", {vocabulary, width}, initial_value::normal, normal, true});
  result.layers.push_back(std::move(head));
  if (x.tied_embeddings)
    result.tied = tied_tensors{0, 0, x.layers + 1, 2};
  return result;
}

// BERT: all weights normal(0.02), biases 0.
model_description describe_bert(const model_specification& x) {
  const std::int64_t width = x.width, sequence = x.sequence, vocabulary = x.vocabulary;
  const double w = x.width, t = x.sequence, v = x.vocabulary;
  const double scale = 0.02;
  const auto normal = initial_value::normal, zeros = initial_value::zeros;
  model_description result{{sequence}, x.sequence, {}, {}};

  layer_description embedding{"embedding", {}, {}, {sequence, width}, 2 * t * w, 2 * t * w, 8 * t * w};
  const std::string embeddings = "bert.embeddings.";
  embedding.tensors.push_back({embeddings + "word_embeddings.weight", {vocabulary, width}, normal, scale});
  embedding.tensors.push_back({embeddings + "position_embeddings.weight", {sequence, width}, normal, scale});
  embedding.tensors.push_back({embeddings + "token_type_embeddings.weight", {2, width}, normal, scale});
  add_norm(embedding, embeddings + "LayerNorm", width);
  result.layers.push_back(std::move(embedding));

  for (std::uint32_t i = 0; i < x.layers; ++i) {
    layer_description block{
        "block " + std::to_string(i), {}, {}, {sequence, width}, block_flop(x), block_activations(x), block_bytes(x)};
    const auto prefix = "bert.encoder.layer." + std::to_string(i);
    for (auto name :
         {".attention.self.query", ".attention.self.key", ".attention.self.value", ".attention.output.dense"})
      add_linear(block, prefix + name, width, width, normal, scale, zeros);
    add_norm(block, prefix + ".attention.output.LayerNorm", width);
    add_linear(block, prefix + ".intermediate.dense", width, 4 * width, normal, scale, zeros);
    add_linear(block, prefix + ".output.dense", 4 * width, width, normal, scale, zeros);
    add_norm(block, prefix + ".output.LayerNorm", width);
    result.layers.push_back(std::move(block));
  }

  layer_description head{"head",           {}, {}, {sequence, vocabulary}, 2 * t * w * (w + v), head_activations(x, 3),
                         head_bytes(x, 10)};
  const std::string predictions = "cls.predictions.";
  add_linear(head, predictions + "transform.dense", width, width, normal, scale, zeros);
  add_norm(head, predictions + "transform.LayerNorm", width);
  head.tensors.push_back({predictions + "decoder.weight", {vocabulary, width}, normal, scale, true});
  head.tensors.push_back({predictions + "bias", {vocabulary}, zeros, 0});
  result.layers.push_back(std::move(head));
  if (x.tied_embeddings)
    result.tied = tied_tensors{0, 0, x.layers + 1, 4};
  return result;
}

// Initial values are those of torch.nn.Embedding and torch.nn.Linear.
model_description describe_mlp(const model_specification& x) {
  const std::int64_t width = x.width, sequence = x.sequence, vocabulary = x.vocabulary;
  const double w = x.width, t = x.sequence, v = x.vocabulary;
  const double bound = 1 / std::sqrt(w);
  const auto uniform = initial_value::uniform;
  model_description result{{sequence}, x.sequence, {}, {}};
  result.layers.push_back({"embedding",
                           {{"embedding.weight", {vocabulary, width}, initial_value::normal, 1}},
                           {},
                           {sequence, width},
                           0,
                           t * w,
                           4 * t * w});
  for (std::uint32_t i = 0; i < x.layers; ++i) {
    layer_description hidden{
        "hidden " + std::to_string(i),   {}, {}, {sequence, width}, 2 * t * w * w, (x.dropout > 0 ? 2 : 1) * t * w,
        (x.dropout > 0 ? 10 : 6) * t * w};
    add_linear(hidden, "hidden." + std::to_string(i), width, width, uniform, bound, uniform);
    result.layers.push_back(std::move(hidden));
  }
  layer_description head{"head",          {}, {}, {sequence, vocabulary}, 2 * t * w * v, head_activations(x, 0),
                         head_bytes(x, 2)};
  add_linear(head, "head", width, vocabulary, uniform, bound, uniform);
  result.layers.push_back(std::move(head));
  return result;
}

} // namespace parcae
