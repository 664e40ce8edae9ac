#include "runtime/cloud/poll_schedule.hpp"

#include "protocols/base/back_off.hpp"

#include <boost/json.hpp>

#include <algorithm>

namespace parcae {

namespace {

using time_point = poll_state::time_point;

constexpr std::string_view azure_events_target = "/metadata/scheduledevents?api-version=2020-07-01";

std::chrono::milliseconds period_of(topic about, const poll_pace& pace) {
  return about == topic::aws_rebalance ? pace.seldom : pace.often;
}

/// It becomes part of a question.
bool is_fit(const std::string& etag) {
  return !etag.empty() && etag.size() <= 64 && std::ranges::all_of(etag, [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
  });
}

metadata_question of_google(const char* value, const poll_state& x, const poll_pace& pace) {
  metadata_question result{.target = std::string("/computeMetadata/v1/instance/") + value,
                           .headers = {{"Metadata-Flavor", "Google"}},
                           .limit = pace.answer};
  if (x.etag.empty())
    return result;
  result.target += "?wait_for_change=true&timeout_sec=" + std::to_string(pace.hold.count()) + "&last_etag=" + x.etag;
  result.limit += pace.hold;
  return result;
}

metadata_question question_of(topic about, const poll_state& x, const poll_pace& pace) {
  const auto of_aws = [&](const char* what) {
    return metadata_question{.target = std::string("/latest/meta-data/") + what,
                             .headers = {{"X-aws-ec2-metadata-token", x.key}},
                             .limit = pace.answer};
  };
  switch (about) {
  case topic::aws_token:
    return {.method = "PUT",
            .target = "/latest/api/token",
            .headers = {{"X-aws-ec2-metadata-token-ttl-seconds", std::to_string(pace.token.count())}},
            .limit = pace.answer};
  case topic::aws_action:
    return of_aws("spot/instance-action");
  case topic::aws_rebalance:
    return of_aws("events/recommendations/rebalance");
  case topic::gcp_preempted:
    return of_google("preempted", x, pace);
  case topic::gcp_maintenance:
    return of_google("maintenance-event", x, pace);
  case topic::azure_name:
    return {.target = "/metadata/instance/compute/name?api-version=2021-02-01&format=text",
            .headers = {{"Metadata", "true"}},
            .limit = pace.answer};
  case topic::azure_events:
    return {.target = std::string(azure_events_target),
            .headers = {{"Metadata", "true"}},
            .limit = x.answered ? pace.answer : pace.first_events};
  }
  return {};
}

void fail(poll_state& x, const poll_pace& pace, const unusable& what, time_point now, poll_news& news) {
  const bool first = x.failures++ == 0;
  // The value may have changed while nobody waited for it.
  x.etag.clear();
  if (what.key_refused)
    x.key.clear();
  // A token that is refused for the first time has ended early: another one may do.
  const auto pause = back_off{pace.first_pause, pace.longest_pause}.after(x.failures);
  x.paused_until = what.key_refused && first ? now : now + pause;
  news.problem = what.why;
}

void keep_key(poll_state& x, const poll_pace& pace, const metadata_key& key, time_point now) {
  x.key = key.value;
  const auto valid_for = key.valid_for.count() > 0 ? std::min(key.valid_for, pace.token) : pace.token;
  x.key_until = x.key_from == topic::aws_token ? now + valid_for * 9 / 10 : time_point::max();
}

} // namespace

std::vector<poll_state> poll_series(cloud of, time_point now) {
  switch (of) {
  case cloud::aws:
    return {{.about = topic::aws_action, .due = now, .key_from = topic::aws_token},
            {.about = topic::aws_rebalance, .due = now, .key_from = topic::aws_token}};
  case cloud::gcp:
    return {{.about = topic::gcp_preempted, .due = now}, {.about = topic::gcp_maintenance, .due = now}};
  case cloud::azure:
    return {{.about = topic::azure_events, .due = now, .key_from = topic::azure_name}};
  case cloud::none:
  case cloud::auto_:
    break;
  }
  return {};
}

poll next_poll(const poll_state& x, const poll_pace& pace) {
  const auto at = std::max(x.due, x.paused_until);
  const bool key_wanted = x.key_from && (x.key.empty() || x.key_until <= at);
  const auto about = key_wanted ? *x.key_from : x.about;
  return {about, at, question_of(about, x, pace)};
}

poll_news heard(poll_state& x, const poll_pace& pace, topic about,
                const std::variant<metadata_answer, unusable>& answer, time_point asked, time_point now,
                wall_time wall) {
  poll_news news;
  const auto* response = std::get_if<metadata_answer>(&answer);
  const auto found = response ? read_answer(about, *response, x.key, wall) : finding(std::get<unusable>(answer));
  if (const auto* problem = std::get_if<unusable>(&found)) {
    fail(x, pace, *problem, now, news);
    return news;
  }
  if (const auto* key = std::get_if<metadata_key>(&found)) {
    // It is no answer yet to what matters: whether that fails no more is seen then.
    keep_key(x, pace, *key, now);
    return news;
  }
  x.answered = true;
  x.etag = is_fit(response->etag) ? response->etag : "";
  news.recovered = std::exchange(x.failures, 0u) > 0;
  // From the question, so that one that was held is followed at once, and one that should have been, is not.
  x.due = asked + period_of(about, pace);
  if (const auto* notice = std::get_if<cloud_notice>(&found)) {
    if (std::exchange(x.told, notice->identity) != notice->identity)
      news.notice = *notice;
    return news; // more than a risk
  }
  const auto* risk = std::get_if<cloud_risk>(&found);
  auto reason = risk ? risk->reason : std::string();
  if (std::exchange(x.risk, reason) != reason)
    news.risk = std::move(reason);
  return news;
}

metadata_question acknowledgement_of(const std::string& event, std::chrono::milliseconds limit) {
  const boost::json::value body = {{"StartRequests", boost::json::array{{{"EventId", event}}}}};
  return {.method = "POST",
          .target = std::string(azure_events_target),
          .headers = {{"Metadata", "true"}, {"Content-Type", "application/json"}},
          .body = boost::json::serialize(body),
          .limit = limit};
}

} // namespace parcae
