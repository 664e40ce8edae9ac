#include "gpu/checkpoint/checkpoint.hpp"

#include "gpu/checkpoint/durable_file.hpp"
#include "gpu/checkpoint/safetensors.hpp"
#include "protocols/base/input_file.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace parcae {

namespace {

constexpr auto manifest_suffix = ".manifest";
constexpr std::size_t most_shares = 1000;

/// The tensors in each flat buffer of a layer's shard, in order. PyTorch's names of the optimizer's state.
std::vector<std::vector<safetensors_entry>> entries_of(const model_description& model, std::uint32_t number,
                                                       const job_specification& job) {
  const auto& layer = model.layers.at(number);
  std::vector<std::string> suffixes{""};
  if (moments_of(job.optimizer) == 2)
    suffixes.insert(suffixes.end(), {".exp_avg", ".exp_avg_sq"});
  else
    suffixes.emplace_back(".momentum_buffer");
  std::vector<std::vector<safetensors_entry>> parts;
  for (const auto& suffix : suffixes) {
    auto& part = parts.emplace_back();
    for (const auto& tensor : layer.tensors)
      part.push_back({tensor.name + suffix, tensor.shape});
  }
  if (!layer.buffers.empty()) {
    auto& part = parts.emplace_back();
    for (const auto& tensor : layer.buffers)
      part.push_back({tensor.name, tensor.shape});
  }
  if (job.patience > 0 && number + 1 == model.layers.size())
    parts.push_back({{"validation_course", {2}}});
  return parts;
}

std::uint64_t values_in(const std::vector<safetensors_entry>& part) {
  std::uint64_t values = 0;
  for (const auto& x : part) {
    std::uint64_t n = 1;
    for (auto extent : x.shape)
      n *= static_cast<std::uint64_t>(extent);
    values += n;
  }
  return values;
}

std::uint64_t checksum_of(const shard_bytes& x) {
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  XXH3_64bits_reset(state.get());
  for (const auto& part : x.parts)
    XXH3_64bits_update(state.get(), part.data(), part.size());
  return XXH3_64bits_digest(state.get());
}

/// Before the manifest's bytes: Cap'n Proto itself does not notice a flipped bit.
std::uint64_t checksum_of(std::span<const char> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

checkpoint_manifest read_manifest(const std::filesystem::path& path) {
  std::uint64_t checksum = 0;
  std::string bytes;
  try {
    bytes = contents_of(path, manifest_limit_bytes + sizeof checksum);
  } catch (const input_error& e) {
    throw checkpoint_error(e.what());
  }
  if (bytes.size() < sizeof checksum)
    throw checkpoint_error(path.string() + " is too short for a manifest");
  std::memcpy(&checksum, bytes.data(), sizeof checksum);
  const auto content = std::span(bytes).subspan(sizeof checksum);
  if (checksum_of(std::span<const char>(content)) != checksum)
    throw checkpoint_error(path.string() + " is damaged: its checksum is wrong");
  try {
    return decode_manifest(content);
  } catch (const std::runtime_error& e) {
    throw checkpoint_error(path.string() + ": " + e.what());
  }
}

std::vector<std::filesystem::path> manifests_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  std::error_code failure;
  for (std::filesystem::directory_iterator i(folder, failure), end; !failure && i != end; i.increment(failure))
    if (i->path().extension() == manifest_suffix && found.size() < most_shares)
      found.push_back(i->path());
  std::ranges::sort(found);
  return found;
}

} // namespace

std::string list_of(const std::vector<std::uint32_t>& layers) {
  std::string result;
  for (std::size_t i = 0; i < layers.size();) {
    auto last = i;
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1)
      ++last;
    result += (result.empty() ? "" : ", ") + std::to_string(layers[i]);
    if (last > i)
      result += "-" + std::to_string(layers[last]);
    i = last + 1;
  }
  return result;
}

void write_share(const std::filesystem::path& folder, const std::string& keeper, checkpoint_share share,
                 const std::atomic<bool>& cancelled) {
  auto& manifest = share.manifest;
  const auto model = describe(manifest.specification.model);
  manifest.tensors = keeper + ".safetensors";
  manifest.model_layers = static_cast<std::uint32_t>(model.layers.size());
  std::vector<safetensors_entry> entries;
  for (const auto& shard : share.shards) {
    const auto parts = entries_of(model, shard->layer, manifest.specification);
    if (shard->parts.size() != parts.size())
      throw checkpoint_error("layer " + std::to_string(shard->layer) + " has another number of parts than its model");
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (shard->parts[i].size() != values_in(parts[i]) * sizeof(float))
        throw checkpoint_error("layer " + std::to_string(shard->layer) + " has another size than in its model");
      entries.insert(entries.end(), parts[i].begin(), parts[i].end());
    }
  }
  // What is here of an older attempt must not be taken for a manifest of the new tensors.
  const auto manifest_path = folder / (keeper + manifest_suffix);
  std::filesystem::remove(manifest_path);
  durable_file tensors(folder / manifest.tensors, file_access::private_);
  tensors.write(safetensors_header(
      entries, {{"format", "pt"}, {"job", manifest.specification.name}, {"steps", std::to_string(manifest.at.steps)}}));
  for (const auto& shard : share.shards) {
    if (cancelled)
      throw checkpoint_error("the keeper ends");
    for (const auto& part : shard->parts)
      tensors.write(part);
    manifest.layers.push_back({shard->layer, checksum_of(*shard)});
  }
  tensors.publish();
  const auto bytes = encode(manifest);
  const auto checksum = checksum_of(std::span<const char>(bytes));
  durable_file file(manifest_path, file_access::private_);
  file.write(std::as_bytes(std::span(&checksum, 1)));
  file.write(std::as_bytes(std::span(bytes)));
  file.publish();
}

checkpoint_reader::checkpoint_reader(const std::vector<std::filesystem::path>& folders) {
  for (const auto& folder : folders) {
    folders_ += (folders_.empty() ? "" : ", ") + folder.string();
    for (const auto& path : manifests_in(folder)) {
      auto x = read_manifest(path);
      if (x.tensors.find('/') != std::string::npos)
        throw checkpoint_error(path.string() + " names a file in another folder");
      if (!shares_.empty() && x.at != manifest().at)
        throw checkpoint_error(path.string() + " is of version " + to_string(x.at) + ", another is of " +
                               to_string(manifest().at));
      const auto number = shares_.size();
      for (const auto& layer : x.layers)
        where_.try_emplace(layer.layer, number, layer.checksum);
      shares_.push_back({std::move(x), {}});
      shares_.back().tensors = folder / shares_.back().manifest.tensors;
    }
  }
  if (shares_.empty())
    throw checkpoint_error("no checkpoint at " + folders_ + ": no manifest is in that folder");
  if (auto problem = problem_of(manifest().specification); !problem.empty())
    throw checkpoint_error("the checkpoint at " + folders_ + " is of a job that this build cannot run: " + problem);
  model_ = describe(manifest().specification.model);
  std::erase_if(where_, [&](const auto& x) { return x.first >= model_.layers.size(); });
}

std::vector<std::uint32_t> checkpoint_reader::layers() const {
  std::vector<std::uint32_t> result;
  for (const auto& [layer, place] : where_)
    result.push_back(layer);
  return result;
}

std::vector<std::uint32_t> checkpoint_reader::missing() const {
  std::vector<std::uint32_t> result;
  for (std::uint32_t layer = 0; layer < model_.layers.size(); ++layer)
    if (!where_.contains(layer))
      result.push_back(layer);
  return result;
}

shard_bytes checkpoint_reader::read(std::uint32_t layer) {
  const auto found = where_.find(layer);
  if (found == where_.end())
    throw checkpoint_error(folders_ + " does not have layer " + std::to_string(layer));
  const auto [number, checksum] = found->second;
  const auto& from = shares_[number];
  shard_bytes result{layer, from.manifest.at, {}};
  try {
    safetensors_file file(from.tensors);
    for (const auto& part : entries_of(model_, layer, from.manifest.specification)) {
      // The file is asked first: a description alone may be of any size.
      std::uint64_t bytes = 0;
      for (const auto& tensor : part)
        bytes += file.size_of(tensor.name);
      auto& to = result.parts.emplace_back(bytes);
      std::uint64_t at = 0;
      for (const auto& tensor : part) {
        file.read(tensor, to.data() + at);
        at += file.size_of(tensor.name);
      }
    }
  } catch (const std::runtime_error& e) {
    throw checkpoint_error(e.what());
  }
  if (checksum_of(result) != checksum)
    throw checkpoint_error(from.tensors.string() + " is damaged: the checksum of layer " + std::to_string(layer) +
                           " is wrong");
  return result;
}

std::filesystem::path find_checkpoint(const std::filesystem::path& folder) {
  if (!manifests_in(folder).empty())
    return folder;
  std::filesystem::path newest;
  std::pair<bool, version> best{}; // complete, of which version
  std::string unusable;
  std::error_code failure;
  for (std::filesystem::directory_iterator i(folder, failure), end; !failure && i != end; i.increment(failure)) {
    if (manifests_in(i->path()).empty())
      continue;
    try {
      checkpoint_reader reader({i->path()});
      if (const auto it = std::pair(reader.missing().empty(), reader.manifest().at); newest.empty() || it > best) {
        best = it;
        newest = i->path();
      }
    } catch (const checkpoint_error& e) { // another one may do
      unusable = std::string("; ") + e.what();
    }
  }
  if (newest.empty())
    throw checkpoint_error("no checkpoint at " + folder.string() + ": neither a manifest nor a checkpoint " +
                           "is in that folder" + unusable);
  return newest;
}

void export_parameters(checkpoint_reader& from, const std::filesystem::path& output) {
  if (auto missing = from.missing(); !missing.empty())
    throw checkpoint_error("layers " + list_of(missing) + " are not in " + from.folders() +
                           "; copy the shares of all keepers into one folder");
  const auto& model = from.model();
  std::map<std::string, std::string> metadata{{"format", "pt"}};
  if (model.tied)
    metadata[model.layers[model.tied->second_layer].tensors[model.tied->second_tensor].name] =
        model.layers[model.tied->first_layer].tensors[model.tied->first_tensor].name;
  std::vector<safetensors_entry> entries;
  for (const auto& layer : model.layers)
    for (const auto* tensors : {&layer.tensors, &layer.buffers})
      for (const auto& tensor : *tensors)
        if (!metadata.contains(tensor.name))
          entries.push_back({tensor.name, tensor.shape});
  durable_file file(output);
  file.write(safetensors_header(entries, metadata));
  for (std::uint32_t number = 0; number < model.layers.size(); ++number) {
    const auto& layer = model.layers[number];
    const auto shard = from.read(number);
    auto write = [&](const std::vector<tensor_description>& tensors, std::span<const std::byte> part) {
      for (const auto& tensor : tensors) {
        const auto bytes = part.first(tensor.values() * sizeof(float));
        if (!metadata.contains(tensor.name))
          file.write(bytes);
        part = part.subspan(bytes.size());
      }
    };
    write(layer.tensors, shard.parts.front());
    if (!layer.buffers.empty())
      write(layer.buffers, shard.parts.at(1 + moments_of(from.manifest().specification.optimizer)));
  }
  file.publish();
}

} // namespace parcae
