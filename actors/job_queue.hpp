#pragma once

// The manager's jobs, first in, first out: one runs, with all slots; the next starts when it ended. Plain code.

#include "protocols/ids.hpp"
#include "protocols/job_specification.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace parcae {

enum class job_state : std::uint8_t { queued, running, done, failed, cancelled };

std::string to_string(job_state x);

struct job_entry {
  job_specification specification;
  job_state state = job_state::queued;
  bool cancel_asked = false;
  std::string why; ///< why it failed
};

class job_queue {
public:
  /// As many wait or run as are kept.
  bool full() const;

  /// Numbers from 1. Not while it is full.
  job_id submit(job_specification x);

  /// Marks the oldest queued job running and returns it, unless one runs already.
  std::optional<job_id> start_next();

  /// A queued job becomes cancelled; a running one is only marked (its end decides). False if it had ended.
  bool cancel(job_id x);

  /// The running job ended.
  void end(job_id x, bool good, std::string why);

  const std::map<job_id, job_entry>& jobs() const { return jobs_; }
  std::optional<job_id> running() const { return running_; }

private:
  std::map<job_id, job_entry> jobs_; ///< at most 100, the oldest that ended go first
  std::optional<job_id> running_;
  std::uint64_t last_ = 0;
};

} // namespace parcae
