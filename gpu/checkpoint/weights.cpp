#include "gpu/checkpoint/weights.hpp"

#include "gpu/checkpoint/published_layout.hpp"
#include "protocols/base/digest.hpp"
#include "protocols/base/input_file.hpp"
#include "protocols/base/printable.hpp"
#include "protocols/model/exported_model.hpp"
#include "protocols/store/fetch.hpp"

#include <boost/json.hpp>

#include <cstring>
#include <set>

namespace parcae {

namespace json = boost::json;
namespace fs = std::filesystem;

namespace {

constexpr const char* single_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";
constexpr std::uint64_t index_limit_bytes = safetensors_header_limit_bytes;
constexpr std::uint64_t config_limit_bytes = 1 << 20;
constexpr std::size_t max_files = 1000;

/// What the files' readers say, as an error of weights.
template <class Function>
auto as_weights_error(Function&& function) {
  try {
    return function();
  } catch (const weights_error&) {
    throw;
  } catch (const std::runtime_error& e) {
    throw weights_error(printable(e.what()));
  }
}

std::string to_string(const std::vector<std::int64_t>& shape) {
  std::string result;
  for (auto extent : shape)
    result += (result.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + result + "]";
}

bool is_index(const std::string& spelling) {
  return spelling.ends_with(".json");
}

/// What an index says: the name of the file beside it that has a tensor, by the tensor's.
std::map<std::string, std::string> files_of_index(const fs::path& index) {
  json::error_code error;
  const auto root = json::parse(contents_of(index, index_limit_bytes), error, {}, {.max_depth = 8});
  const auto* object = error ? nullptr : root.if_object();
  const auto* map = object && object->contains("weight_map") ? object->at("weight_map").if_object() : nullptr;
  if (!map)
    throw weights_error(index.string() + " is no index: it has no \"weight_map\" of tensors to files");
  std::map<std::string, std::string> result;
  std::set<std::string> names;
  for (const auto& [tensor, file] : *map) {
    const auto* name = file.if_string();
    if (!name || name->find('/') != name->npos || name->empty() || *name == "." || *name == "..")
      throw weights_error(index.string() + " names no file beside it for " + std::string(tensor));
    result.emplace(tensor, *name);
    names.emplace(*name);
  }
  if (names.size() > max_files)
    throw weights_error(index.string() + " names " + std::to_string(names.size()) + " files, must be at most " +
                        std::to_string(max_files));
  return result;
}

/// Of a prefix, not what other libraries keep beside.
fetch_options options_for_weights(const std::vector<fs::path>& places, const std::stop_token& stop = {}) {
  fetch_options result;
  result.wanted = [](std::string_view name) {
    return name.find('/') == name.npos && (name.ends_with(".safetensors") || name.ends_with(".json"));
  };
  result.store.stop = stop;
  result.store.places = places;
  return result;
}

std::string and_others(std::size_t all) {
  return all < 2 ? "" : ", nor " + std::to_string(all - 1) + (all == 2 ? " other" : " others");
}

} // namespace

weight_source::weight_source(const fs::path& path) : weight_source(path, path.string(), {}) {}

weight_source::weight_source(const fs::path& path, std::string where,
                             std::function<fs::path(const std::string& name)> beside) :
    where_(std::move(where)),
    beside_(std::move(beside)) {
  if (!beside_)
    beside_ = [folder = fs::is_directory(path) ? path : path.parent_path()](const std::string& name) {
      return folder / name;
    };
  as_weights_error([&] {
    std::error_code ignored;
    const bool is_folder = fs::is_directory(path, ignored);
    const auto folder = is_folder ? path : path.parent_path();
    config_ = folder / "config.json";
    if (is_folder && fs::exists(path / index_name, ignored))
      open_index(path / index_name);
    else if (is_folder && !fs::exists(path / single_name, ignored))
      throw weights_error(where_ + " has neither " + single_name + " nor " + index_name);
    else if (is_folder)
      open(path / single_name);
    else if (path.extension() == ".json")
      open_index(path);
    else
      open(path);
  });
}

void weight_source::open(const fs::path& path) {
  auto& file = files_.try_emplace(path, path).first->second;
  for (const auto& name : file.names())
    if (!tensors_.emplace(name, &file).second)
      throw weights_error(path.string() + " has a tensor " + name + " that another file has too");
}

void weight_source::open_index(const fs::path& index) {
  const auto files = files_of_index(index);
  std::map<std::string, fs::path> paths;
  for (const auto& [tensor, name] : files)
    if (const auto [place, is_new] = paths.try_emplace(name); is_new)
      open(place->second = beside_(name));
  for (const auto& [tensor, name] : files) {
    const auto found = tensors_.find(tensor);
    const auto& path = paths.at(name);
    if (found == tensors_.end() || found->second != &files_.at(path))
      throw weights_error(path.string() + " has no tensor " + tensor + ", which " + index.filename().string() +
                          " says it has");
  }
}

std::vector<std::string> weight_source::names() const {
  std::vector<std::string> result;
  for (const auto& [name, file] : tensors_)
    result.push_back(name);
  return result;
}

safetensors_entry weight_source::entry(const std::string& name) const {
  return as_weights_error([&] { return tensors_.at(name)->entry(name); });
}

void weight_source::read(const std::string& name, std::span<float> to) {
  as_weights_error([&] { tensors_.at(name)->read_as_float(name, to); });
}

std::vector<fs::path> weight_source::paths() const {
  std::vector<fs::path> result;
  for (const auto& [path, file] : files_)
    result.push_back(path);
  return result;
}

std::unique_ptr<weight_source> open_weights(const std::string& spelling, const std::vector<fs::path>& places) {
  if (!is_url(spelling))
    return std::make_unique<weight_source>(spelling);
  return as_weights_error([&] {
    const auto options = options_for_weights(places);
    std::function<fs::path(const std::string&)> find; // else beside the index
    if (is_index(spelling))
      find = [spelling, options](const std::string& name) { return fetched(beside(spelling, name), options); };
    return std::make_unique<weight_source>(fetched(spelling, options), printable(spelling), find);
  });
}

void fetch_weights(const std::string& url, const std::vector<fs::path>& places, const std::stop_token& stop) {
  as_weights_error([&] {
    const auto options = options_for_weights(places, stop);
    const auto path = fetch(url, options);
    if (!is_index(url))
      return;
    std::set<std::string> names;
    for (const auto& [tensor, name] : files_of_index(path))
      if (names.insert(name).second)
        fetch(beside(url, name), options);
  });
}

initial_weights::initial_weights(const model_specification& x, const std::vector<fs::path>& folders) :
    specification_(x), model_(describe(x)) {
  as_weights_error([&] {
    source_ = open_weights(x.weights, folders);
    if (!is_url(x.weights))
      for (const auto& path : source_->paths()) // a link may lead elsewhere
        require_within(path, folders);
    std::error_code ignored;
    const auto config = source_->config();
    if (!fs::exists(config, ignored))
      return find_all();
    json::error_code error;
    const auto root = json::parse(contents_of(config, config_limit_bytes), error, {}, {.max_depth = 16});
    if (const auto* object = error ? nullptr : root.if_object())
      if (const auto problem = config_problem(x, *object); !problem.empty())
        throw weights_error(config.string() + " " + printable(problem));
    find_all();
  });
}

void initial_weights::fail(const std::string& what) const {
  throw weights_error(source_->where() + " " + printable(what));
}

/// Names in the files to names in the model. A body that was saved without its head lacks the first part of all names.
void initial_weights::find_all() {
  std::set<std::string> wanted;
  for (const auto& layer : model_.layers)
    for (const auto* tensors : {&layer.tensors, &layer.buffers})
      for (const auto& x : *tensors)
        wanted.insert(x.name);
  std::map<std::string, stored_tensor> frozen;
  if (specification_.kind == "exported")
    for (const auto& x : exported_model_of(specification_)->frozen)
      frozen.emplace(x.name, x);
  const auto& first = model_.layers.front().tensors.front().name;
  const auto prefix = first.substr(0, first.find('.') + 1);
  std::map<std::string, std::string> stored, second; // by the model's name
  for (const auto& name : source_->names()) {
    auto ours = present_name(name);
    if (!wanted.contains(ours) && wanted.contains(prefix + ours))
      ours = prefix + ours;
    if (wanted.contains(ours)) {
      if (!stored.emplace(ours, name).second)
        fail("has two tensors for " + ours + ", " + stored[ours] + " and " + name);
    } else if (wanted.contains(first_name(ours))) {
      second.emplace(first_name(ours), name);
    } else if (const auto found = frozen.find(ours); found != frozen.end()) {
      compare_frozen(found->second, name);
    } else if (!is_left_out(name)) {
      fail("has a tensor " + name + ", which the job's model has not");
    }
  }
  stored.merge(second);                // where the first is not there
  if (const auto& tie = model_.tied) { // files have both uses, or either
    const auto& one = model_.layers[tie->first_layer].tensors[tie->first_tensor].name;
    const auto& other = model_.layers[tie->second_layer].tensors[tie->second_tensor].name;
    if (stored.contains(one))
      stored.emplace(other, stored[one]);
    else if (stored.contains(other))
      stored.emplace(one, stored[other]);
    else
      wanted.erase(other); // one name says what is missing
  }
  std::vector<std::string> missing;
  for (const auto& name : wanted)
    if (!stored.contains(name))
      missing.push_back(name);
  if (!missing.empty())
    fail("has no tensor " + missing.front() + and_others(missing.size()) +
         (missing.size() == 1 && missing.front() == "lm_head.weight" ? "; is it tied (model.tied_embeddings)?" : ""));
  // What `parcae export` writes for PyTorch is not transposed. Of the first of them both sides differ.
  bool own_layout = false, known = false;
  for (const auto& layer : model_.layers)
    for (const auto* tensors : {&layer.tensors, &layer.buffers})
      for (const auto& x : *tensors) {
        if (!known && is_transposed(specification_, x.name)) {
          own_layout = source_->entry(stored[x.name]).shape == x.shape;
          known = true;
        }
        require(x, stored[x.name], own_layout);
      }
  compare_ties();
}

void initial_weights::require(const tensor_description& tensor, const std::string& stored, bool own_layout) {
  const auto there = source_->entry(stored);
  const auto shape = own_layout ? tensor.shape : published_shape(specification_, tensor);
  if (there.shape != shape)
    fail("has a tensor " + stored + " of shape " + to_string(there.shape) + ", the job's model wants " +
         to_string(shape));
  if (there.type != "F32" && there.type != "BF16" && there.type != "F16")
    fail("has a tensor " + stored + " of type " + there.type + "; parameters are F32, BF16 or F16");
  places_[tensor.name] = {stored, !own_layout && is_transposed(specification_, tensor.name)};
}

/// What an exported model does not train is part of its graphs: other values would be another model.
void initial_weights::compare_frozen(const stored_tensor& tensor, const std::string& stored) {
  const auto there = source_->entry(stored);
  if (tensor.type != "float32") // a counter
    return;
  std::uint64_t values = 1;
  for (auto extent : tensor.shape)
    values *= static_cast<std::uint64_t>(extent);
  sha256 digest;
  if (there.shape == tensor.shape) {
    std::vector<float> x(values);
    source_->read(stored, x);
    digest.add(std::as_bytes(std::span(x)));
  }
  if (there.shape != tensor.shape || digest.hexadecimal() != tensor.digest)
    fail("has other values of " + stored + ", which " + specification_.path +
         " does not train; export the model with these weights");
}

void initial_weights::compare_ties() {
  if (!model_.tied)
    return;
  const auto& one = model_.layers[model_.tied->first_layer].tensors[model_.tied->first_tensor];
  const auto& other = model_.layers[model_.tied->second_layer].tensors[model_.tied->second_tensor];
  if (places_.at(one.name).name == places_.at(other.name).name)
    return;
  std::vector<float> values(one.values()), others(one.values());
  read_tensor(one, values);
  read_tensor(other, others);
  if (std::memcmp(values.data(), others.data(), values.size() * sizeof(float)) != 0)
    fail("has other values in " + places_.at(other.name).name + " than in " + places_.at(one.name).name +
         ", and they are tied in the job's model");
}

void initial_weights::read_tensor(const tensor_description& tensor, std::span<float> to) {
  const auto& from = places_.at(tensor.name);
  if (!from.transposed)
    return source_->read(from.name, to);
  std::vector<float> stored(to.size());
  source_->read(from.name, stored);
  const auto rows = static_cast<std::size_t>(tensor.shape.at(0)),
             columns = static_cast<std::size_t>(tensor.shape.at(1));
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t column = 0; column < columns; ++column)
      to[row * columns + column] = stored[column * rows + row];
}

std::string initial_weights::read_values(std::uint32_t layer, std::span<float> parameters, std::span<float> buffers) {
  const auto& what = model_.layers.at(layer);
  if (parameters.size() != what.parameters() || buffers.size() != what.buffer_values())
    throw std::logic_error("layer " + std::to_string(layer) + " into another number of values");
  sha256 digest;
  for (auto [tensors, to] : {std::pair(&what.tensors, parameters), std::pair(&what.buffers, buffers)}) {
    auto rest = to;
    for (const auto& tensor : *tensors) {
      read_tensor(tensor, rest.first(tensor.values()));
      rest = rest.subspan(tensor.values());
    }
    digest.add(std::as_bytes(to));
  }
  return digest.hexadecimal();
}

void initial_weights::read(std::uint32_t layer, std::span<float> parameters, std::span<float> buffers) {
  if (read_values(layer, parameters, buffers) != specification_.weights_digests.at(layer))
    fail("has other values of " + model_.layers[layer].name +
         " than when the job was submitted; copy the file to this machine as it was then");
}

std::string initial_weights::digest(std::uint32_t layer) {
  const auto& what = model_.layers.at(layer);
  std::vector<float> parameters(what.parameters()), buffers(what.buffer_values());
  return read_values(layer, parameters, buffers);
}

void take_weights(model_specification& x) {
  if (!is_url(x.weights))
    x.weights = fs::absolute(x.weights).lexically_normal().string();
  while (x.weights.size() > 1 && x.weights.back() == '/')
    x.weights.pop_back();
  x.weights_digests.clear();
  initial_weights weights(x);
  for (std::uint32_t layer = 0; layer < weights.model().layers.size(); ++layer)
    x.weights_digests.push_back(weights.digest(layer));
}

} // namespace parcae
