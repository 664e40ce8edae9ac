#pragma once

// What is shown: the newest status, and all that is made of it. On the server's thread.

#include "runtime/web/event_log.hpp"
#include "runtime/web/history.hpp"
#include "runtime/web/metrics.hpp"

#include <boost/json/object.hpp>

#include <functional>
#include <list>
#include <memory>
#include <set>
#include <string>

namespace parcae {

class web_board {
public:
  using pointer = std::shared_ptr<const status_reply>;
  using time_point = std::chrono::steady_clock::time_point;

  /// `life`: random, of this process.
  explicit web_board(const std::string& life);

  void heard(pointer x, time_point now);
  void away(const std::string& why, std::int64_t wall_us);
  /// What is to be done about a certificate that this process shows, to the manager or browsers; empty: nothing.
  void warn(std::string certificate) { certificate_ = std::move(certificate); }

  const pointer& status() const { return status_; } ///< null: none came yet
  bool ready(time_point now) const;                 ///< the manager answered within 5 s
  const std::string& why_away() const { return why_away_; }

  /// `status --json`, and how old it is; made once for each status. Null: none came yet.
  std::shared_ptr<const std::string> json();
  /// {"status": …, "up": …, "why": …, "since_wall_us": …}: for the page.
  std::string picture(time_point now);
  /// {"up": …, "why": …, "since_wall_us": …, "slots": …, "job": …}: for a list of clusters; the job that the status
  /// tells of in detail, null: none.
  boost::json::object summary() const;
  std::string history() const { return history_.json(); }
  std::string metrics() const { return metrics_.text(status_.get(), why_away_.empty(), certificate_); }
  const event_log& events() const { return events_; }

  /// Is called with each event, until the handle goes.
  using listener = std::function<void(const web_event&)>;
  std::shared_ptr<const listener> listen(listener x);

private:
  boost::json::object connection() const;
  void tell(const web_event& x);

  pointer status_;
  time_point heard_at_{};
  std::string why_away_ = "no manager has answered yet";
  std::int64_t away_since_us_ = 0;
  std::shared_ptr<const std::string> json_; ///< null: not made yet
  event_log events_;
  web_history history_;
  web_metrics metrics_;
  std::string certificate_;
  std::list<std::weak_ptr<const listener>> listeners_;
};

} // namespace parcae
