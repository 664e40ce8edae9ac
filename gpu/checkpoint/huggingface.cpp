#include "gpu/checkpoint/huggingface.hpp"

#include "gpu/checkpoint/exported_weights.hpp"
#include "gpu/checkpoint/published_layout.hpp"
#include "gpu/checkpoint/safetensors.hpp"
#include "protocols/base/durable_file.hpp"

#include <boost/json.hpp>

#include <cstring>

namespace parcae {

namespace {

std::vector<std::byte> transposed(std::span<const std::byte> values, std::size_t rows, std::size_t columns) {
  std::vector<std::byte> result(values.size());
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t column = 0; column < columns; ++column)
      std::memcpy(result.data() + sizeof(float) * (column * rows + row),
                  values.data() + sizeof(float) * (row * columns + column), sizeof(float));
  return result;
}

/// What a Hugging Face model has besides what is trained, from the folder that parcae_model wrote.
std::vector<std::pair<safetensors_entry, std::vector<std::byte>>> frozen_tensors(const model_specification& x) {
  std::vector<std::pair<safetensors_entry, std::vector<std::byte>>> result;
  const auto model = x.kind == "exported" ? exported_model_of(x) : nullptr;
  if (!model || model->frozen.empty())
    return result;
  try {
    exported_weights file(x);
    for (const auto& tensor : model->frozen) {
      auto& [entry, values] = result.emplace_back(entry_of(tensor), file.size_of(tensor));
      file.read(tensor, values);
    }
  } catch (const exported_model_error& e) {
    throw checkpoint_error(std::string(e.what()) + "; what the model does not train is there only");
  }
  return result;
}

} // namespace

void export_for_huggingface(checkpoint_reader& from, const std::filesystem::path& folder) {
  const auto& specification = from.manifest().specification.model;
  const auto config = published_config(specification);
  if (config.empty())
    throw checkpoint_error("the layout huggingface is for gpt, bert and exported models of Hugging Face, and " +
                           from.places() + " is of " +
                           (specification.kind == "exported" ? "another exported model" : "a " + specification.kind) +
                           "; leave out --layout: its names are those of PyTorch's libraries");
  if (const auto missing = from.missing(); !missing.empty())
    throw checkpoint_error("layers " + list_of(missing) + " are not in " + from.places() +
                           "; copy the shares of all keepers into one folder");
  const auto& model = from.model();
  const auto is_stored = [&](std::size_t layer, std::size_t tensor) { // of tied ones the first stands for both
    return !model.tied || layer != model.tied->second_layer || tensor != model.tied->second_tensor;
  };
  std::vector<safetensors_entry> entries;
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    for (std::size_t t = 0; t < model.layers[l].tensors.size(); ++t)
      if (const auto& x = model.layers[l].tensors[t]; is_stored(l, t))
        entries.push_back({x.name, published_shape(specification, x)});
    for (const auto& x : model.layers[l].buffers)
      entries.push_back({x.name, x.shape});
  }
  const auto frozen = frozen_tensors(specification);
  for (const auto& [entry, values] : frozen)
    entries.push_back(entry);
  std::filesystem::create_directories(folder);
  durable_file file(folder / "model.safetensors");
  file.write(safetensors_header(entries, {{"format", "pt"}}));
  for (std::uint32_t l = 0; l < model.layers.size(); ++l) {
    const auto shard = from.read(l);
    auto rest = std::span<const std::byte>(shard.parts.front());
    for (std::size_t t = 0; t < model.layers[l].tensors.size(); ++t) {
      const auto& x = model.layers[l].tensors[t];
      const auto values = rest.first(x.values() * sizeof(float));
      rest = rest.subspan(values.size());
      if (!is_stored(l, t))
        continue;
      if (is_transposed(specification, x.name))
        file.write(transposed(values, static_cast<std::size_t>(x.shape[0]), static_cast<std::size_t>(x.shape[1])));
      else
        file.write(values);
    }
    if (!model.layers[l].buffers.empty())
      file.write(shard.parts.at(1 + moments_of(from.manifest().specification.optimizer)));
  }
  for (const auto& [entry, values] : frozen)
    file.write(values);
  file.publish();
  durable_file text(folder / "config.json");
  text.write(boost::json::serialize(config) + "\n");
  text.publish();
}

} // namespace parcae
