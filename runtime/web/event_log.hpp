#pragma once

// What happened, as readers of /api/v1/events are told it: numbered, the newest of it kept. Pure.

#include "protocols/client/client.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace parcae {

/// One event as it is sent.
struct web_event {
  std::uint64_t number = 0;
  std::uint64_t job = 0; ///< 0: of no job, and told to all
  std::shared_ptr<const std::string> text;
};

class event_log {
public:
  static constexpr std::size_t max_bytes = 4 << 20;

  /// `life`: tells this log from one of another process.
  explicit event_log(std::string life) : life_(std::move(life)) {}

  /// What is new or has changed since the status before. Returns it.
  std::vector<web_event> take(const status_reply& x, const status_reply& before);
  /// The manager is away, and why; or is back (empty).
  web_event away(const std::string& why, std::int64_t since_wall_us);

  /// Those behind the one with that id; all that is kept if it is of another log, or gone. Of each job that a status
  /// still has the last step is kept: who follows one that ended is told so.
  std::vector<web_event> after(const std::string& id) const;

private:
  web_event add(const char* kind, std::uint64_t job, const std::string& json);

  const std::string life_;
  std::uint64_t next_ = 1;
  std::size_t bytes_ = 0;
  std::deque<web_event> events_;
  std::map<std::uint64_t, web_event> last_steps_; ///< by job
};

} // namespace parcae
