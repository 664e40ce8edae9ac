#pragma once

// When a metadata server is asked what, and what follows from its answers. Pure: no network, no clock.
//
//   aws_action       asked each second; first aws_token, again before that ends, and after a 401
//   aws_rebalance    each 5 s; first aws_token, likewise
//   gcp_preempted    at once; then the server holds each question until the value changes, or for 10 s
//   gcp_maintenance  likewise
//   azure_events     each second; first azure_name, as events
//                    are told to all machines of a scale set
//
// Topics are asked side by side. After a failure a topic pauses, longer each time, at most 5 s: a notice may be no
// longer than 30 s.

#include "runtime/cloud/cloud.hpp"
#include "runtime/cloud/metadata_answers.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace parcae {

/// An HTTP request.
struct metadata_question {
  std::string method = "GET";
  std::string target; ///< path and query
  std::vector<std::pair<std::string, std::string>> headers{};
  std::string body{};
  std::chrono::milliseconds limit{0}; ///< from dialling to the end of the answer
};

struct poll_pace {
  std::chrono::milliseconds often{1'000};          ///< between questions on what may be near
  std::chrono::milliseconds seldom{5'000};         ///< between those on what is not
  std::chrono::milliseconds answer{2'000};         ///< that an answer may take
  std::chrono::milliseconds first_events{150'000}; ///< Azure's first: it may take two minutes to be set up
  std::chrono::seconds hold{10};                   ///< how long GCP is to wait for a change
  std::chrono::milliseconds first_pause{500};      ///< after a failure; doubles
  std::chrono::milliseconds longest_pause{5'000};
  std::chrono::seconds token{21'600}; ///< AWS: for which a token is asked, the most there is
};

/// A series of questions: the next is asked when the one before is answered, or given up.
struct poll_state {
  using time_point = std::chrono::steady_clock::time_point;

  topic about;
  time_point due;
  std::optional<topic> key_from{};             ///< what has to be asked before
  std::string key{};                           ///< its answer; empty: none yet
  time_point key_until = time_point::max();    ///< then it is asked for again
  std::string etag{};                          ///< GCP: of the value last seen; empty: none
  bool answered = false;                       ///< ever
  unsigned failures = 0;                       ///< since the last answer
  time_point paused_until = time_point::min(); ///< after a failure
  std::string told{};                          ///< identity of the notice last told
  std::string risk{};                          ///< as last told
};

/// The series of questions to ask of a cloud, side by side; none of `none` and `auto_`.
std::vector<poll_state> poll_series(cloud of, poll_state::time_point now);

struct poll {
  topic about;
  poll_state::time_point at; ///< may be over
  metadata_question question;
};

poll next_poll(const poll_state& x, const poll_pace& pace);

/// What is new.
struct poll_news {
  std::optional<cloud_notice> notice; ///< not told before
  std::optional<std::string> risk;    ///< it changed; empty: there is none any more
  std::string problem;                ///< of the series: it fails, and how; one line
  bool recovered = false;             ///< it failed before
};

/// Takes an answer, or what became of the question, into account. `asked`, `now`: when the question was asked and
/// answered; `wall`: the same moment as `now`.
poll_news heard(poll_state& x, const poll_pace& pace, topic about,
                const std::variant<metadata_answer, unusable>& answer, poll_state::time_point asked,
                poll_state::time_point now, wall_time wall);

/// Tells Azure that it need not wait for the end of a notice.
metadata_question acknowledgement_of(const std::string& event, std::chrono::milliseconds limit);

} // namespace parcae
