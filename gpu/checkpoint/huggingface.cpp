#include "gpu/checkpoint/huggingface.hpp"

#include "gpu/checkpoint/safetensors.hpp"
#include "protocols/base/durable_file.hpp"

#include <boost/json.hpp>

#include <cstring>

namespace parcae {

namespace {

/// GPT-2's Conv1D: weights are [in, out] there, [out, in] here.
bool is_transposed(const tensor_description& x) {
  for (const auto* name : {".c_attn.weight", ".c_proj.weight", ".c_fc.weight"})
    if (x.name.ends_with(name))
      return true;
  return false;
}

std::vector<std::byte> transposed(std::span<const std::byte> values, std::size_t rows, std::size_t columns) {
  std::vector<std::byte> result(values.size());
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t column = 0; column < columns; ++column)
      std::memcpy(result.data() + sizeof(float) * (column * rows + row),
                  values.data() + sizeof(float) * (row * columns + column), sizeof(float));
  return result;
}

/// What GPT2Config needs to build the same model.
boost::json::object config_of(const model_specification& x) {
  return {{"model_type", "gpt2"},
          {"architectures", {"GPT2LMHeadModel"}},
          {"n_layer", x.layers},
          {"n_head", x.heads},
          {"n_embd", x.width},
          {"n_positions", x.sequence},
          {"n_ctx", x.sequence},
          {"vocab_size", x.vocabulary},
          {"activation_function", "gelu_new"},
          {"layer_norm_epsilon", 1e-5},
          {"embd_pdrop", x.dropout},
          {"attn_pdrop", x.dropout},
          {"resid_pdrop", x.dropout},
          {"tie_word_embeddings", x.tied_embeddings},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr},
          {"torch_dtype", "float32"}};
}

} // namespace

void export_for_huggingface(checkpoint_reader& from, const std::filesystem::path& folder) {
  const auto& specification = from.manifest().specification.model;
  if (specification.kind != "gpt")
    throw checkpoint_error("the layout huggingface is for gpt, and " + from.places() + " is of a " +
                           specification.kind + "; leave out --layout: its names are those of PyTorch's libraries");
  if (const auto missing = from.missing(); !missing.empty())
    throw checkpoint_error("layers " + list_of(missing) + " are not in " + from.places() +
                           "; copy the shares of all keepers into one folder");
  const auto& model = from.model();
  const auto is_stored = [&](std::size_t layer, std::size_t tensor) { // of tied ones the first stands for both
    return !model.tied || layer != model.tied->second_layer || tensor != model.tied->second_tensor;
  };
  std::vector<safetensors_entry> entries;
  for (std::size_t l = 0; l < model.layers.size(); ++l)
    for (std::size_t t = 0; t < model.layers[l].tensors.size(); ++t)
      if (const auto& x = model.layers[l].tensors[t]; is_stored(l, t))
        entries.push_back({x.name, is_transposed(x) ? std::vector{x.shape.at(1), x.shape.at(0)} : x.shape});
  std::filesystem::create_directories(folder);
  durable_file file(folder / "model.safetensors");
  file.write(safetensors_header(entries, {{"format", "pt"}}));
  for (std::uint32_t l = 0; l < model.layers.size(); ++l) {
    const auto shard = from.read(l);
    auto part = std::span<const std::byte>(shard.parts.front());
    for (std::size_t t = 0; t < model.layers[l].tensors.size(); ++t) {
      const auto& x = model.layers[l].tensors[t];
      const auto values = part.first(x.values() * sizeof(float));
      part = part.subspan(values.size());
      if (!is_stored(l, t))
        continue;
      if (is_transposed(x))
        file.write(transposed(values, static_cast<std::size_t>(x.shape[0]), static_cast<std::size_t>(x.shape[1])));
      else
        file.write(values);
    }
  }
  file.publish();
  durable_file config(folder / "config.json");
  config.write(boost::json::serialize(config_of(specification)) + "\n");
  config.publish();
}

} // namespace parcae
