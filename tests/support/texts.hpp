#pragma once

#include <cstdlib>
#include <string>

namespace parcae {

/// A folder with texts to train on: Debian's licenses. What tests/gpu/pack made has its own, as others have none.
inline std::string texts() {
  const auto* x = std::getenv("PARCAE_TEXTS");
  return x ? x : "/usr/share/common-licenses";
}

} // namespace parcae
