#pragma once

// The manager's jobs: one runs, with all slots; the next starts when it ended. By priority, then first in, first out; a
// job that cannot run is passed over. Plain code.

#include "protocols/client/journal.hpp"
#include "protocols/values/ids.hpp"
#include "protocols/values/job_specification.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace parcae {

enum class job_state : std::uint8_t { queued, running, done, failed, cancelled };

std::string to_string(job_state x);

constexpr bool is_over(job_state x) {
  return x != job_state::queued && x != job_state::running;
}

struct job_entry {
  job_specification specification;
  job_state state = job_state::queued;
  bool cancel_asked = false;
  std::string why; ///< why it failed; of one that waits, why it could not run when it was last looked at
  std::int32_t priority = 0;
  std::string owner;             ///< as requester::name; empty: nobody's
  std::int64_t submitted_ms = 0; ///< by the wall, since 1970; 0: not known
  bool gives_way = false;        ///< it is ended only to wait again
  bool gave_way = false;         ///< it did so before: others come first, and it does not do so twice
};

/// As the journal has it.
job_record record_of(const job_entry& x);

/// Throws std::runtime_error if there is no such state.
job_entry entry_from(const job_record& x);

class job_queue {
public:
  /// Says why a job cannot run now; empty: it can.
  using obstacle = std::function<std::string(const job_specification&)>;

  /// As many wait or run as are kept.
  bool full() const;

  /// Numbers from 1. Not while it is full.
  job_id submit(job_specification x, std::int32_t priority = 0, std::string owner = {}, std::int64_t submitted_ms = 0);

  /// As it was in a manager before.
  void restore(job_id id, job_entry x);

  /// Marks the first that can run as running and returns it, unless one runs already.
  std::optional<job_id> start_next(const obstacle& why_not);

  /// Looks anew at those that wait, and returns the one that would start if none ran.
  std::optional<job_id> first_that_can(const obstacle& why_not);

  /// The running job has not begun and waits, while another could run: its end will put it back into the queue, behind
  /// all that can run. False if it gave way before.
  bool give_way();

  /// A queued job becomes cancelled; a running one is only marked (its end decides). False if it had ended.
  bool cancel(job_id x);

  /// The running job ended.
  void end(job_id x, bool good, std::string why);

  /// Those that wait, in the order in which they start if all can run. With `like`: those before a job of that priority
  /// that is submitted now.
  std::vector<job_id> waiting(std::optional<std::int32_t> like = {}) const;

  const std::map<job_id, job_entry>& jobs() const { return jobs_; }
  std::optional<job_id> running() const { return running_; }

private:
  std::map<job_id, job_entry> jobs_; ///< at most 100, the oldest that ended go first
  std::optional<job_id> running_;
  std::uint64_t last_ = 0;
};

} // namespace parcae
