#pragma once

// What is asked to be done, out of the bodies of requests. Pure.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace parcae {

struct submission {
  std::string text; ///< a job file in TOML; or JSON: {"SECTION": {"KEY": VALUE}}
  bool json = false;
  std::string name = "job";           ///< stands for the file
  std::vector<std::string> changes{}; ///< SECTION.KEY=VALUE
  std::int32_t priority = 0;
};

/// A job file in JSON as TOML. Throws web_error.
std::string toml_of(std::string_view json);

struct preemption {
  std::vector<std::string> names;
  std::uint32_t any = 0;
  std::uint64_t seed = 0;
  std::chrono::milliseconds notice{0};
};

/// {"names": [...]} or {"any": N, "seed": N}, and "notice": "30s". Throws web_error.
preemption parse_preemption(std::string_view json);

} // namespace parcae
