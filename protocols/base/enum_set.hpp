#pragma once

// A set of enumerators, of an enumeration with at most 32.

#include <cstdint>
#include <initializer_list>

namespace parcae {

template <class Enum>
struct enum_set {
  std::uint32_t bits = 0;

  constexpr enum_set(Enum x) : bits(1u << static_cast<unsigned>(x)) {}
  constexpr enum_set(std::initializer_list<Enum> all) {
    for (auto x : all)
      bits |= enum_set(x).bits;
  }
  constexpr bool contains(Enum x) const { return (bits & enum_set(x).bits) != 0; }
};

} // namespace parcae
