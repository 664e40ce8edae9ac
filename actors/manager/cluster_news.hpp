#pragma once

// What happened to the instances, and the last words of those that failed: the newest, for `status`. Plain class of the
// registry: the time is an argument.

#include "actors/manager/local_messages.hpp"
#include "protocols/client/client.hpp"

#include <cstdint>
#include <deque>
#include <string>

namespace parcae {

class cluster_news {
public:
  static constexpr std::size_t most_news = 200;
  static constexpr std::size_t most_failures = 8; ///< one of each instance
  static constexpr std::size_t most_lines = 32;   ///< of a failure: the last
  static constexpr std::size_t most_bytes = 400;  ///< of a line

  /// `job`: that it is of; 0: of none.
  void note(time_point now, severity level, std::string text, job_id job = {});

  /// Takes the place of what this instance reported before. What is beyond the bounds is cut off. Job 0: none ran yet.
  void fail(time_point now, job_id latest, report_request x);

  void add_to(status_reply& to, const status_request& wanted) const;

private:
  std::uint64_t news_count_ = 0;
  std::deque<event_status> news_;
  std::uint64_t failure_count_ = 0;
  std::deque<failure_status> failures_;
};

} // namespace parcae
