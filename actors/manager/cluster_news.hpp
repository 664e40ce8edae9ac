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
  static constexpr std::size_t max_news = 200;
  static constexpr std::size_t max_failures = 8; ///< one of each instance, and one that is not known to be its own
  static constexpr std::size_t max_lines = 32;   ///< of a failure: the last
  static constexpr std::size_t max_bytes = 400;  ///< of a line

  /// `job`: that it is of; 0: of none.
  void note(time_point now, severity level, std::string text, job_id job = {});

  /// Takes the place of what this instance reported before. What is beyond the bounds is cut off. Job 0: none ran yet.
  /// `is_known`: it is by or about an instance that is, or just was, a member; what is not takes the place of nothing
  /// that is.
  void fail(time_point now, job_id latest, report_request x, bool is_known = true);

  void add_to(status_reply& to, const status_request& wanted) const;

private:
  struct failure {
    failure_status what;
    bool is_known = true;
  };

  std::uint64_t news_count_ = 0;
  std::deque<event_status> news_;
  std::uint64_t failure_count_ = 0;
  std::deque<failure> failures_;
};

} // namespace parcae
