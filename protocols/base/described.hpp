#pragma once

// Structs that say once what their fields are, by BOOST_DESCRIBE_STRUCT (at most 52 names): whatever is done with every
// field is then written once for all structs. The order of the names is the order in messages between nodes and in
// JSON.

#include "protocols/base/exact.hpp"

#include <boost/describe/class.hpp>
#include <boost/describe/members.hpp>
#include <boost/describe/modifiers.hpp>
#include <boost/mp11/algorithm.hpp>

#include <type_traits>
#include <vector>

namespace parcae {

template <class T>
concept described = boost::describe::has_describe_members<T>::value;

/// Those of a base come first.
template <described T>
using fields_of = boost::describe::describe_members<T, boost::describe::mod_public | boost::describe::mod_inherited>;

/// Calls f(name, field) for each field, in order.
template <class T, class Function>
requires described<std::remove_const_t<T>>
void for_each_field(T& x, Function&& f) {
  boost::mp11::mp_for_each<fields_of<std::remove_const_t<T>>>([&](auto field) { f(field.name, x.*field.pointer); });
}

/// For CAF, found by its argument: all fields in order, numbers with all their bits.
template <class Inspector, described T>
typename Inspector::result_type inspect(Inspector& f, T& x) {
  const auto carried = []<class Field>(Field& field) -> decltype(auto) {
    if constexpr (std::is_same_v<Field, double> || std::is_same_v<Field, std::vector<double>>)
      return exact(field);
    else
      return (field);
  };
  return [&]<template <class...> class List, class... Fields>(List<Fields...>) {
    return f(carried(x.*Fields::pointer)...);
  }(fields_of<T>{});
}

} // namespace parcae
