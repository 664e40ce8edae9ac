#include "protocols/model/exported_model.hpp"

#include "protocols/base/digest.hpp"
#include "protocols/base/enum_text.hpp"
#include "protocols/base/input_file.hpp"
#include "protocols/base/libtorch_version.hpp"
#include "protocols/base/locks.hpp"
#include "protocols/model/exported_parts.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <list>
#include <map>
#include <set>
#include <utility>

namespace parcae {

namespace json = boost::json;

BOOST_DESCRIBE_ENUM(initial_value, zeros, ones, normal, uniform) // as files name them, which do not name `stored`
BOOST_DESCRIBE_ENUM(loss_kind, cross_entropy, mean_squared_error, in_last_layer)

namespace {

constexpr std::string_view format = "parcae.exported_model";
constexpr std::int64_t version = 1;
constexpr std::size_t max_layers = 10'000;
constexpr std::size_t max_extras = 100;
constexpr std::uint64_t max_sample_values = 1 << 28;
constexpr std::uint32_t largest_extent = 10'000'000;

bool is_sha256(std::string_view x) {
  return x.size() == 64 && is_hexadecimal(x);
}

class model_reader {
public:
  model_reader(const json::value& root, std::string where) : root_(root), where_(std::move(where)) {}

  exported_model read() {
    check_format();
    read_tensors();
    read_input();
    read_graphs();
    const auto& layers = layers_in_root();
    for (const auto& layer : layers)
      read_layer(layer, model_.layers.size() + 1 == layers.size());
    for (const auto& [second, first] : ties_)
      if (!second.empty())
        fail(where_, "\"ties\" names " + second + ", which no later layer has as a parameter");
    check_output();
    read_huggingface();
    return std::move(model_);
  }

  exported_model read_plugin() {
    if (text_in(root_, "format", where_) != plugin_format)
      fail(where_, "is not what `parcae-node --describe` writes");
    if (const auto is = whole_in(root_, "version", where_); is != plugin_version)
      fail(where_, "is of version " + std::to_string(is) + " of the format, this build knows " +
                       std::to_string(plugin_version) + "; describe the model with this build's parcae-node");
    model_.plugin_model = checked_name(member(root_, "model", where_), where_);
    for (const auto& [key, value] : object_in(root_, "arguments", where_)) {
      if (!value.is_string())
        fail(where_, "its argument " + shown(key) + " is no string");
      model_.plugin_arguments.emplace(key, value.get_string());
    }
    read_input();
    for (const auto& layer : layers_in_root())
      read_plugin_layer(layer);
    check_output();
    return std::move(model_);
  }

private:
  const json::array& layers_in_root() const {
    const auto& layers = array_in(root_, "layers", where_);
    if (layers.empty() || layers.size() > max_layers)
      fail(where_, "has " + std::to_string(layers.size()) + " layers, must have 1 to " + std::to_string(max_layers));
    return layers;
  }

  void read_plugin_layer(const json::value& x) {
    const auto number = static_cast<std::uint32_t>(model_.layers.size());
    auto where = where_ + ", layer " + std::to_string(number);
    described_ = {};
    described_.name = checked_name(member(x, "name", where), where);
    where += " (" + shown(described_.name) + ")";
    exported_layer layer;
    layer.graphs = number; // no layers share one
    described_.tensors = drawn_tensors(array_in(x, "parameters", where), where);
    if (described_.tensors.empty())
      fail(where, "has no parameters; join it with another");
    described_.buffers = drawn_tensors(array_in(x, "buffers", where), where);
    std::int64_t offset = 0;
    for (std::size_t i = 1; i < described_.buffers.size(); i += 2)
      described_.buffers[i].is_variance = true; // a mean and a variance each
    for (const auto& buffer : described_.buffers) {
      if (buffer.initial != initial_value::zeros && buffer.initial != initial_value::ones)
        fail(where, "its buffer " + buffer.name + " must begin as zeros or ones");
      layer.buffer_offsets.push_back(offset);
      offset += static_cast<std::int64_t>(buffer.values());
    }
    described_.output = shape_of(member(x, "output", where), where);
    described_.forward_flop = quantity_in(x, "forward_flop", where);
    described_.activation_values = quantity_in(x, "activation_values", where);
    model_.layers.push_back(std::move(layer));
    model_.description.layers.push_back(std::move(described_));
  }

  std::vector<tensor_description> drawn_tensors(const json::array& all, const std::string& where) {
    std::vector<tensor_description> result;
    for (const auto& x : all) {
      tensor_description tensor{checked_name(member(x, "name", where), where),
                                shape_of(member(x, "shape", where), where)};
      if (!parameters_.insert(tensor.name).second)
        fail(where, "has a second tensor " + tensor.name);
      const auto start = parse_enum<initial_value>(text_in(x, "initial", where));
      const auto scale = text_in(x, "scale", where);
      const auto [end, error] = std::from_chars(scale.data(), scale.data() + scale.size(), tensor.scale);
      if (!start || error != std::errc{} || end != scale.data() + scale.size() ||
          !(tensor.scale >= 0 && tensor.scale < 1e30))
        fail(where, "it is not said how version 0 of " + tensor.name + " is drawn");
      tensor.initial = *start;
      result.push_back(std::move(tensor));
    }
    return result;
  }

  void check_format() {
    if (text_in(root_, "format", where_) != format)
      fail(where_, "is not what parcae_model writes");
    if (const auto is = whole_in(root_, "version", where_); is != version)
      fail(where_, "is of version " + std::to_string(is) + " of the format, this build knows " +
                       std::to_string(version) + "; export the model with this build's parcae_model");
    if (const auto is = text_in(root_, "torch", where_); is != libtorch_version)
      fail(where_,
           "was exported with torch " + shown(is) + ", operators are those of " + std::string(libtorch_version));
  }

  void read_tensors() {
    for (const auto& [key, value] : object_in(root_, "tensors", where_)) {
      const auto where = where_ + ", tensor " + shown(key);
      const auto* parts = value.if_array();
      if (!parts || parts->size() != 3 || !parts->at(0).is_string() || !parts->at(2).is_string())
        fail(where, "is not [type, shape, digest]");
      stored_tensor x{checked_name(json::value(key), where), std::string(parts->at(0).get_string()),
                      shape_of(parts->at(1), where), std::string(parts->at(2).get_string())};
      if (!is_sha256(x.digest))
        fail(where, "its digest is no SHA-256");
      tensors_.emplace(x.name, std::move(x));
    }
    for (const auto& [second, first] : object_in(root_, "ties", where_))
      ties_.emplace(checked_name(json::value(second), where_ + ", ties"), checked_name(first, where_ + ", ties"));
    if (ties_.size() > 1)
      fail(where_, "has " + std::to_string(ties_.size()) + " pairs of tied parameters; one is known");
  }

  /// Models of other origin, and older folders, have none.
  void read_huggingface() {
    if (!root_.as_object().contains("huggingface"))
      return;
    const auto where = where_ + ", huggingface";
    const auto& x = member(root_, "huggingface", where_);
    model_.config = object_in(x, "config", where);
    for (const auto& name : array_in(x, "frozen", where))
      model_.frozen.push_back(tensor(checked_name(name, where), where));
  }

  static std::uint32_t extent_in(const json::value& of, std::string_view key, const std::string& where,
                                 std::int64_t least = 1) {
    const auto x = whole_in(of, key, where);
    if (x < least || x > largest_extent)
      fail(where, "\"" + std::string(key) + "\" must be from " + std::to_string(least) + " to " +
                      std::to_string(largest_extent));
    return static_cast<std::uint32_t>(x);
  }

  void read_input() {
    const auto& input = member(root_, "input", where_);
    const auto where = where_ + ", input";
    const auto kind = text_in(input, "kind", where);
    auto& d = model_.description;
    auto& s = model_.sizes;
    if (kind == "tokens") {
      s.sequence = extent_in(input, "sequence", where);
      s.vocabulary = extent_in(input, "vocabulary", where);
      d.input = {s.sequence};
      labelled_ = input.as_object().contains("classes");
      if (labelled_)
        s.classes = extent_in(input, "classes", where);
      d.targets = labelled_ ? 1 : s.sequence;
    } else if (kind == "images") {
      s.images = true;
      s.channels = extent_in(input, "channels", where);
      s.image = extent_in(input, "image", where);
      s.classes = extent_in(input, "classes", where);
      d.input = {s.channels, s.image, s.image};
      labelled_ = true;
      d.targets = 1;
    } else {
      fail(where, "is of kind \"" + shown(kind) + "\", must be \"tokens\" or \"images\"");
    }
    read_extras(input, where);
    const auto name = text_in(root_, "loss", where_);
    const auto loss = parse_enum<loss_kind>(name);
    if (!loss)
      fail(where_, "the loss \"" + shown(name) + "\" is not known");
    d.loss = *loss;
    if (!member(root_, "mask_token", where_).is_null()) {
      const auto token = whole_in(root_, "mask_token", where_);
      if (s.images || token >= s.vocabulary)
        fail(where_, "\"mask_token\" is no token");
      s.masked = true;
      s.mask_token = static_cast<std::uint32_t>(token);
    }
  }

  void read_extras(const json::value& input, const std::string& where) {
    if (!input.as_object().contains("extras"))
      return;
    auto& extras = model_.description.extras;
    for (const auto& x : array_in(input, "extras", where)) {
      extras.push_back({checked_name(member(x, "name", where), where), shape_of(member(x, "shape", where), where)});
      if (extras.size() > max_extras || model_.description.input_values() > max_sample_values)
        fail(where, "has more than " + std::to_string(max_extras) + " extra inputs, or of more than " +
                        std::to_string(max_sample_values) + " values");
    }
  }

  void read_graphs() {
    for (const auto& x : array_in(root_, "graphs", where_)) {
      const auto where = where_ + ", graph " + std::to_string(model_.graphs.size());
      auto& graphs = model_.graphs.emplace_back();
      graphs.training = graph_of(member(x, "train", where), where + " in training");
      graphs.evaluation = graph_of(member(x, "eval", where), where + " in evaluation");
      if (const auto* rows = x.as_object().if_contains("serve"))
        graphs.rows = graph_of(*rows, where + " of rows");
      if (graphs.rows.has_value() != model_.graphs.front().rows.has_value())
        fail(where, "some layers can be served and others not; export the model again");
    }
    frames_.resize(model_.graphs.size());
  }

  const stored_tensor& tensor(const std::string& name, const std::string& where) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end())
      fail(where, "has a tensor " + name + " that is not in \"tensors\"");
    return found->second;
  }

  /// A parameter, or one that is tied to another, which has its values.
  tensor_description parameter(const json::value& x, const std::string& where) {
    auto name = checked_name(x, where);
    if (!parameters_.insert(name).second)
      fail(where, "has a second parameter " + name);
    const auto layer = static_cast<std::uint32_t>(model_.layers.size());
    const auto index = static_cast<std::uint32_t>(described_.tensors.size());
    const auto tie = ties_.find(name);
    const auto& stored = tensor(tie == ties_.end() ? name : tie->second, where);
    if (stored.type != "float32")
      fail(where, "its parameter " + name + " is " + shown(stored.type) + ", parameters are float32");
    if (tie == ties_.end()) {
      places_.emplace(name, std::pair(layer, index));
      model_.initial.push_back(stored);
    } else {
      const auto first = places_.find(tie->second);
      if (first == places_.end() || first->second.first == layer)
        fail(where, "its parameter " + name + " is tied to " + tie->second + ", which no earlier layer has");
      model_.description.tied = tied_tensors{first->second.first, first->second.second, layer, index};
      ties_.clear();
    }
    return {std::move(name), stored.shape, initial_value::stored, 0};
  }

  void read_layer(const json::value& x, bool last) {
    const auto number = model_.layers.size();
    auto where = where_ + ", layer " + std::to_string(number);
    described_ = {};
    described_.name = checked_name(member(x, "name", where), where);
    where += " (" + shown(described_.name) + ")";
    exported_layer layer;
    const auto graph = whole_in(x, "graph", where);
    if (static_cast<std::uint64_t>(graph) >= model_.graphs.size())
      fail(where, "there is no graph " + std::to_string(graph));
    layer.graphs = static_cast<std::uint32_t>(graph);
    for (const auto& name : array_in(x, "parameters", where))
      described_.tensors.push_back(parameter(name, where));
    if (described_.tensors.empty())
      fail(where, "has no parameters; join it with another");
    read_buffers(x, layer, where);
    for (const auto& name : array_in(x, "constants", where))
      layer.constants.push_back(constant(tensor(checked_name(name, where), where)));
    described_.output = shape_of(member(x, "output", where), where);
    described_.forward_flop = quantity_in(x, "forward_flop", where);
    described_.activation_values = quantity_in(x, "activation_values", where);
    const auto& graphs = model_.graphs[layer.graphs];
    if (graphs.rows)
      layer.cached_values = extent_in(x, "cached_values", where, 0);
    described_.reads_extras = graphs.training.refers_to(value_reference::origin::extra) ||
                              graphs.evaluation.refers_to(value_reference::origin::extra);
    check_graphs(layer, last && model_.description.loss == loss_kind::in_last_layer, where);
    mark_variances(graphs.training);
    model_.layers.push_back(std::move(layer));
    model_.description.layers.push_back(std::move(described_));
  }

  void read_buffers(const json::value& x, exported_layer& layer, const std::string& where) {
    std::int64_t offset = 0;
    for (const auto& entry : array_in(x, "buffers", where)) {
      const auto& stored = tensor(checked_name(entry, where), where);
      if (stored.type != "float32" || !parameters_.insert(stored.name).second)
        fail(where, "its buffer " + stored.name + " is not float32, or in two places");
      model_.initial.push_back(stored);
      layer.buffer_offsets.push_back(offset);
      described_.buffers.push_back({stored.name, stored.shape, initial_value::stored, 0});
      offset += static_cast<std::int64_t>(described_.buffers.back().values());
    }
  }

  /// By what a checked graph takes them for.
  void mark_variances(const exported_graph& training) {
    for (const auto& node : training.nodes)
      if (node.schema && node.schema->name == "batch_norm")
        if (const auto* x = std::get_if<value_reference>(&node.arguments[4].value))
          described_.buffers[x->index].is_variance = true;
  }

  std::uint32_t constant(const stored_tensor& x) {
    static const std::set<std::string> types{"float32", "float64", "int64", "int32", "uint8", "bool"};
    if (!types.contains(x.type))
      fail(where_, "the constant " + x.name + " is " + shown(x.type) + ", which is not known");
    const auto found = std::ranges::find(model_.constants, x.name, &stored_tensor::name);
    const auto index = static_cast<std::uint32_t>(found - model_.constants.begin());
    if (index == model_.constants.size())
      model_.constants.push_back(x);
    return index;
  }

  /// Layers that share graphs have tensors of the same shapes; what each graph refers to is there.
  void check_graphs(const exported_layer& layer, bool targets, const std::string& where) {
    std::vector<std::vector<std::int64_t>> frame;
    for (const auto* all : {&described_.tensors, &described_.buffers})
      for (const auto& x : *all)
        frame.push_back(x.shape);
    for (auto c : layer.constants)
      frame.push_back(model_.constants[c].shape);
    frame.push_back({static_cast<std::int64_t>(described_.buffers.size()), targets ? 1 : 0});
    auto& known = frames_[layer.graphs];
    if (!known.empty()) {
      if (known != frame)
        fail(where, "has tensors of other shapes than the layers that it shares a graph with");
      return;
    }
    known = std::move(frame);
    const auto& graphs = model_.graphs[layer.graphs];
    graph_frame with{model_.description.extras.size(), described_.tensors.size(), described_.buffers.size(),
                     layer.constants.size(), targets};
    const auto check = [&](const exported_graph& graph, const char* when) {
      if (const auto problem = problem_of(graph, with); !problem.empty())
        fail(where + when, problem);
    };
    check(graphs.training, " in training");
    with.training = false;
    check(graphs.evaluation, " in evaluation");
    with.rows = true;
    if (graphs.rows)
      check(*graphs.rows, " of rows");
  }

  void check_output() {
    const auto& d = model_.description;
    const auto& output = d.layers.back().output;
    const auto where = where_ + ", layer " + std::to_string(d.layers.size() - 1) + " (" + d.layers.back().name + ")";
    switch (d.loss) {
    case loss_kind::cross_entropy: {
      const auto wanted = labelled_ ? std::vector<std::int64_t>{} : d.input;
      const std::int64_t least = labelled_ ? model_.sizes.classes : model_.sizes.vocabulary;
      if (output.size() != wanted.size() + 1 || !std::equal(wanted.begin(), wanted.end(), output.begin()) ||
          output.back() < least)
        fail(where, "its output is not what cross-entropy wants: a number for each value, at each place");
      break;
    }
    case loss_kind::mean_squared_error:
      if (d.layers.back().output_values() != d.targets)
        fail(where, "its output has " + std::to_string(d.layers.back().output_values()) +
                        " values for a sample, the targets " + std::to_string(d.targets));
      break;
    case loss_kind::in_last_layer:
      if (!output.empty())
        fail(where, "is to return the loss, a scalar");
      break;
    }
  }

  const json::value& root_;
  std::string where_;
  exported_model model_;
  bool labelled_ = false; ///< the target is one label for each sample
  std::map<std::string, stored_tensor> tensors_;
  std::map<std::string, std::string> ties_;                               ///< second use, first; until found
  std::map<std::string, std::pair<std::uint32_t, std::uint32_t>> places_; ///< of parameters: layer and index
  std::set<std::string> parameters_;                                      ///< and buffers: seen
  std::vector<std::vector<std::vector<std::int64_t>>> frames_;            ///< of each graph: the shapes it is for
  layer_description described_;                                           ///< of the layer that is being read
};

/// For people.
std::string place_of(const model_specification& x) {
  return x.kind == "plugin" ? x.path : x.path + "/model.json";
}

json::value parsed(std::string_view text, const std::string& where) {
  json::error_code error;
  auto root = json::parse(text, error, {}, {.max_depth = 16});
  if (error)
    fail(where, "is no JSON: " + error.message());
  return root;
}

std::shared_ptr<const exported_model> read_model(const model_specification& x) {
  const auto where = place_of(x);
  const auto root = parsed(x.exported, where);
  model_reader reader(root, where);
  return std::make_shared<const exported_model>(x.kind == "plugin" ? reader.read_plugin() : reader.read());
}

void take_sizes(model_specification& x) {
  const auto sizes = exported_model_of(x)->sizes;
  x.images = sizes.images;
  x.masked = sizes.masked;
  x.sequence = sizes.sequence;
  x.vocabulary = sizes.vocabulary;
  x.mask_token = sizes.mask_token;
  x.image = sizes.image;
  x.channels = sizes.channels;
  x.classes = sizes.classes;
}

} // namespace

std::filesystem::path weights_of(const model_specification& x) {
  return std::filesystem::path(x.path) / "weights.safetensors";
}

std::shared_ptr<const exported_model> exported_model_of(const model_specification& x) {
  // Who needs a description asks for it anew, and reading one takes milliseconds.
  constexpr std::size_t kept = 4;
  static parcae::mutex mutex;
  static std::list<std::pair<std::string, std::shared_ptr<const exported_model>>> recent GUARDED_BY(mutex);
  const lock held(mutex);
  const auto key = place_of(x) + '\n' + x.exported;
  const auto found =
      std::ranges::find(recent, key, &std::pair<std::string, std::shared_ptr<const exported_model>>::first);
  if (found != recent.end()) {
    recent.splice(recent.begin(), recent, found);
    return recent.front().second;
  }
  auto model = read_model(x);
  recent.emplace_front(key, model);
  if (recent.size() > kept)
    recent.pop_back();
  return model;
}

void take_exported_model(model_specification& x) {
  std::string text;
  try {
    text = contents_of(place_of(x), exported_text_limit_bytes);
  } catch (const input_error& e) {
    throw exported_model_error(e.what());
  }
  if (x.kind == "plugin")
    return take_described_plugin(x, text);
  x.exported = std::move(text);
  take_sizes(x);
}

void take_described_plugin(model_specification& x, std::string_view text) {
  const auto where = place_of(x);
  auto root = parsed(text, where);
  auto digest = text_in(root, "plugin", where);
  if (!is_sha256(digest))
    fail(where, "\"plugin\" is no SHA-256");
  root.as_object().erase("plugin");
  x.plugin = std::move(digest);
  x.exported = json::serialize(root);
  take_sizes(x);
}

exported_sizes sizes_in(const model_specification& x) {
  return {x.images, x.masked, x.sequence, x.vocabulary, x.mask_token, x.image, x.channels, x.classes};
}

} // namespace parcae
