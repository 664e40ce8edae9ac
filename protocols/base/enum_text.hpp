#pragma once

// The names of enumerators as text, of enums that BOOST_DESCRIBE_ENUM describes. For sources: headers need only declare
// what uses it.

#include <boost/describe/enum.hpp>
#include <boost/describe/enumerators.hpp>
#include <boost/mp11/algorithm.hpp>

#include <optional>
#include <string_view>

namespace parcae {

/// Without the underscore at the end of what would be a word of C++. "unknown": it is none of them.
template <class Enum>
constexpr std::string_view enum_name(Enum x) {
  std::string_view result = "unknown";
  boost::mp11::mp_for_each<boost::describe::describe_enumerators<Enum>>([&](auto one) {
    if (one.value == x)
      result = one.name;
  });
  return result.ends_with('_') ? result.substr(0, result.size() - 1) : result;
}

/// The enumerator of that name; none: there is none.
template <class Enum>
constexpr std::optional<Enum> parse_enum(std::string_view text) {
  std::optional<Enum> result;
  boost::mp11::mp_for_each<boost::describe::describe_enumerators<Enum>>([&](auto one) {
    if (enum_name(one.value) == text)
      result = one.value;
  });
  return result;
}

} // namespace parcae
