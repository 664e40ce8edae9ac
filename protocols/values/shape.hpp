#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace parcae {

/// A parallel configuration: D pipelines of P stages. Width 0: none, training waits.
struct shape {
  std::uint32_t width = 0;
  std::uint32_t depth = 0;

  std::uint32_t slots() const { return width * depth; }

  friend auto operator<=>(const shape&, const shape&) = default;
};

/// "D×P", wherever people read it.
inline std::string to_string(const shape& x) {
  return x.width == 0 ? "waiting" : std::to_string(x.width) + "×" + std::to_string(x.depth);
}

} // namespace parcae
