#pragma once

#include <cstddef>

namespace parcae {

/// Stands for a value of any type where an aggregate is initialised.
struct anything {
  template <class T>
  operator T() const;
};

/// Number of fields of an aggregate, bases included.
template <class T, class... Found>
constexpr std::size_t field_count() {
  if constexpr (requires { T{Found{}..., anything{}}; })
    return field_count<T, Found..., anything>();
  else
    return sizeof...(Found);
}

} // namespace parcae
