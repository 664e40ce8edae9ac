#include "runtime/cloud/metadata_answers.hpp"

#include "protocols/base/printable.hpp"
#include "protocols/base/text.hpp"
#include "protocols/http/http.hpp"

#include <boost/json.hpp>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>

namespace parcae {

namespace {

namespace json = boost::json;
using namespace std::chrono_literals;

constexpr std::chrono::milliseconds reserve = 1s;   // a node that leaves at the last moment is gone before the machine
constexpr std::chrono::milliseconds when_past = 5s; // for a time that is over although the machine still runs
constexpr std::chrono::milliseconds shortest_rule = 30s; // what GCP and Azure give at least
constexpr std::chrono::seconds odd_clock = 10s;          // between two clocks, that people should know of
constexpr std::size_t max_text = 100;                    // bytes of a text that is passed on
constexpr std::size_t max_key = 2000;

std::string shown(std::string_view text) {
  return printable(text, max_text);
}

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

bool same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, {}, [](unsigned char c) { return std::tolower(c); }, [](unsigned char c) { return std::tolower(c); });
}

/// Until a time that the cloud said, by the cloud's own clock if it said that too.
struct time_left {
  std::chrono::milliseconds left{0}; ///< negative: over
  std::string remark;                ///< for people; may be empty
};

time_left until(wall_time deadline, const metadata_answer& x, wall_time now) {
  time_left result;
  if (const auto theirs = parse_web_time(x.date)) {
    if (const auto ahead = now - *theirs; std::chrono::abs(ahead) >= odd_clock)
      result.remark = "; this machine's clock is " + text_of_duration(std::chrono::abs(ahead)) +
                      (ahead > 0s ? " ahead of" : " behind") + " the cloud's";
    now = *theirs;
  }
  result.left = deadline - now - reserve;
  return result;
}

/// As a notice: what is over, or is more than is ever given, cannot be meant.
cloud_notice notice_of(time_left x, std::string reason, std::string identity) {
  if (x.left <= 0s) {
    x.left = when_past;
    x.remark += "; that is over, " + text_of_duration(x.left) + " is assumed";
  } else if (x.left > longest_notice) {
    x.left = longest_notice;
    x.remark += "; that is more than is ever given, " + text_of_duration(x.left) + " is assumed";
  }
  return {x.left, std::move(reason) + x.remark, std::move(identity), {}};
}

unusable odd_status(const metadata_answer& x) {
  return {"it answers with HTTP status " + std::to_string(x.status), x.status == 401};
}

unusable odd_body(const metadata_answer& x, std::string_view expected) {
  return {"\"" + shown(x.body) + "\" is no " + std::string(expected), false};
}

/// A member that is a string; else empty.
std::string text_in(const json::object& x, std::string_view name) {
  const auto* value = x.if_contains(name);
  const auto* text = value ? value->if_string() : nullptr;
  return text ? std::string(text->data(), text->size()) : std::string();
}

/// Nothing if the body is no object.
std::optional<json::object> object_in(const metadata_answer& x) {
  json::error_code error;
  auto value = json::parse(x.body, error);
  if (error || !value.is_object())
    return std::nullopt;
  return std::move(value.as_object());
}

// --- AWS

finding aws_token(const metadata_answer& x) {
  if (x.status != 200)
    return unusable{"it gives no token, HTTP status " + std::to_string(x.status), false};
  // It is sent back as a header.
  const bool good = !x.body.empty() && x.body.size() <= max_key &&
                    std::ranges::all_of(x.body, [](unsigned char c) { return c > ' ' && c < 127; });
  if (!good)
    return odd_body(x, "token");
  std::uint32_t seconds = 0;
  std::from_chars(x.token_ttl.data(), x.token_ttl.data() + x.token_ttl.size(), seconds);
  return metadata_key{x.body, std::chrono::seconds(seconds)};
}

finding aws_action(const metadata_answer& x, wall_time now) {
  if (x.status == 404)
    return all_is_well{};
  if (x.status != 200)
    return odd_status(x);
  const auto body = object_in(x);
  const auto action = body ? text_in(*body, "action") : std::string();
  if (action.empty())
    return odd_body(x, "instance-action");
  const auto time = text_in(*body, "time");
  const auto deadline = parse_web_time(time);
  auto reason = "AWS: instance-action " + shown(action) + " at " + (time.empty() ? "no time" : shown(time));
  // What ends the instance is believed even if its time cannot be read.
  const auto left =
      deadline ? until(*deadline, x, now)
               : time_left{longest_notice, "; that is no time, " + text_of_duration(longest_notice) + " is assumed"};
  return notice_of(left, std::move(reason), shown(action) + " " + shown(time));
}

finding aws_rebalance(const metadata_answer& x) {
  if (x.status == 404)
    return all_is_well{};
  if (x.status != 200)
    return odd_status(x);
  const auto body = object_in(x);
  const auto time = body ? text_in(*body, "noticeTime") : std::string();
  if (time.empty())
    return odd_body(x, "rebalance recommendation");
  return cloud_risk{"AWS: rebalance recommendation of " + shown(time)};
}

// --- GCP

finding gcp_preempted(const metadata_answer& x) {
  const auto value = trimmed(x.body);
  if (value == "FALSE")
    return all_is_well{};
  if (value != "TRUE")
    return odd_body(x, "TRUE or FALSE");
  // It does not say when: 30 s after the change, which was told at once.
  return cloud_notice{shortest_rule - reserve, "GCP: preempted", "preempted", {}};
}

finding gcp_maintenance(const metadata_answer& x) {
  const auto value = trimmed(x.body);
  if (value == "NONE")
    return all_is_well{};
  if (value != "MIGRATE_ON_HOST_MAINTENANCE" && value != "TERMINATE_ON_HOST_MAINTENANCE")
    return odd_body(x, "maintenance-event");
  return cloud_risk{"GCP: maintenance-event " + std::string(value)};
}

/// What does not say that it is Google's metadata server is none.
finding of_google(const metadata_answer& x, finding (*read)(const metadata_answer&)) {
  if (x.status != 200)
    return odd_status(x);
  if (x.flavor != "Google")
    return unusable{"its answer is not of Google: it has no header Metadata-Flavor: Google", false};
  return read(x);
}

// --- Azure

finding azure_name(const metadata_answer& x) {
  if (x.status != 200)
    return odd_status(x);
  const auto name = trimmed(x.body);
  if (name.empty() || name.size() > max_text || printable(name) != name)
    return odd_body(x, "machine's name");
  return metadata_key{std::string(name), 0s};
}

bool concerns(const json::object& event, const std::string& own_name) {
  const auto* resources = event.if_contains("Resources");
  const auto* names = resources ? resources->if_array() : nullptr;
  return names && std::ranges::any_of(*names, [&](const json::value& x) {
           const auto* name = x.if_string();
           return name && same_name({name->data(), name->size()}, own_name);
         });
}

/// Of one event that concerns this machine.
finding azure_event(const json::object& event, const metadata_answer& x, wall_time now) {
  const auto type = text_in(event, "EventType"), status = text_in(event, "EventStatus"),
             time = text_in(event, "NotBefore"), id = text_in(event, "EventId");
  const bool taken = type == "Preempt";
  const bool started = status == "Started";
  auto reason = "Azure: " + (type.empty() ? "an event of no type" : shown(type)) +
                (started        ? " has started"
                 : time.empty() ? " is scheduled"
                                : " not before " + shown(time));
  // Freeze is a pause; types that are not known may be anything.
  if (!taken && type != "Terminate" && type != "Reboot" && type != "Redeploy")
    return cloud_risk{std::move(reason)};
  auto left = time_left{shortest_rule, {}};
  if (started)
    left.left = 0s;
  else if (const auto deadline = parse_web_time(time))
    left = until(*deadline, x, now);
  else if (!taken)
    return cloud_risk{std::move(reason)};
  else
    left.remark = "; that is no time, " + text_of_duration(left.left) + " is assumed";
  if (!taken && left.left > longest_notice)
    return cloud_risk{std::move(reason)}; // later on it is a notice
  auto result = notice_of(std::move(left), std::move(reason), type + " " + id + " " + status);
  result.event = id.size() <= max_text ? id : "";
  return result;
}

finding azure_events(const metadata_answer& x, const std::string& own_name, wall_time now) {
  if (x.status != 200)
    return odd_status(x);
  const auto body = object_in(x);
  const auto* events = body ? body->if_contains("Events") : nullptr;
  if (!events || !events->is_array())
    return odd_body(x, "list of scheduled events");
  finding result = all_is_well{};
  for (const auto& entry : events->get_array()) {
    const auto* event = entry.if_object();
    if (!event || !concerns(*event, own_name))
      continue;
    auto found = azure_event(*event, x, now);
    const auto* before = std::get_if<cloud_notice>(&result);
    const auto* notice = std::get_if<cloud_notice>(&found);
    if (!before || (notice && notice->left < before->left)) // the most pressing counts
      result = std::move(found);
  }
  return result;
}

} // namespace

finding read_answer(topic about, const metadata_answer& x, const std::string& own_name, wall_time now) {
  switch (about) {
  case topic::aws_token:
    return aws_token(x);
  case topic::aws_action:
    return aws_action(x, now);
  case topic::aws_rebalance:
    return aws_rebalance(x);
  case topic::gcp_preempted:
    return of_google(x, gcp_preempted);
  case topic::gcp_maintenance:
    return of_google(x, gcp_maintenance);
  case topic::azure_name:
    return azure_name(x);
  case topic::azure_events:
    return azure_events(x, own_name, now);
  }
  return unusable{"nobody can be asked that", false};
}

} // namespace parcae
