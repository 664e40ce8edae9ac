// What the clouds' answers mean: tables of documented ones and of odd ones.

#include "protocols/base/printable.hpp"
#include "runtime/cloud/metadata_answers.hpp"
#include "tests/support/names.hpp"

namespace parcae {
namespace {

/// 2017-09-18T08:20:00Z.
constexpr wall_time now{1'505'722'800s};

constexpr topic all_topics[] = {topic::aws_token,       topic::aws_action, topic::aws_rebalance, topic::gcp_preempted,
                                topic::gcp_maintenance, topic::azure_name, topic::azure_events};

/// What an answer says, in one line: "well", "risk: …", "notice 119000: …", "key …", "unusable: …".
std::string said(topic about, const metadata_answer& x, wall_time at = now) {
  const auto found = read_answer(about, x, "machine-0", at);
  if (const auto* risk = std::get_if<cloud_risk>(&found))
    return "risk: " + risk->reason;
  if (const auto* notice = std::get_if<cloud_notice>(&found))
    return "notice " + std::to_string(notice->left.count()) + ": " + notice->reason;
  if (const auto* key = std::get_if<metadata_key>(&found))
    return "key " + key->value + " for " + std::to_string(key->valid_for.count());
  if (const auto* problem = std::get_if<unusable>(&found))
    return std::string(problem->key_refused ? "refused: " : "unusable: ") + problem->why;
  return "well";
}

metadata_answer ok(const std::string& body, const std::string& date = {}) {
  return {.status = 200, .date = date, .body = body};
}

metadata_answer of_google(const std::string& body) {
  return {.status = 200, .flavor = "Google", .body = body};
}

std::string action(const std::string& time, const std::string& date = {}, const std::string& what = "terminate") {
  return said(topic::aws_action, ok(R"({"action": ")" + what + R"(", "time": ")" + time + R"("})", date));
}

// given: documented answers of AWS / expected: a second is kept in reserve; 404 is no notice
TEST(metadata_answers, of_aws) {
  EXPECT_EQ(action("2017-09-18T08:22:00Z"), "notice 119000: AWS: instance-action terminate at 2017-09-18T08:22:00Z");
  EXPECT_EQ(action("2017-09-18T08:20:30Z", "", "stop"),
            "notice 29000: AWS: instance-action stop at 2017-09-18T08:20:30Z");
  EXPECT_EQ(said(topic::aws_action, {.status = 404}), "well");
  EXPECT_EQ(said(topic::aws_action, {.status = 401}), "refused: it answers with HTTP status 401");
  EXPECT_EQ(said(topic::aws_action, {.status = 500}), "unusable: it answers with HTTP status 500");
  EXPECT_EQ(said(topic::aws_rebalance, ok(R"({"noticeTime": "2020-10-26T10:34:29Z"})")),
            "risk: AWS: rebalance recommendation of 2020-10-26T10:34:29Z");
  EXPECT_EQ(said(topic::aws_rebalance, {.status = 404}), "well");
  EXPECT_EQ(said(topic::aws_token, {.status = 200, .token_ttl = "21600", .body = "AQAEAA=="}),
            "key AQAEAA== for 21600");
  EXPECT_EQ(said(topic::aws_token, {.status = 403}), "unusable: it gives no token, HTTP status 403");
}

// given: an end by a cloud whose clock is not this machine's, with and without its Date; one that is over; one that is
// further away than AWS ever says; no time / expected: the cloud's clock counts; what cannot be is bounded, and said
TEST(metadata_answers, clocks_that_differ) {
  EXPECT_EQ(action("2017-09-18T09:22:00Z", "Mon, 18 Sep 2017 09:20:00 GMT"),
            "notice 119000: AWS: instance-action terminate at 2017-09-18T09:22:00Z; this machine's clock is 1h behind "
            "the cloud's");
  EXPECT_EQ(
      action("2017-09-18T08:21:00Z", "Mon, 18 Sep 2017 08:19:00 GMT"),
      "notice 119000: AWS: instance-action terminate at 2017-09-18T08:21:00Z; this machine's clock is 1m ahead of "
      "the cloud's");
  EXPECT_EQ(action("2017-09-18T08:21:00Z", "Mon, 18 Sep 2017 08:20:05 GMT"),
            "notice 54000: AWS: instance-action terminate at 2017-09-18T08:21:00Z");
  EXPECT_EQ(action("2017-09-18T08:19:00Z"),
            "notice 5000: AWS: instance-action terminate at 2017-09-18T08:19:00Z; that is over, 5s is assumed");
  EXPECT_EQ(action("2017-09-18T08:20:02Z"), "notice 1000: AWS: instance-action terminate at 2017-09-18T08:20:02Z");
  EXPECT_EQ(
      action("9999-12-31T23:59:59Z"),
      "notice 120000: AWS: instance-action terminate at 9999-12-31T23:59:59Z; that is more than is ever given, 2m is "
      "assumed");
  EXPECT_THAT(action("0000-01-01T00:00:00Z"), HasSubstr("notice 5000"));
  for (const auto* odd : {"", "soon", "2017-09-18T08:22:00Zx", "2017-09-18", "1505722800"})
    EXPECT_THAT(action(odd), HasSubstr("is no time, 2m is assumed")) << odd;
  EXPECT_THAT(action("2017-09-18T08:22:00Z", "yesterday"), HasSubstr("notice 119000")) << "its Date is none";
}

// given: documented answers of GCP / expected: 30 s less a second; nothing is believed that is not said to be Google's
TEST(metadata_answers, of_gcp) {
  EXPECT_EQ(said(topic::gcp_preempted, of_google("TRUE")), "notice 29000: GCP: preempted");
  EXPECT_EQ(said(topic::gcp_preempted, of_google("FALSE\n")), "well");
  EXPECT_EQ(said(topic::gcp_preempted, ok("TRUE")),
            "unusable: its answer is not of Google: it has no header Metadata-Flavor: Google");
  EXPECT_EQ(said(topic::gcp_preempted, of_google("MAYBE")), "unusable: \"MAYBE\" is no TRUE or FALSE");
  EXPECT_EQ(said(topic::gcp_preempted, {.status = 503, .flavor = "Google"}),
            "unusable: it answers with HTTP status 503");
  EXPECT_EQ(said(topic::gcp_maintenance, of_google("NONE")), "well");
  for (const std::string event : {"MIGRATE_ON_HOST_MAINTENANCE", "TERMINATE_ON_HOST_MAINTENANCE"})
    EXPECT_EQ(said(topic::gcp_maintenance, of_google(event)), "risk: GCP: maintenance-event " + event);
}

/// An event of Azure's for some machines.
std::string event(const std::string& type, const std::string& not_before, const std::string& status = "Scheduled",
                  const std::string& machines = R"("machine-1", "MACHINE-0")") {
  return R"({"EventId": "602d9444", "EventStatus": ")" + status + R"(", "EventType": ")" + type +
         R"(", "ResourceType": "VirtualMachine", "Resources": [)" + machines + R"(], "NotBefore": ")" + not_before +
         R"(", "Description": "", "EventSource": "Platform", "DurationInSeconds": -1})";
}

std::string events(const std::string& list, const std::string& date = {}) {
  return said(topic::azure_events, ok(R"({"DocumentIncarnation": 2, "Events": [)" + list + "]}", date));
}

constexpr auto in_30_s = "Mon, 18 Sep 2017 08:20:30 GMT";
constexpr auto in_15_min = "Mon, 18 Sep 2017 08:35:00 GMT";

// given: documented events of Azure / expected: those of other machines are none of ours; what takes the machine is a
// notice once it is near; a pause is a risk
TEST(metadata_answers, of_azure) {
  EXPECT_EQ(events(""), "well");
  EXPECT_EQ(events(event("Preempt", in_30_s)), std::string("notice 29000: Azure: Preempt not before ") + in_30_s);
  EXPECT_EQ(events(event("Preempt", in_30_s, "Scheduled", R"("machine-1", "machine-00")")), "well");
  EXPECT_EQ(events(event("Preempt", in_30_s, "Scheduled", "")), "well");
  EXPECT_EQ(events(event("Preempt", "", "Started")),
            "notice 5000: Azure: Preempt has started; that is over, 5s is assumed");
  EXPECT_EQ(events(event("Preempt", "")), "notice 30000: Azure: Preempt is scheduled; that is no time, 30s is assumed");
  EXPECT_EQ(events(event("Preempt", in_15_min)), std::string("notice 120000: Azure: Preempt not before ") + in_15_min +
                                                     "; that is more than is ever given, 2m is assumed");
  for (const std::string type : {"Terminate", "Reboot", "Redeploy"}) {
    EXPECT_EQ(events(event(type, in_15_min)), "risk: Azure: " + type + " not before " + in_15_min);
    EXPECT_EQ(events(event(type, in_30_s)), "notice 29000: Azure: " + type + " not before " + in_30_s);
    EXPECT_EQ(events(event(type, in_15_min), "Mon, 18 Sep 2017 08:34:00 GMT").substr(0, 12), "notice 59000");
  }
  EXPECT_EQ(events(event("Freeze", in_30_s)), std::string("risk: Azure: Freeze not before ") + in_30_s);
  EXPECT_EQ(said(topic::azure_name, ok("machine-0\n")), "key machine-0 for 0");
  EXPECT_EQ(said(topic::azure_events, {.status = 429}), "unusable: it answers with HTTP status 429");
}

// given: several events, in any order / expected: the most pressing counts, and only what is to be acknowledged has an
// event; told again, it is the same notice
TEST(metadata_answers, the_most_pressing_event_of_azure_counts) {
  const auto freeze = event("Freeze", in_30_s), far = event("Reboot", in_15_min), near = event("Preempt", in_30_s),
             nearer = event("Redeploy", "Mon, 18 Sep 2017 08:20:11 GMT");
  for (const auto& list : {freeze + "," + near + "," + far, near + "," + far + "," + freeze, far + "," + near})
    EXPECT_THAT(events(list), HasSubstr("notice 29000: Azure: Preempt")) << list;
  for (const auto& list : {nearer + "," + near, near + "," + nearer})
    EXPECT_THAT(events(list), HasSubstr("notice 10000: Azure: Redeploy")) << list;
  const auto body = ok(R"({"Events": [)" + near + "]}");
  const auto first = std::get<cloud_notice>(read_answer(topic::azure_events, body, "machine-0", now));
  const auto later = std::get<cloud_notice>(read_answer(topic::azure_events, body, "machine-0", now + 3s));
  EXPECT_EQ(first.event, "602d9444");
  EXPECT_EQ(first.identity, later.identity);
  EXPECT_EQ(first.left - later.left, 3s);
}

// given: bodies that are no answer, or of another shape / expected: each is unusable, in one short line without control
// characters
TEST(metadata_answers, nonsense_is_refused) {
  const std::string bodies[] = {"",
                                "{",
                                "[]",
                                "null",
                                "{}",
                                R"({"action": 5})",
                                R"({"Events": {}})",
                                R"({"noticeTime": null})",
                                "<html>login</html>",
                                "\x1b[2J\n",
                                std::string(60'000, '['),
                                std::string(60'000, 'x'),
                                std::string("\0\xff", 2)};
  for (const auto about : all_topics)
    for (const auto& body : bodies) {
      const auto text = said(about, of_google(body));
      // Some are fit for a token, or for a machine's name.
      EXPECT_TRUE(text == "key " + body + " for 0" || text.starts_with("unusable: ")) << text;
      EXPECT_LT(text.size(), 2'100u);
      EXPECT_EQ(printable(text), text);
    }
  EXPECT_THAT(said(topic::aws_token, ok("a\r\nHost: b")), HasSubstr("is no token")) << "it becomes a header";
  EXPECT_THAT(said(topic::aws_token, ok(std::string(3'000, 'x'))), HasSubstr("is no token"));
  EXPECT_THAT(events("5, null, [], {\"Resources\": 7}, {\"Resources\": [1, null]}"), "well");
  EXPECT_THAT(said(topic::aws_action, ok(R"({"action": "a\u001b[2Jb", "time": "x\ny"})")),
              HasSubstr("notice 120000: AWS: instance-action a?[2Jb at x y"));
}

} // namespace
} // namespace parcae
