// model.json's graphs as structs.

#include "protocols/model/exported_parts.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace parcae {

namespace json = boost::json;

namespace {

constexpr std::size_t max_nodes = 100'000;
constexpr std::size_t max_elements = 10'000;                 // of a list
constexpr std::uint64_t max_values = std::uint64_t{1} << 40; // of a tensor
constexpr std::size_t max_name = 200;

/// "%x", "%y", "%t", "%s0", "%p3", "%b0", "%c1", "%17".
value_reference reference_of(std::string_view text, const std::string& where) {
  using enum value_reference::origin;
  static constexpr std::array letters{std::pair('s', extra), std::pair('p', parameter), std::pair('b', buffer),
                                      std::pair('c', constant)};
  const auto whole = text;
  text.remove_prefix(1);
  if (text == "x")
    return {input, 0};
  if (text == "y")
    return {targets, 0};
  if (text == "t")
    return {positions, 0};
  auto from = node;
  for (const auto& [letter, what] : letters)
    if (text.starts_with(letter)) {
      from = what;
      text.remove_prefix(1);
      break;
    }
  std::uint32_t index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc{} || end != text.data() + text.size())
    fail(where, "\"" + shown(whole) + "\" refers to nothing");
  return {from, index};
}

/// Real numbers are strings, so that they have all their bits.
exported_argument real_of(std::string_view text, const std::string& where) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    fail(where, "\"" + shown(text) + "\" is no number");
  return {value};
}

bool takes_text(argument_kind x) {
  return x == argument_kind::text || x == argument_kind::element_type || x == argument_kind::memory_format ||
         x == argument_kind::device || x == argument_kind::nothing;
}

exported_argument argument_of(const json::value& x, argument_kind kind, const std::string& where) {
  if (x.is_null())
    return {};
  if (const auto* flag = x.if_bool())
    return {*flag};
  if (const auto* whole = x.if_int64())
    return {*whole};
  if (const auto* text = x.if_string()) {
    if (text->starts_with('%'))
      return {reference_of(*text, where)};
    if (takes_text(kind))
      return {std::string(*text)};
    return real_of(*text, where);
  }
  const auto* list = x.if_array();
  if (!list || list->size() > max_elements)
    fail(where, "has an argument that is none");
  std::vector<exported_argument> elements;
  for (const auto& element : *list) {
    if (element.is_array())
      fail(where, "has a list of lists");
    elements.push_back(argument_of(element, kind, where));
  }
  return {std::move(elements)};
}

own_operator own_operator_of(std::string_view name) {
  using enum own_operator;
  using entry = std::pair<std::string_view, own_operator>;
  static constexpr std::array names{entry("item", item),        entry("size", size),
                                    entry("int.add", add),      entry("int.sub", subtract),
                                    entry("int.mul", multiply), entry("int.floordiv", divide)};
  const auto found = std::ranges::find(names, name, &entry::first);
  return found == names.end() ? none : found->second;
}

exported_node node_of(const json::value& x, const std::string& where) {
  exported_node result;
  const auto name = text_in(x, "op", where);
  result.at = shown(text_in(x, "at", where));
  result.own = own_operator_of(name);
  result.schema = find_operator(name);
  const auto place = where + ", " + shown(name) + " at " + result.at;
  if (!result.schema && result.own == own_operator::none)
    fail(place, "the operator is not on the list of those known to give the same bits every time");
  if (const auto* flag = x.as_object().if_contains("no_grad"))
    result.without_gradient = flag->is_bool() && flag->get_bool();
  const auto& arguments = array_in(x, "args", place);
  const auto wanted = result.schema ? result.schema->arguments.size() : 2;
  if (arguments.size() != wanted)
    fail(place, "has " + std::to_string(arguments.size()) + " arguments, the operator " + std::to_string(wanted));
  for (std::size_t i = 0; i < wanted; ++i)
    result.arguments.push_back(
        argument_of(arguments[i], result.schema ? result.schema->arguments[i].kind : argument_kind::whole, place));
  return result;
}

} // namespace

std::string shown(std::string_view text) {
  std::string result;
  for (char c : text.substr(0, 120))
    result += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return result;
}

const json::value& member(const json::value& of, std::string_view key, const std::string& where) {
  const auto* all = of.if_object();
  const auto* found = all ? all->if_contains(key) : nullptr;
  if (!found)
    fail(where, "has no \"" + std::string(key) + "\"");
  return *found;
}

const json::object& object_in(const json::value& of, std::string_view key, const std::string& where) {
  const auto* found = member(of, key, where).if_object();
  if (!found)
    fail(where, "\"" + std::string(key) + "\" is no object");
  return *found;
}

const json::array& array_in(const json::value& of, std::string_view key, const std::string& where) {
  const auto* found = member(of, key, where).if_array();
  if (!found)
    fail(where, "\"" + std::string(key) + "\" is no list");
  return *found;
}

std::string text_in(const json::value& of, std::string_view key, const std::string& where) {
  const auto* found = member(of, key, where).if_string();
  if (!found)
    fail(where, "\"" + std::string(key) + "\" is no string");
  return std::string(*found);
}

std::int64_t whole_in(const json::value& of, std::string_view key, const std::string& where) {
  const auto* found = member(of, key, where).if_int64();
  if (!found || *found < 0)
    fail(where, "\"" + std::string(key) + "\" is no whole number");
  return *found;
}

std::string checked_name(const json::value& x, const std::string& where) {
  if (!x.is_string() || x.get_string().empty() || x.get_string().size() > max_name ||
      shown(x.get_string().subview(0, 100)) != x.get_string().subview(0, 100))
    fail(where, "a name is not 1 to " + std::to_string(max_name) + " printable characters");
  return std::string(x.get_string());
}

std::vector<std::int64_t> shape_of(const json::value& x, const std::string& where) {
  const auto* extents = x.if_array();
  if (!extents || extents->size() > 16)
    fail(where, "a shape is no list of whole numbers");
  std::vector<std::int64_t> result;
  std::uint64_t values = 1;
  for (const auto& e : *extents) {
    const auto* extent = e.if_int64();
    if (!extent || *extent < 1 || __builtin_mul_overflow(values, static_cast<std::uint64_t>(*extent), &values) ||
        values > max_values)
      fail(where, "a shape has an extent below 1, or is too large to be true");
    result.push_back(*extent);
  }
  return result;
}

double quantity_in(const json::value& of, std::string_view key, const std::string& where) {
  const auto& x = member(of, key, where);
  const double result = x.is_number() ? x.to_number<double>() : -1;
  if (!(result >= 0 && result < 1e30))
    fail(where, "\"" + std::string(key) + "\" is no quantity");
  return result;
}

exported_graph graph_of(const json::value& x, const std::string& where) {
  exported_graph result;
  const auto& nodes = array_in(x, "nodes", where);
  if (nodes.empty() || nodes.size() > max_nodes)
    fail(where, "has " + std::to_string(nodes.size()) + " nodes");
  for (const auto& node : nodes)
    result.nodes.push_back(node_of(node, where + ", node " + std::to_string(result.nodes.size())));
  const auto& output = member(x, "output", where);
  if (!output.is_string() || !output.get_string().starts_with('%'))
    fail(where, "returns something other than one tensor; exactly one lies between layers");
  result.output = reference_of(output.get_string(), where);
  return result;
}

} // namespace parcae
