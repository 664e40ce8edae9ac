#pragma once

// Handlers for each alternative of a variant. CAF 0.17 needs one function object per message type and cannot send a
// std::variant, so the alternatives are expanded here, once.

#include <type_traits>
#include <utility>
#include <variant>

namespace parcae {

/// A behaviour that calls `each(x)` for every alternative of the variant, and has the other handlers besides.
template <class Behavior, class... Ts, class Each, class... Others>
Behavior behavior_of_each(std::type_identity<std::variant<Ts...>>, Each each, Others... others) {
  return {[each](const Ts& x) { each(x); }..., std::move(others)...};
}

/// The same for messages (first, alternative).
template <class Behavior, class First, class... Ts, class Each, class... Others>
Behavior behavior_of_each_from(std::type_identity<First>, std::type_identity<std::variant<Ts...>>, Each each,
                               Others... others) {
  return {[each](const First& from, const Ts& x) { each(from, x); }..., std::move(others)...};
}

} // namespace parcae
