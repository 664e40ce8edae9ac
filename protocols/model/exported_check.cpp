// Whether a graph can be run: every argument is of the kind that the operator's schema says.

#include "protocols/model/exported_parts.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

namespace parcae {

namespace {

using origin = value_reference::origin;

/// What is known of a value before anything runs.
struct value_kind {
  enum class form : std::uint8_t { tensor, tensors, whole } is = form::tensor;
  bool own = false; ///< made by the graph: may be written in place
};
using form = value_kind::form;

constexpr std::array<std::string_view, 6> element_types{"float32", "float64", "int64", "int32", "uint8", "bool"};
constexpr std::array<std::string_view, 2> memory_formats{"contiguous_format", "preserve_format"};

class graph_check {
public:
  graph_check(const exported_graph& graph, const graph_frame& with) : graph_(graph), with_(with) {}

  std::string run() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      check_node(graph_.nodes[i]);
      if (!problem_.empty())
        return graph_.place_of(i) + ": " + problem_;
    }
    // What no batch norm fills in training would be added to the running statistics as it is.
    require(!with_.training || normed_.size() == with_.buffers,
            "is not reached: " + std::to_string(with_.buffers - std::min(normed_.size(), with_.buffers)) +
                " of the running statistics belong to no batch norm");
    const auto output = value(graph_.output);
    if (problem_.empty() && output.is != form::tensor)
      problem_ = "is no tensor";
    return problem_.empty() ? "" : "the output " + problem_;
  }

private:
  void require(bool good, const std::string& why) {
    if (!good && problem_.empty())
      problem_ = why;
  }

  value_kind value(const value_reference& x) {
    const std::array<std::size_t, 8> counts{1,
                                            with_.targets ? 1u : 0u,
                                            with_.extras,
                                            with_.parameters,
                                            with_.buffers,
                                            with_.constants,
                                            values_.size(),
                                            with_.rows ? 1u : 0u};
    if (x.index >= counts[static_cast<std::size_t>(x.from)]) {
      require(false, "refers to a value that is not there, or only later");
      return {};
    }
    return x.from == origin::node ? values_[x.index] : value_kind{};
  }

  bool refers(const exported_argument& x, form to) {
    const auto* reference = std::get_if<value_reference>(&x.value);
    return reference && (reference->from != origin::buffer || buffers_allowed_) && value(*reference).is == to;
  }

  bool is_whole(const exported_argument& x) {
    return std::holds_alternative<std::int64_t>(x.value) || refers(x, form::whole);
  }

  template <class Good>
  bool is_list(const exported_argument& x, Good good) {
    const auto* list = std::get_if<std::vector<exported_argument>>(&x.value);
    return list && std::ranges::all_of(*list, good);
  }

  bool fits(const exported_argument& x, const operator_argument& to) {
    using enum argument_kind;
    const auto one_of = [&](const auto& names) {
      const auto* text = std::get_if<std::string>(&x.value);
      return text && std::ranges::find(names, *text) != names.end();
    };
    if (std::holds_alternative<std::monostate>(x.value))
      return to.optional || to.kind == nothing;
    switch (to.kind) {
    case tensor: // or a number, as in x + 1e-6
      return refers(x, form::tensor) || (!to.aliased && (std::holds_alternative<double>(x.value) ||
                                                         std::holds_alternative<std::int64_t>(x.value)));
    case tensors:
      return refers(x, form::tensors) || is_list(x, [&](const auto& y) { return refers(y, form::tensor); });
    case whole:
      return is_whole(x);
    case wholes:
      return is_list(x, [&](const auto& y) { return is_whole(y); });
    case real:
      return std::holds_alternative<double>(x.value);
    case number:
      return std::holds_alternative<double>(x.value) || std::holds_alternative<bool>(x.value) || is_whole(x);
    case flag:
      return std::holds_alternative<bool>(x.value);
    case text:
      return std::holds_alternative<std::string>(x.value);
    case element_type:
      return one_of(element_types);
    case memory_format:
      return one_of(memory_formats);
    case device:
      return one_of(std::array<std::string_view, 1>{"cpu"});
    case nothing:
      break;
    }
    return false;
  }

  void check_own(const exported_node& x) {
    const auto& [first, second] = std::pair(x.arguments[0], x.arguments[1]);
    if (x.own == own_operator::item) {
      require(refers(first, form::tensors) && std::holds_alternative<std::int64_t>(second.value),
              "takes a list of tensors and a number");
      const auto* list = std::get_if<value_reference>(&first.value);
      values_.push_back({form::tensor, list && value(*list).own});
    } else if (x.own == own_operator::size) {
      require(refers(first, form::tensor) && std::holds_alternative<std::int64_t>(second.value),
              "takes a tensor and a dimension");
      values_.push_back({form::whole});
    } else {
      require(is_whole(first) && is_whole(second), "takes two whole numbers");
      values_.push_back({form::whole});
    }
  }

  void check_node(const exported_node& x) {
    if (!x.schema)
      return check_own(x);
    buffers_allowed_ = x.schema->name == "batch_norm";
    bool own = true;
    for (std::size_t i = 0; i < x.arguments.size(); ++i) {
      const auto& argument = x.schema->arguments[i];
      require(fits(x.arguments[i], argument), "its argument \"" + argument.name + "\" is not what the operator takes");
      if (!problem_.empty())
        return;
      if (!argument.aliased)
        continue;
      const auto* reference = std::get_if<value_reference>(&x.arguments[i].value);
      const bool of_graph = reference && value(*reference).own;
      require(!argument.written || of_graph,
              "writes in place to a parameter, a constant or the layer's input; use the operator that does not");
      own = own && of_graph;
    }
    check_attention(x);
    check_random(x);
    check_batch_norm(x);
    values_.push_back({x.schema->makes_list ? form::tensors : form::tensor, own});
  }

  void check_attention(const exported_node& x) {
    if (!with_.rows || x.schema->name != "scaled_dot_product_attention")
      return;
    require(!attends_, "is a second attention; a layer that is served keeps the keys and values of one");
    require(std::holds_alternative<std::monostate>(x.arguments[3].value),
            "has a mask, which is between positions that are not there together when they are served");
    attends_ = true;
  }

  double real(const exported_node& x, std::size_t i) { return std::get<double>(x.arguments[i].value); }

  void check_random(const exported_node& x) {
    const bool dropout = x.schema->name == "dropout";
    if (!dropout && x.schema->name != "scaled_dot_product_attention")
      return;
    const auto probability = dropout && !std::get<bool>(x.arguments[2].value) ? 0 : real(x, dropout ? 1 : 4);
    require(probability >= 0 && probability < 1, "the probability of dropout must be at least 0 and below 1");
    require(with_.training || probability == 0, "drops out values in evaluation");
  }

  void check_batch_norm(const exported_node& x) {
    if (x.schema->name != "batch_norm")
      return;
    const auto is_buffer = [&](std::size_t i) {
      const auto* reference = std::get_if<value_reference>(&x.arguments[i].value);
      return reference && reference->from == origin::buffer;
    };
    for (std::size_t i : {0, 1, 2})
      require(!is_buffer(i), "takes running statistics for something else");
    const bool tracks = is_buffer(3) && is_buffer(4), of_batch = std::get<bool>(x.arguments[5].value);
    const bool without = !std::holds_alternative<value_reference>(x.arguments[3].value) &&
                         !std::holds_alternative<value_reference>(x.arguments[4].value);
    require(tracks || (without && of_batch), "its running statistics are not the layer's buffers");
    if (!tracks)
      return;
    require(of_batch == with_.training, with_.training ? "normalises with running statistics in training: unfreeze it"
                                                       : "normalises with the batch's statistics in evaluation");
    require(real(x, 6) == 0.1, "its momentum must be 0.1, PyTorch's default");
    if (with_.training) {
      for (std::size_t i : {3, 4})
        require(normed_.insert(std::get<value_reference>(x.arguments[i].value).index).second,
                "shares its running statistics with another");
    }
  }

  const exported_graph& graph_;
  const graph_frame& with_;
  std::vector<value_kind> values_; ///< of the nodes so far
  std::set<std::uint32_t> normed_; ///< buffers that are some batch norm's mean
  bool buffers_allowed_ = false;
  bool attends_ = false; ///< with rows
  std::string problem_;
};

std::string name_of(const exported_node& x) {
  static constexpr std::array<std::string_view, 7> own{"",        "item",    "size",        "int.add",
                                                       "int.sub", "int.mul", "int.floordiv"};
  return x.schema ? x.schema->name : std::string(own[static_cast<std::size_t>(x.own)]);
}

} // namespace

std::string exported_graph::place_of(std::size_t node) const {
  const auto& x = nodes[node];
  return "node " + std::to_string(node) + ", " + name_of(x) + " at " + (x.at.empty() ? "an unknown line" : x.at);
}

bool exported_graph::refers_to(value_reference::origin what) const {
  const auto refers = [what](const auto& self, const exported_argument& x) -> bool {
    if (const auto* reference = std::get_if<value_reference>(&x.value))
      return reference->from == what;
    const auto* list = std::get_if<std::vector<exported_argument>>(&x.value);
    return list && std::ranges::any_of(*list, [&](const auto& y) { return self(self, y); });
  };
  return output.from == what || std::ranges::any_of(nodes, [&](const exported_node& node) {
           return std::ranges::any_of(node.arguments, [&](const auto& x) { return refers(refers, x); });
         });
}

std::string problem_of(const exported_graph& x, const graph_frame& with) {
  return graph_check(x, with).run();
}

} // namespace parcae
