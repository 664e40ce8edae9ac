#pragma once

// The log: one line per event on stderr, for people or as JSON.

#include <memory>
#include <string>

namespace spdlog::sinks {
class sink;
}

namespace parcae {

enum class log_format {
  text, ///< time, level, who, what it is about, text
  json, ///< an object with at (UTC), level, who, text and, once there is a job, job, generation, step
};

/// Throws std::invalid_argument with one line.
log_format parse_log_format(const std::string& x);

/// Call once, first thing in main. `who`: the instance's name, or "manager". `also`: gets the same lines, as text.
void log_to_stderr(const std::string& who, log_format format = log_format::text,
                   std::shared_ptr<spdlog::sinks::sink> also = {});

} // namespace parcae
