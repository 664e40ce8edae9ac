#pragma once

// What the commands do, for requests: each a question to the manager, or a look at disks, and so on a thread that may
// wait. Failures are web_error.

#include "runtime/cli/commands.hpp"
#include "runtime/web/message.hpp"

#include <boost/json/value.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace parcae {

struct submission {
  std::string text; ///< a job file in TOML; or JSON: {"SECTION": {"KEY": VALUE}}
  bool json = false;
  std::string name = "job";         ///< stands for the file
  std::vector<std::string> changes; ///< SECTION.KEY=VALUE
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

/// Any thread.
class web_actions {
public:
  virtual ~web_actions() = default;
  virtual boost::json::value submit(const submission& x) = 0;
  virtual boost::json::value check(const submission& x) = 0;
  virtual boost::json::value cancel(std::uint64_t job) = 0;
  virtual boost::json::value checkpoint(std::uint64_t job) = 0;
  virtual boost::json::value preempt(const preemption& x) = 0;
  virtual std::string status(std::uint64_t job) = 0; ///< of one job with its details: JSON
  virtual std::string losses(std::uint64_t job) = 0; ///< likewise
};

/// Of a real manager.
std::unique_ptr<web_actions> make_web_actions(const manager_option& manager);

} // namespace parcae
