#include "gpu/executor/executor.hpp"

#include <spdlog/spdlog.h>

namespace parcae {

void refuse_command(bool keeper) {
  spdlog::error("a command for {} came to a {}", keeper ? "workers" : "keepers", keeper ? "keeper" : "worker");
}

} // namespace parcae
