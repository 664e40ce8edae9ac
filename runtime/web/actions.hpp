#pragma once

// What the commands do, for requests: each a question to the manager, or a look at disks, and so on a thread that may
// wait. Failures are web_error.

#include "runtime/cli/commands.hpp"
#include "runtime/web/message.hpp"
#include "runtime/web/requests.hpp"

#include <boost/json/value.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace parcae {

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
  /// What came of at most `points` of its steps, evenly over all: likewise.
  virtual std::string curve(std::uint64_t job, std::uint64_t points) = 0;
  /// Of its steps from this one on, a block of them: likewise.
  virtual std::string losses(std::uint64_t job, std::uint64_t from) = 0;
  virtual std::string checkpoints() = 0; ///< likewise, of all jobs
  /// A safetensors file of a version that the keepers hold.
  /// `asks`: a checkpoint is asked for, so that it is the newest that keepers hold; else the newest that is on disk.
  virtual std::shared_ptr<const web_file> parameters(std::uint64_t job, bool asks) = 0;
};

/// Of a real manager.
std::unique_ptr<web_actions> make_web_actions(const manager_option& manager);

} // namespace parcae
