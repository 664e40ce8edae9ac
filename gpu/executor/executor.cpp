#include "gpu/executor/executor.hpp"

#include <spdlog/spdlog.h>

namespace parcae {

void refuse_command(const char* role) {
  spdlog::error("a command of another role came to a {}", role);
}

} // namespace parcae
