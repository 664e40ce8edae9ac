#include "gpu/checkpoint/checkpoint.hpp"

#include "gpu/checkpoint/safetensors.hpp"
#include "protocols/base/digest.hpp"
#include "protocols/base/durable_file.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <functional>

namespace parcae {

namespace {

constexpr std::string_view manifest_suffix = ".manifest";
constexpr std::string_view tensors_suffix = ".safetensors";
constexpr std::size_t max_shares = 1000;
constexpr std::size_t attempt_length = 16; // hexadecimal digits

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

/// What a store says of an object that ought to be there.
[[noreturn]] void rethrow(const store_error& e) {
  if (e.trouble == store_trouble::unreachable)
    throw e;
  throw checkpoint_error(e.what());
}

checkpoint_manifest read_manifest(const object_store& store, const std::string& name) {
  const auto path = store.place() + "/" + name;
  std::uint64_t checksum = 0;
  std::string bytes;
  try {
    const auto file = store.open(name);
    if (file->size() > manifest_limit_bytes + sizeof checksum)
      throw checkpoint_error(path + " is too long for a manifest");
    if (file->size() < sizeof checksum)
      throw checkpoint_error(path + " is too short for a manifest");
    bytes.resize(file->size());
    file->read(0, std::as_writable_bytes(std::span(bytes)));
  } catch (const store_error& e) {
    rethrow(e);
  }
  std::memcpy(&checksum, bytes.data(), sizeof checksum);
  const auto content = std::span(bytes).subspan(sizeof checksum);
  if (checksum_of(std::span<const char>(content)) != checksum)
    throw checkpoint_error(path + " is damaged: its checksum is wrong");
  try {
    return decode_manifest(content);
  } catch (const std::runtime_error& e) {
    throw checkpoint_error(path + ": " + e.what());
  }
}

std::string bytes_of(const checkpoint_manifest& x) {
  const auto content = encode(x);
  const auto checksum = checksum_of(std::span<const char>(content));
  std::string result(sizeof checksum, '\0');
  std::memcpy(result.data(), &checksum, sizeof checksum);
  return result.append(content.data(), content.size());
}

std::vector<stored_object> manifests_in(const stored_list& list) {
  std::vector<stored_object> found;
  for (const auto& x : list.objects)
    if (is_manifest(x.name) && found.size() < max_shares)
      found.push_back(x);
  return found;
}

bool has(const stored_list& list, const std::string& name) {
  return std::ranges::binary_search(list.objects, name, {}, &stored_object::name);
}

/// Whether two shares are of the same bits, as far as it can be told: of one version, made by the same step's result if
/// both keepers knew it.
bool same_state(const checkpoint_manifest& a, const checkpoint_manifest& b) {
  const auto bits = [](const checkpoint_manifest& x) {
    return std::array{std::bit_cast<std::uint64_t>(x.result.loss),
                      std::bit_cast<std::uint64_t>(x.result.gradient_norm)}; // which may be no numbers
  };
  constexpr std::array<std::uint64_t, 2> unknown{};
  return a.at == b.at && a.data_digest == b.data_digest &&
         (bits(a) == bits(b) || bits(a) == unknown || bits(b) == unknown);
}

/// All tensors of a share, in the order of its file; throws checkpoint_error if the shards are not of the model.
std::vector<safetensors_entry> entries_of(const checkpoint_share& share, const model_description& model) {
  std::vector<safetensors_entry> result;
  for (const auto& shard : share.shards) {
    const auto parts = entries_of(model, shard->layer, share.manifest.specification);
    if (shard->parts.size() != parts.size())
      throw checkpoint_error("layer " + std::to_string(shard->layer) + " has another number of parts than its model");
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (shard->parts[i].size() != values_in(parts[i]) * sizeof(float))
        throw checkpoint_error("layer " + std::to_string(shard->layer) + " has another size than in its model");
      result.insert(result.end(), parts[i].begin(), parts[i].end());
    }
  }
  return result;
}

void write_tensors(object_store& to, const checkpoint_share& share, const std::vector<safetensors_entry>& entries,
                   const std::atomic<bool>& cancelled) {
  const auto& manifest = share.manifest;
  const auto header = safetensors_header(
      entries, {{"format", "pt"}, {"job", manifest.specification.name}, {"steps", std::to_string(manifest.at.steps)}});
  auto bytes = std::uint64_t{header.size()};
  for (const auto& shard : share.shards)
    for (const auto& part : shard->parts)
      bytes += part.size();
  const auto tensors = to.create(manifest.tensors, bytes);
  tensors->write(std::as_bytes(std::span(header)));
  for (const auto& shard : share.shards) {
    if (cancelled)
      throw checkpoint_error("the keeper ends");
    for (const auto& part : shard->parts)
      tensors->write(part);
  }
  tensors->publish();
}

/// Whether `there` has all layers that `x` has, with the same bits.
bool covers(const checkpoint_manifest& there, const checkpoint_manifest& x) {
  return same_state(there, x) && std::ranges::all_of(x.layers, [&](const stored_layer& y) {
           return std::ranges::any_of(there.layers,
                                      [&](const auto& z) { return z.layer == y.layer && z.checksum == y.checksum; });
         });
}

/// What else has the share's name where others write too; nothing: none has. What is damaged is removed.
std::optional<checkpoint_manifest> written_by(object_store& to, const std::string& keeper) {
  const auto name = keeper + std::string(manifest_suffix);
  const auto list = to.list();
  if (!has(list, name))
    return std::nullopt;
  try {
    auto there = read_manifest(to, name);
    if (has(list, there.tensors))
      return there;
  } catch (const checkpoint_error&) {
  }
  to.remove(name);
  return std::nullopt;
}

/// Where others write too.
void put_beside_others(object_store& to, const std::string& keeper, checkpoint_share share,
                       const std::vector<safetensors_entry>& entries, const std::atomic<bool>& cancelled,
                       const std::string& attempt) {
  auto there = written_by(to, keeper);
  if (there && covers(*there, share.manifest))
    return;
  write_tensors(to, share, entries, cancelled);
  const auto bytes = bytes_of(share.manifest);
  const auto content = std::as_bytes(std::span(bytes));
  if (!there && to.put_if_absent(keeper + std::string(manifest_suffix), content))
    return;
  if (!there)
    there = written_by(to, keeper); // at the same time
  // Of the same state this keeper had other layers in an earlier life: both shares count.
  if (there && same_state(*there, share.manifest) &&
      to.put_if_absent(keeper + "." + attempt + std::string(manifest_suffix), content))
    return;
  to.remove(share.manifest.tensors);
  throw checkpoint_error("another keeper with the name " + keeper + " wrote other bits of " + to.place() +
                         "; names must be unique");
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

void write_share(object_store& to, const std::string& keeper, checkpoint_share share,
                 const std::atomic<bool>& cancelled, const std::string& attempt) {
  auto& manifest = share.manifest;
  const auto model = describe(manifest.specification.model);
  const auto entries = entries_of(share, model);
  manifest.tensors = keeper + (attempt.empty() ? "" : "." + attempt) + std::string(tensors_suffix);
  manifest.model_layers = static_cast<std::uint32_t>(model.layers.size());
  for (const auto& shard : share.shards)
    manifest.layers.push_back({shard->layer, checksum_of(*shard)});
  if (!attempt.empty())
    return put_beside_others(to, keeper, std::move(share), entries, cancelled, attempt);
  const auto name = keeper + std::string(manifest_suffix);
  to.remove(name); // what is here of an older attempt must not be taken for a manifest of the new tensors
  write_tensors(to, share, entries, cancelled);
  const auto bytes = bytes_of(manifest);
  const auto file = to.create(name, bytes.size());
  file->write(std::as_bytes(std::span(bytes)));
  file->publish();
}

bool is_of_share(std::string_view object, const std::string& keeper) {
  if (!object.starts_with(keeper))
    return false;
  object.remove_prefix(keeper.size());
  if (object.starts_with(manifest_suffix) || object.starts_with(tensors_suffix)) // or what was to become that
    return true;
  const auto attempt = object.substr(0, object.find('.', 1));
  return attempt.starts_with('.') && attempt.size() == 1 + attempt_length && is_hexadecimal(attempt.substr(1)) &&
         (object.substr(attempt.size()) == tensors_suffix || object.substr(attempt.size()) == manifest_suffix);
}

bool is_manifest(std::string_view object) {
  return object.ends_with(manifest_suffix);
}

bool has_manifest(const object_store& at) {
  return !manifests_in(at.list()).empty();
}

checkpoint_reader::checkpoint_reader(const std::vector<store_ptr>& places) {
  for (const auto& place : places) {
    places_ += (places_.empty() ? "" : ", ") + place->place();
    add_shares(place);
  }
  if (shares_.empty())
    throw checkpoint_error("no checkpoint at " + places_ + ": no manifest is in that folder");
  if (auto problem = problem_of(manifest().specification); !problem.empty())
    throw checkpoint_error("the checkpoint at " + places_ + " is of a job that this build cannot run: " + problem);
  model_ = describe(manifest().specification.model);
  std::erase_if(where_, [&](const auto& x) { return x.first >= model_.layers.size(); });
}

void checkpoint_reader::add_shares(const store_ptr& place) {
  const auto list = place->list();
  for (const auto& object : manifests_in(list)) {
    const auto path = place->place() + "/" + object.name;
    auto x = read_manifest(*place, object.name);
    if (x.tensors.find('/') != std::string::npos)
      throw checkpoint_error(path + " names a file in another folder");
    if (!shares_.empty() && x.at != manifest().at)
      throw checkpoint_error(path + " is of version " + to_string(x.at) + ", another is of " +
                             to_string(manifest().at));
    if (!shares_.empty() && !same_state(x, manifest()))
      throw checkpoint_error(path + " is of other training than " + shares_.front().where +
                             ": they are of one version, but of different steps' results");
    const auto number = shares_.size();
    for (const auto& layer : x.layers)
      where_.try_emplace(layer.layer, number, layer.checksum);
    const auto tensors = x.tensors;
    shares_.push_back({std::move(x), place, place->place() + "/" + tensors, has(list, tensors), nullptr});
  }
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

bool checkpoint_reader::is_complete() const {
  return missing().empty() && std::ranges::all_of(shares_, [](const share& x) { return x.has_tensors; });
}

shard_bytes checkpoint_reader::read(std::uint32_t layer) {
  const auto found = where_.find(layer);
  if (found == where_.end())
    throw checkpoint_error(places_ + " does not have layer " + std::to_string(layer));
  const auto [number, checksum] = found->second;
  auto& from = shares_[number];
  shard_bytes result{layer, from.manifest.at, {}};
  try {
    if (!from.file)
      from.file = std::make_unique<safetensors_file>(from.store->open(from.manifest.tensors), from.where);
    for (const auto& part : entries_of(model_, layer, from.manifest.specification)) {
      // The file is asked first: a description alone may be of any size.
      std::uint64_t bytes = 0;
      for (const auto& tensor : part)
        bytes += from.file->size_of(tensor.name);
      auto& to = result.parts.emplace_back(bytes);
      std::uint64_t at = 0;
      for (const auto& tensor : part) {
        from.file->read(tensor, to.data() + at);
        at += from.file->size_of(tensor.name);
      }
    }
  } catch (const store_error& e) {
    rethrow(e);
  } catch (const std::runtime_error& e) {
    throw checkpoint_error(e.what());
  }
  if (checksum_of(result) != checksum)
    throw checkpoint_error(from.where + " is damaged: the checksum of layer " + std::to_string(layer) + " is wrong");
  return result;
}

store_ptr find_checkpoint(const store_ptr& place) {
  const auto list = place->list();
  if (!manifests_in(list).empty())
    return place;
  store_ptr newest;
  std::pair<bool, version> best{}; // complete, of which version
  std::string unusable;
  for (const auto& name : list.folders) {
    const auto candidate = place->below(name);
    if (!has_manifest(*candidate))
      continue;
    try {
      checkpoint_reader reader({candidate});
      if (const auto it = std::pair(reader.is_complete(), reader.manifest().at); !newest || it > best) {
        best = it;
        newest = candidate;
      }
    } catch (const checkpoint_error& e) { // another one may do
      unusable = std::string("; ") + e.what();
    }
  }
  if (!newest)
    throw checkpoint_error("no checkpoint at " + place->place() + ": neither a manifest nor a checkpoint " +
                           "is in that folder" + unusable);
  return newest;
}

std::optional<version> newest_complete(const object_store& run) {
  std::vector<version> versions;
  for (const auto& name : run.list().folders)
    if (const auto x = version_in(name))
      versions.push_back(*x);
  std::ranges::sort(versions, std::greater());
  for (const auto& x : versions)
    try {
      if (checkpoint_reader({run.below(to_string(x))}).is_complete())
        return x;
    } catch (const checkpoint_error&) { // of no use
    }
  return std::nullopt;
}

void remove_checkpoint(object_store& of) {
  auto objects = of.list().objects;
  // Manifests first: without them the rest does not count.
  std::stable_partition(objects.begin(), objects.end(), [](const auto& x) { return is_manifest(x.name); });
  for (const auto& x : objects)
    of.remove(x.name);
}

std::optional<version> version_in(std::string_view name) {
  version result;
  const auto* end = name.data() + name.size();
  const auto [at, no_steps] = std::from_chars(name.data(), end, result.steps);
  if (no_steps != std::errc() || at == end || *at != '@')
    return std::nullopt;
  const auto [rest, no_generation] = std::from_chars(at + 1, end, result.by.value);
  return no_generation == std::errc() && rest == end ? std::optional(result) : std::nullopt;
}

void export_parameters(checkpoint_reader& from, const std::filesystem::path& output) {
  if (auto missing = from.missing(); !missing.empty())
    throw checkpoint_error("layers " + list_of(missing) + " are not in " + from.places() +
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
