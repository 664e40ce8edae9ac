#pragma once

// A graph of an exported model, bound to LibTorch's operators: run node by node. For the sources of this room only.

#include "gpu/layers/layers.hpp"
#include "gpu/layers/operand_check.hpp"
#include "protocols/model/exported_model.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace parcae {

/// What one run is given.
struct graph_values {
  std::span<const at::Tensor> parameters;
  std::span<const at::Tensor> constants;
  std::span<const std::int64_t> buffer_offsets; ///< within the pass's flat buffers and statistics
  std::span<const tensor_description> buffers;
  const at::Tensor& input;
  std::uint32_t layer; ///< of the model
};

/// Bound once to one device, run by any number of threads. Handles, constants and places of values are looked up when
/// it is made.
class bound_graph {
public:
  /// Throws exported_model_error if LibTorch does not have an operator with the schema that the list says.
  bound_graph(const exported_graph& graph, std::size_t extras, std::size_t parameters, std::size_t buffers,
              std::size_t constants, at::Device place);

  /// Throws exported_model_error, with the node's place, when an operator does.
  at::Tensor run(const graph_values& given, const forward_pass& pass) const;

private:
  enum class action : std::uint8_t { call, own, dropout, attention, batch_norm };

  /// A literal, the value of a place, or a list with places in it.
  struct argument {
    c10::IValue literal;
    std::vector<std::uint32_t> places; ///< empty: the literal
    std::vector<std::int64_t> wholes;  ///< of a list: its numbers, where `places` has no_place
    enum class form : std::uint8_t { literal, value, wholes, tensors } is = form::literal;
  };

  struct instruction {
    action what = action::call;
    own_operator own = own_operator::none;
    std::optional<c10::OperatorHandle> handle;
    operand_check check = nullptr; ///< null: none is needed
    std::vector<argument> arguments;
    bool without_gradient = false;
    std::vector<std::uint32_t> last_uses; ///< places that nothing needs afterwards
    std::uint32_t mean = 0;               ///< batch_norm with statistics: which buffers
    std::uint32_t variance = 0;
  };

  using frame = std::vector<c10::IValue>;
  static constexpr std::uint32_t no_place = UINT32_MAX;

  std::uint32_t place_of(const value_reference& x) const;
  argument bind(const exported_argument& x, const operator_argument* to) const;
  argument bind_list(const std::vector<exported_argument>& x, const operator_argument* to) const;
  instruction bind(const exported_node& x) const;
  void note_last_uses();
  static c10::IValue value_of(const argument& x, const frame& values);
  c10::IValue execute(const instruction& x, const frame& values, const graph_values& given, const forward_pass& pass,
                      dropout& drop, std::vector<c10::IValue>& stack) const;
  static c10::IValue compute(own_operator what, const c10::IValue& first, const c10::IValue& second);
  static c10::IValue normalise(const instruction& x, const std::vector<c10::IValue>& stack, const graph_values& given,
                               const forward_pass& pass);

  const exported_graph& graph_; ///< for messages; outlives this object
  at::Device place_;
  std::uint32_t first_parameter_;
  std::uint32_t first_buffer_;
  std::uint32_t first_constant_;
  std::uint32_t first_node_;
  std::uint32_t output_;
  std::vector<instruction> instructions_;
};

} // namespace parcae
