#include "protocols/model/operators.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

extern const char* const parcae_operators_text; // made of operators.txt

namespace parcae {

namespace {

using enum argument_kind;

/// Splits at the commas that are not in brackets.
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> result;
  int depth = 0;
  std::size_t start = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      if (auto part = text.substr(start, i - start); !part.empty())
        result.push_back(part.starts_with(' ') ? part.substr(1) : part);
      start = i + 1;
    } else if (text[i] == '(' || text[i] == '[') {
      ++depth;
    } else if (text[i] == ')' || text[i] == ']') {
      --depth;
    }
  }
  return result;
}

argument_kind kind_of(std::string_view type, bool list) {
  static const std::map<std::string_view, argument_kind> single{{"Tensor", tensor},
                                                                {"int", whole},
                                                                {"SymInt", whole},
                                                                {"float", real},
                                                                {"Scalar", number},
                                                                {"bool", flag},
                                                                {"str", text},
                                                                {"ScalarType", element_type},
                                                                {"MemoryFormat", memory_format},
                                                                {"Layout", nothing},
                                                                {"Device", device}};
  const auto found = single.find(type);
  if (found == single.end() || (list && found->second != tensor && found->second != whole))
    throw std::logic_error("an operator's argument is of type " + std::string(type));
  return !list ? found->second : found->second == tensor ? tensors : wholes;
}

/// "Tensor(a!) self", "int[1]? dim=None".
operator_argument argument_of(std::string_view text) {
  operator_argument result;
  const auto base = text.substr(0, text.find_first_of("([? "));
  auto rest = text.substr(base.size());
  if (rest.starts_with('(')) {
    const auto end = rest.find(')');
    result.aliased = true;
    result.written = rest.substr(0, end).find('!') != rest.npos;
    rest.remove_prefix(end + 1);
  }
  const bool list = rest.starts_with('[');
  if (list)
    rest.remove_prefix(rest.find(']') + 1);
  result.optional = rest.starts_with('?');
  rest.remove_prefix(result.optional ? 2 : 1);
  result.name = rest.substr(0, rest.find('='));
  result.kind = kind_of(base, list);
  return result;
}

operator_schema schema_of(std::string_view line) {
  operator_schema result;
  const auto open = line.find('('), end = line.rfind(") -> ");
  result.name = line.substr(0, open);
  result.text = line;
  for (auto part : parts_of(line.substr(open + 1, end - open - 1)))
    if (part != "*")
      result.arguments.push_back(argument_of(part));
  const auto returned = line.substr(end + 5);
  result.makes_list = returned.starts_with('(') || returned.ends_with("[]");
  // What the schemas do not say: these return their argument if there is nothing to do.
  if (result.name == "dropout" || result.name == "type_as")
    result.arguments.front().aliased = true;
  return result;
}

std::vector<operator_schema> read_list() {
  std::vector<operator_schema> result;
  for (std::string_view text = parcae_operators_text; !text.empty();) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.empty() && line.front() != '#')
      result.push_back(schema_of(line));
  }
  std::ranges::sort(result, {}, &operator_schema::name);
  return result;
}

const std::vector<operator_schema>& all() {
  static const auto list = read_list();
  return list;
}

} // namespace

const operator_schema* find_operator(std::string_view name) {
  const auto found = std::ranges::lower_bound(all(), name, {}, &operator_schema::name);
  return found != all().end() && found->name == name ? &*found : nullptr;
}

std::span<const operator_schema> operator_list() {
  return all();
}

} // namespace parcae
