#include "runtime/logging.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace parcae {

void log_to_stderr(const std::string& who) {
  auto logger = spdlog::stderr_color_mt(who);
  logger->set_pattern("%H:%M:%S.%e %^%l%$ %n: %v");
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

} // namespace parcae
