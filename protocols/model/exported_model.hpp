#pragma once

// Models that parcae_model wrote (deploy/python): a folder with model.json, which has the layers' graphs, and
// weights.safetensors. Here is what model.json says, read and checked completely: what passes can be run node by node.
// And models of plug-ins (gpu/plugin): the same without graphs and weights. Torch-free.

#include "protocols/model/model_description.hpp"
#include "protocols/model/operators.hpp"

#include <boost/json/object.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace parcae {

inline constexpr std::uint64_t exported_text_limit_bytes = 512 << 10; ///< of model.json: it travels with the job

/// One line: where in the folder, and in the source that the model was exported from, what is wrong, and what to do.
struct exported_model_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Where a node's argument comes from.
struct value_reference {
  enum class origin : std::uint8_t { input, targets, extra, parameter, buffer, constant, node, positions };

  origin from = origin::input;
  std::uint32_t index = 0; ///< which of them; an earlier node

  friend bool operator==(const value_reference&, const value_reference&) = default;
};

/// Elements of lists are of one kind.
struct exported_argument {
  std::variant<std::monostate, bool, std::int64_t, double, std::string, value_reference, std::vector<exported_argument>>
      value;
};

/// What is not LibTorch's: parts of lists, a tensor's extent, arithmetic on extents.
enum class own_operator : std::uint8_t { none, item, size, add, subtract, multiply, divide };

struct exported_node {
  const operator_schema* schema = nullptr; ///< nullptr: `own` says which
  own_operator own = own_operator::none;
  std::vector<exported_argument> arguments; ///< all of the schema's, in its order
  bool without_gradient = false;
  std::string at; ///< file and line that it was exported from
};

struct exported_graph {
  std::vector<exported_node> nodes;
  value_reference output;

  /// Whether a node, or the output, refers to such values.
  bool refers_to(value_reference::origin what) const;

  /// "node 7, add.Tensor at mixer.py:12".
  std::string place_of(std::size_t node) const;
};

/// What a graph runs with; in evaluation the running statistics are the layer's, in training the micro-batch's.
struct exported_graphs {
  exported_graph training;
  exported_graph evaluation;
  std::optional<exported_graph> rows; ///< as evaluation, of one position a sample; if the model can be served
};

/// A tensor in weights.safetensors.
struct stored_tensor {
  std::string name;
  std::string type; ///< "float32", "int64", "bool", …
  std::vector<std::int64_t> shape;
  std::string digest; ///< SHA-256 of its bytes, hexadecimal
};

struct exported_layer {
  std::uint32_t graphs = 0;                 ///< which
  std::vector<std::uint32_t> constants;     ///< which of the model's
  std::vector<std::int64_t> buffer_offsets; ///< of each buffer within the flat ones
  std::uint64_t cached_values = 0;          ///< that its attention keeps of a position, if the model can be served
};

/// What the model is for: sizes of its samples.
struct exported_sizes {
  bool images = false;
  bool masked = false;
  std::uint32_t sequence = 64; ///< those that do not count are a specification's defaults
  std::uint32_t vocabulary = 256;
  std::uint32_t mask_token = 256;
  std::uint32_t image = 32;
  std::uint32_t channels = 3;
  std::uint32_t classes = 10;

  friend bool operator==(const exported_sizes&, const exported_sizes&) = default;
};

struct exported_model {
  model_description description;
  exported_sizes sizes;
  std::vector<exported_graphs> graphs;
  std::vector<exported_layer> layers;   ///< as many as the description's
  std::vector<stored_tensor> constants; ///< what graphs need besides parameters, the same for ever
  std::vector<stored_tensor> initial;   ///< version 0: all parameters and buffers, of tied ones the first
  boost::json::object config;           ///< of a Hugging Face model: its config.json
  std::vector<stored_tensor> frozen;    ///< the same: what it has besides those that are trained, for exports
  std::string plugin_model;             ///< of a plug-in's, which has no graphs: what makes its layers
  std::map<std::string, std::string> plugin_arguments;

  /// Whether it was exported for that, too.
  bool can_be_served() const { return !graphs.empty() && graphs.front().rows; }
};

/// Those of a job's specification, to be compared.
exported_sizes sizes_in(const model_specification& x);

/// Reads model.json in x.path, a folder, or of a plug-in's model x.path itself, into x.exported, and sets what follows
/// from it: sizes, `images`, `masked`, `plugin`. Throws exported_model_error.
void take_exported_model(model_specification& x);

// What `parcae-node --describe` writes of a plug-in's model.
inline constexpr std::string_view plugin_format = "parcae.plugin_model";
inline constexpr std::int64_t plugin_version = 1;

/// The same of its text. The digest goes to x.plugin and x.exported is the rest: a plug-in that was built again may
/// still have the same model.
void take_described_plugin(model_specification& x, std::string_view text);

/// What x.exported says, checked; the last few stay in memory and are shared. Any thread. Throws exported_model_error.
std::shared_ptr<const exported_model> exported_model_of(const model_specification& x);

/// Of what parcae_model writes: of weights.safetensors.
std::filesystem::path weights_of(const model_specification& x);

} // namespace parcae
