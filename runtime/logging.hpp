#pragma once

#include <string>

namespace parcae {

/// Sends the log to stderr, each line with time, level and who writes. Call once, first thing in main.
void log_to_stderr(const std::string& who);

} // namespace parcae
