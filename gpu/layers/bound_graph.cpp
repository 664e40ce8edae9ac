#include "gpu/layers/bound_graph.hpp"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

namespace parcae {

namespace {

constexpr std::uint32_t input_place = 0;
constexpr std::uint32_t targets_place = 1;
constexpr std::uint32_t positions_place = 2;
constexpr std::uint32_t first_extra = 3;

c10::ScalarType type_of(std::string_view name) {
  static const std::map<std::string_view, c10::ScalarType> types{{"float32", c10::kFloat}, {"float64", c10::kDouble},
                                                                 {"int64", c10::kLong},    {"int32", c10::kInt},
                                                                 {"uint8", c10::kByte},    {"bool", c10::kBool}};
  return types.at(name);
}

c10::IValue literal_of(const std::string& x, argument_kind kind, at::Device place) {
  switch (kind) {
  case argument_kind::element_type:
    return static_cast<std::int64_t>(type_of(x));
  case argument_kind::memory_format:
    return static_cast<std::int64_t>(x == "contiguous_format" ? c10::MemoryFormat::Contiguous
                                                              : c10::MemoryFormat::Preserve);
  case argument_kind::device:
    return place;
  default:
    return x;
  }
}

/// A number where an operator takes a tensor decides nothing about the result's type, as in Python.
struct literal {
  argument_kind kind;
  at::Device place;

  c10::IValue operator()(std::monostate) const { return {}; }
  c10::IValue operator()(const std::string& x) const { return literal_of(x, kind, place); }
  c10::IValue operator()(const value_reference&) const { return {}; }                // see bind
  c10::IValue operator()(const std::vector<exported_argument>&) const { return {}; } // see bind
  c10::IValue operator()(bool x) const { return x; }
  c10::IValue operator()(auto x) const {
    return kind == argument_kind::tensor ? c10::IValue(at::native::wrapped_scalar_tensor(x)) : c10::IValue(x);
  }
};

double scale_of(const std::vector<c10::IValue>& x) {
  return x[6].isNone() ? 1 / std::sqrt(static_cast<double>(x[0].toTensor().size(-1))) : x[6].toDouble();
}

/// Attention with dropout, of which LibTorch would take the mask from its own generator.
at::Tensor mix(const std::vector<c10::IValue>& x, dropout& drop) {
  const auto q = x[0].toTensor();
  auto k = x[1].toTensor(), v = x[2].toTensor();
  const auto mask = x[3].isNone() ? at::Tensor() : x[3].toTensor();
  const bool is_causal = x[5].toBool();
  if (x[7].toBool()) { // groups of queries share keys and values
    k = k.repeat_interleave(q.size(-3) / k.size(-3), -3);
    v = v.repeat_interleave(q.size(-3) / v.size(-3), -3);
  }
  const auto places = q.size(-2), keys = k.size(-2);
  at::Tensor future;
  if (is_causal)
    future = at::full({places, keys}, -std::numeric_limits<float>::infinity(), q.options()).triu_(1);
  if (!mask.defined() && x[6].isNone() && q.dim() == 4 && places == keys && v.size(-1) == q.size(-1))
    return attention(q, k, v, is_causal, future, drop);
  auto scores = at::matmul(q * scale_of(x), k.transpose(-2, -1));
  if (is_causal)
    scores = scores + future;
  if (mask.defined())
    scores = mask.scalar_type() == at::kBool
                 ? scores.masked_fill(mask.logical_not(), -std::numeric_limits<double>::infinity())
                 : scores + mask;
  return at::matmul(drop(at::softmax(scores, -1)), v);
}

/// Attention of rows.
at::Tensor attend(const std::vector<c10::IValue>& x, const row_context& rows, std::uint32_t layer) {
  if (!x[3].isNone())
    throw exported_model_error("a mask is between positions, which rows do not have beside each other");
  return rows.caches->attend(layer, x[0].toTensor(), x[1].toTensor(), x[2].toTensor(), scale_of(x));
}

} // namespace

bound_graph::bound_graph(const exported_graph& graph, std::size_t extras, std::size_t parameters, std::size_t buffers,
                         std::size_t constants, at::Device place) :
    graph_(graph),
    place_(place), first_parameter_(static_cast<std::uint32_t>(first_extra + extras)),
    first_buffer_(static_cast<std::uint32_t>(first_parameter_ + parameters)),
    first_constant_(static_cast<std::uint32_t>(first_buffer_ + buffers)),
    first_node_(static_cast<std::uint32_t>(first_constant_ + constants)), output_(place_of(graph.output)) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    try {
      instructions_.push_back(bind(graph.nodes[i]));
    } catch (const c10::Error& e) {
      throw exported_model_error(graph.place_of(i) + ": " + e.what_without_backtrace());
    }
  note_last_uses();
}

std::uint32_t bound_graph::place_of(const value_reference& x) const {
  switch (x.from) {
  case value_reference::origin::input:
    return input_place;
  case value_reference::origin::targets:
    return targets_place;
  case value_reference::origin::positions:
    return positions_place;
  case value_reference::origin::extra:
    return first_extra + x.index;
  case value_reference::origin::parameter:
    return first_parameter_ + x.index;
  case value_reference::origin::buffer:
    return first_buffer_ + x.index;
  case value_reference::origin::constant:
    return first_constant_ + x.index;
  case value_reference::origin::node:
    break;
  }
  return first_node_ + x.index;
}

bound_graph::argument bound_graph::bind(const exported_argument& x, const operator_argument* to) const {
  if (const auto* reference = std::get_if<value_reference>(&x.value))
    return {{}, {place_of(*reference)}, {}, argument::form::value};
  if (const auto* list = std::get_if<std::vector<exported_argument>>(&x.value))
    return bind_list(*list, to);
  return {std::visit(literal{to ? to->kind : argument_kind::whole, place_}, x.value), {}, {}, argument::form::literal};
}

bound_graph::argument bound_graph::bind_list(const std::vector<exported_argument>& x,
                                             const operator_argument* to) const {
  argument result;
  const bool tensors = to && to->kind == argument_kind::tensors;
  for (const auto& element : x) {
    const auto* reference = std::get_if<value_reference>(&element.value);
    const auto* whole = std::get_if<std::int64_t>(&element.value);
    result.places.push_back(reference ? place_of(*reference) : no_place);
    result.wholes.push_back(whole ? *whole : 0);
  }
  result.is = tensors ? argument::form::tensors : argument::form::wholes;
  if (!tensors && std::ranges::all_of(result.places, [](auto place) { return place == no_place; }))
    return {c10::IValue(result.wholes), {}, {}, argument::form::literal};
  return result;
}

bound_graph::instruction bound_graph::bind(const exported_node& x) const {
  instruction result;
  result.without_gradient = x.without_gradient;
  result.own = x.own;
  for (std::size_t i = 0; i < x.arguments.size(); ++i)
    result.arguments.push_back(bind(x.arguments[i], x.schema ? &x.schema->arguments[i] : nullptr));
  if (!x.schema) {
    result.what = action::own;
    return result;
  }
  const auto& name = x.schema->name;
  const auto dot = name.find('.');
  result.handle = c10::Dispatcher::singleton().findSchemaOrThrow(("aten::" + name.substr(0, dot)).c_str(),
                                                                 dot == name.npos ? "" : name.substr(dot + 1).c_str());
  if (result.handle->schema().arguments().size() != x.schema->arguments.size())
    throw exported_model_error(name + " has other arguments in this LibTorch than on the list of operators");
  result.check = operand_check_of(x.schema->name);
  if (name == "dropout") {
    result.what = action::dropout;
  } else if (name == "scaled_dot_product_attention") {
    result.what = action::attention;
  } else if (name == "batch_norm") {
    const auto* mean = std::get_if<value_reference>(&x.arguments[3].value);
    if (mean && std::get<bool>(x.arguments[5].value)) {
      result.what = action::batch_norm;
      result.mean = mean->index;
      result.variance = std::get<value_reference>(x.arguments[4].value).index;
    }
  }
  return result;
}

void bound_graph::note_last_uses() {
  std::vector<bool> seen(first_node_ + instructions_.size());
  seen[output_] = true;
  for (std::size_t i = instructions_.size(); i-- > 0;) {
    auto& x = instructions_[i];
    const auto note = [&](std::uint32_t place) {
      if (place == no_place || place < first_node_ || seen[place])
        return;
      seen[place] = true;
      x.last_uses.push_back(place);
    };
    for (const auto& argument : x.arguments)
      for (auto place : argument.places)
        note(place);
    note(static_cast<std::uint32_t>(first_node_ + i)); // what nothing uses
  }
}

c10::IValue bound_graph::value_of(const argument& x, const frame& values) {
  switch (x.is) {
  case argument::form::value:
    return values[x.places.front()];
  case argument::form::wholes: {
    auto all = x.wholes;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (x.places[i] != no_place)
        all[i] = values[x.places[i]].toInt();
    return c10::IValue(std::move(all));
  }
  case argument::form::tensors: {
    c10::List<at::Tensor> all;
    all.reserve(x.places.size());
    for (auto place : x.places)
      all.push_back(values[place].toTensor());
    return c10::IValue(std::move(all));
  }
  case argument::form::literal:
    break;
  }
  return x.literal;
}

c10::IValue bound_graph::compute(own_operator what, const c10::IValue& first, const c10::IValue& second) {
  const auto number = second.toInt();
  if (what == own_operator::item) {
    if (first.isTuple())
      return first.toTupleRef().elements().at(static_cast<std::size_t>(number));
    return first.toTensorVector().at(static_cast<std::size_t>(number));
  }
  if (what == own_operator::size)
    return first.toTensor().size(number);
  const auto left = first.toInt();
  std::int64_t result = 0;
  bool overflows = false;
  switch (what) {
  case own_operator::add:
    overflows = __builtin_add_overflow(left, number, &result);
    break;
  case own_operator::subtract:
    overflows = __builtin_sub_overflow(left, number, &result);
    break;
  case own_operator::multiply:
    overflows = __builtin_mul_overflow(left, number, &result);
    break;
  default:
    if (number == 0)
      throw exported_model_error("divides by 0");
    overflows = left == std::numeric_limits<std::int64_t>::min() && number == -1;
    if (!overflows) // rounds down, as Python does
      result = left / number - (left % number != 0 && (left < 0) != (number < 0) ? 1 : 0);
  }
  if (overflows)
    throw exported_model_error("its result is no whole number of 64 bits");
  return result;
}

// With momentum 1 the "running" statistics become those of this micro-batch; they have memory of their own because
// autograd keeps them.
c10::IValue bound_graph::normalise(const instruction& x, const std::vector<c10::IValue>& stack,
                                   const graph_values& given, const forward_pass& pass) {
  const auto input = stack[0].toTensor();
  const auto optional = [](const c10::IValue& v) { return v.isNone() ? at::Tensor() : v.toTensor(); };
  const auto channels = input.size(1);
  auto mean = at::zeros({channels}, input.options().requires_grad(false)), variance = at::zeros_like(mean);
  auto result = at::batch_norm(input, optional(stack[1]), optional(stack[2]), mean, variance, true, 1,
                               stack[7].toDouble(), false);
  if (pass.statistics.defined()) {
    pass.statistics.narrow(0, given.buffer_offsets[x.mean], channels).copy_(mean);
    pass.statistics.narrow(0, given.buffer_offsets[x.variance], channels).copy_(variance);
  }
  return result;
}

c10::IValue bound_graph::execute(const instruction& x, const frame& values, const graph_values& given,
                                 const forward_pass& pass, dropout& drop, std::vector<c10::IValue>& stack) const {
  stack.clear();
  for (const auto& argument : x.arguments)
    stack.push_back(value_of(argument, values));
  if (x.check)
    if (const auto problem = x.check(stack); !problem.empty())
      throw exported_model_error(problem);
  switch (x.what) {
  case action::own:
    return compute(x.own, stack[0], stack[1]);
  case action::dropout:
    if (stack[2].toBool())
      return drop.with(stack[1].toDouble())(stack[0].toTensor());
    break;
  case action::attention:
    if (pass.rows)
      return attend(stack, *pass.rows, given.layer);
    if (drop.with(stack[4].toDouble()).active())
      return mix(stack, drop);
    break;
  case action::batch_norm:
    return normalise(x, stack, given, pass);
  case action::call:
    break;
  }
  x.handle->callBoxed(&stack);
  return stack.size() == 1 ? std::move(stack.front()) : c10::ivalue::Tuple::create(std::move(stack));
}

at::Tensor bound_graph::run(const graph_values& given, const forward_pass& pass) const {
  frame values(first_node_ + instructions_.size());
  values[input_place] = given.input;
  if (pass.targets.defined())
    values[targets_place] = pass.targets;
  if (pass.rows)
    values[positions_place] = pass.rows->positions;
  for (std::size_t i = 0; i < pass.extras.size(); ++i)
    values[first_extra + i] = pass.extras[i];
  for (std::size_t i = 0; i < given.parameters.size(); ++i)
    values[first_parameter_ + i] = given.parameters[i];
  if (pass.buffers.defined())
    for (std::size_t i = 0; i < given.buffers.size(); ++i)
      values[first_buffer_ + i] =
          pass.buffers.narrow(0, given.buffer_offsets[i], static_cast<std::int64_t>(given.buffers[i].values()))
              .view(given.buffers[i].shape);
  for (std::size_t i = 0; i < given.constants.size(); ++i)
    values[first_constant_ + i] = given.constants[i];
  dropout drop{0, pass, given.layer};
  std::vector<c10::IValue> stack;
  for (std::size_t i = 0; i < instructions_.size(); ++i) {
    const auto& x = instructions_[i];
    try {
      c10::AutoGradMode gradients(c10::GradMode::is_enabled() && !x.without_gradient);
      values[first_node_ + i] = execute(x, values, given, pass, drop, stack);
    } catch (const c10::OutOfMemoryError&) { // says nothing of the graph
      throw;
    } catch (const c10::Error& e) {
      throw exported_model_error(graph_.place_of(i) + ": " + e.what_without_backtrace());
    } catch (const std::out_of_range&) {
      throw exported_model_error(graph_.place_of(i) + ": the list has no such element");
    } catch (const exported_model_error& e) {
      throw exported_model_error(graph_.place_of(i) + ": " + e.what());
    }
    for (auto place : x.last_uses)
      values[place] = {};
  }
  return values[output_].toTensor();
}

} // namespace parcae
