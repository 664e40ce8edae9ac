#pragma once

// What `watch` says of a status besides its figures: events with their reasons, and all of it as plain lines. Pure: the
// time is an argument.

#include "protocols/client/client.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace parcae {

/// A point of time, on both clocks.
struct moment {
  std::int64_t us = 0;      ///< monotonic clock of the manager's machine
  std::int64_t wall_us = 0; ///< local time; only the time of the day is shown
};

/// "12:03:59": when something happened, seen from `now`.
std::string time_of_day(const moment& now, std::int64_t at_us);

struct watch_event {
  enum class source : std::uint8_t { news, change, decision, journal };

  source from = source::news;
  std::uint64_t number = 0; ///< within the source
  std::int64_t at_us = 0;
  std::string level; ///< information, warning, error
  std::string text;  ///< one line
};

/// Oldest first: joins, notices and losses of instances; changes of the job with their cause, kind and stall; decisions
/// that led to a change, with their reasons; warnings and errors of the job. `job` may be null.
std::vector<watch_event> events_of(const status_reply& x, const job_status* job);

/// The job with that number, or null.
const job_status* find_job(const status_reply& x, std::uint64_t id);

/// The job to watch if none was named: the one that runs, else the next to run, else the last one; 0: there is none.
std::uint64_t job_to_watch(const status_reply& x);

/// What to ask next, knowing this answer: enough for a screen, whatever its size.
status_request next_request(const status_reply& x, std::uint64_t job);

/// `parcae logs`: all events of the job asked for, what happened to instances, and the last lines of nodes that failed
/// in it, with the time of the day.
std::string log_of(const status_reply& x, const moment& now);

/// What became of a job that has ended: what it took, where it is on disk, what to do next. Several lines.
std::string ending_of(const job_status& x);

/// How the job is doing, in one line without an end.
std::string summary_of(const job_status& x);

/// `watch` where nothing can be drawn: one line per event, and one per second with new steps.
class plain_watch {
public:
  /// The lines that are new, in order. `job` 0: only the instances, and that a job is waited for.
  std::vector<std::string> lines_of(const status_reply& x, std::uint64_t job, const moment& now);

  /// No answer comes any more, and why. What the next one tells may be another manager's: with other numbers, of
  /// another clock.
  std::string away(const moment& now, const std::string& why);

private:
  std::vector<watch_event> new_events(const status_reply& x, const job_status* job, const moment& now);

  bool began_ = false;
  bool waits_ = false;                                ///< it was said that there is no job
  std::map<watch_event::source, std::uint64_t> next_; ///< number of the first event not shown
  std::string shown_;                                 ///< last line on the job
  std::int64_t shown_at_us_ = 0;
  std::int64_t heard_us_ = 0; ///< of the newest answer; local time
  std::optional<std::int64_t> away_since_us_;
};

} // namespace parcae
