#include "runtime/process/state_folder.hpp"

#include <cstdlib>
#include <utility>

namespace parcae {

std::filesystem::path default_state_folder() {
  for (auto [variable, below] : {std::pair("XDG_STATE_HOME", "parcae"), std::pair("HOME", ".local/state/parcae")})
    if (const char* folder = std::getenv(variable); folder && *folder == '/')
      return std::filesystem::path(folder) / below;
  return std::filesystem::absolute("parcae-state");
}

} // namespace parcae
