#pragma once

// What the metadata servers of AWS, GCP and Azure answer, and what it means for this instance. Pure: no network, and
// the time is an argument. An answer is not believed for being one: whatever its bytes, it is read to the end, or is
// `unusable` for a reason; text that is passed on is printable and short; a time left is positive and bounded.

#include <chrono>
#include <string>
#include <variant>

namespace parcae {

/// Wall-clock time, UTC. Not in nanoseconds: a cloud may write a year that those cannot count.
using wall_time = std::chrono::sys_time<std::chrono::milliseconds>;

/// What a metadata server can be asked about.
enum class topic : std::uint8_t {
  aws_token,       ///< opens the other two (IMDSv2)
  aws_action,      ///< spot/instance-action: the instance is about to be taken
  aws_rebalance,   ///< events/recommendations/rebalance: it is at an elevated risk
  gcp_preempted,   ///< instance/preempted
  gcp_maintenance, ///< instance/maintenance-event
  azure_name,      ///< of this machine: events are told to all of a scale set
  azure_events,    ///< scheduled events, API 2020-07-01
};

/// An HTTP response, of any status, with the headers that matter here; empty: it has none of that name.
struct metadata_answer {
  unsigned status = 0;
  std::string date{};
  std::string etag{};
  std::string flavor{};    ///< Metadata-Flavor
  std::string token_ttl{}; ///< X-aws-ec2-metadata-token-ttl-seconds
  std::string body{};
};

struct all_is_well {};

/// It may be taken, but nothing says that it will within minutes.
struct cloud_risk {
  std::string reason; ///< one line: which cloud says what
};

/// It will be taken.
struct cloud_notice {
  std::chrono::milliseconds left{0}; ///< from now; above 0, at most longest_notice
  std::string reason;                ///< one line: which cloud says what, and what was odd about it
  std::string identity;              ///< the same in answers that tell the same once more
  std::string event;                 ///< to acknowledge; empty: this cloud does not ask for it
};

/// Needed to ask for more: AWS's token, the machine's name on Azure.
struct metadata_key {
  std::string value;                 ///< printable, at most 2000 bytes: fit for a header
  std::chrono::seconds valid_for{0}; ///< 0: for ever
};

/// No answer, or one that says nothing.
struct unusable {
  std::string why;          ///< one line
  bool key_refused = false; ///< another token may help
};

using finding = std::variant<all_is_well, cloud_risk, cloud_notice, metadata_key, unusable>;

/// A notice that is further away than this is not one yet, but a risk: leaving needs less. Longer ones of clouds that
/// never give more are taken for this much.
inline constexpr std::chrono::milliseconds longest_notice{120'000};

/// `own_name`: this machine's, among Azure's events. `now`: this machine's clock, which counts only where the answer
/// does not say its own time.
finding read_answer(topic about, const metadata_answer& x, const std::string& own_name, wall_time now);

} // namespace parcae
