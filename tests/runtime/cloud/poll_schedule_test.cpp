// When what is asked: in virtual time, without a network.

#include "runtime/child/process.hpp"
#include "runtime/cloud/poll_schedule.hpp"
#include "tests/support/names.hpp"

#include <fstream>

namespace parcae {
namespace {

using time_point = poll_state::time_point;

constexpr time_point start{1'000'000s};
constexpr wall_time wall{1'505'722'800s};

struct poll_schedule : testing::Test {
  const poll_pace pace;
  poll_state series;
  time_point now = start;
  poll_news news; ///< of the last answer

  void begin(cloud of, std::size_t which = 0) { series = poll_series(of, now).at(which); }

  /// Asks when it is time, and takes the answer that comes `after` so long. Says when, and what was asked.
  std::string step(const std::variant<metadata_answer, unusable>& answer, std::chrono::milliseconds after = 0ms) {
    const auto next = next_poll(series, pace);
    now = std::max(now, next.at);
    const auto asked = now;
    now += after;
    news = heard(series, pace, next.about, answer, asked, now, wall);
    const auto at = std::chrono::duration_cast<std::chrono::milliseconds>(asked - start).count();
    return std::to_string(at) + " " + next.question.method + " " + next.question.target;
  }

  std::string header(const std::string& name) {
    for (const auto& [known, value] : next_poll(series, pace).question.headers)
      if (known == name)
        return value;
    return {};
  }
};

const metadata_answer token{.status = 200, .token_ttl = "21600", .body = "first"};
const metadata_answer other_token{.status = 200, .token_ttl = "21600", .body = "second"};
const metadata_answer nothing{.status = 404};
const unusable refused{"connection refused", false};

// given: AWS / expected: a token, then the action each second with it; another token before it ends; for rebalance the
// same, each 5 s
TEST_F(poll_schedule, of_aws) {
  begin(cloud::aws);
  EXPECT_EQ(header("X-aws-ec2-metadata-token-ttl-seconds"), "21600");
  EXPECT_EQ(step(token), "0 PUT /latest/api/token");
  EXPECT_EQ(header("X-aws-ec2-metadata-token"), "first");
  EXPECT_EQ(step(nothing), "0 GET /latest/meta-data/spot/instance-action");
  EXPECT_EQ(step(nothing), "1000 GET /latest/meta-data/spot/instance-action");
  EXPECT_EQ(step(nothing), "2000 GET /latest/meta-data/spot/instance-action");
  now = start + 5h + 23min;
  EXPECT_THAT(step(nothing), HasSubstr("instance-action"));
  now = start + 5h + 25min;
  series.due = now;
  EXPECT_THAT(step(other_token), HasSubstr("PUT /latest/api/token")) << "a tenth before it ends";
  EXPECT_EQ(header("X-aws-ec2-metadata-token"), "second");

  now = start;
  begin(cloud::aws, 1);
  EXPECT_EQ(step(token), "0 PUT /latest/api/token");
  EXPECT_EQ(step(nothing), "0 GET /latest/meta-data/events/recommendations/rebalance");
  EXPECT_EQ(step(nothing), "5000 GET /latest/meta-data/events/recommendations/rebalance");
}

// given: a token that ended early (401), and one that is refused at once / expected: another is asked for at once, the
// second time after a pause
TEST_F(poll_schedule, a_token_that_is_refused_is_replaced) {
  begin(cloud::aws);
  step(token);
  step(nothing);
  EXPECT_EQ(step(metadata_answer{.status = 401}), "1000 GET /latest/meta-data/spot/instance-action");
  EXPECT_EQ(step(other_token), "1000 PUT /latest/api/token");
  EXPECT_EQ(step(metadata_answer{.status = 401}), "1000 GET /latest/meta-data/spot/instance-action");
  EXPECT_EQ(step(other_token), "2000 PUT /latest/api/token");
  EXPECT_FALSE(news.recovered) << "a token alone is no answer";
  EXPECT_EQ(step(nothing), "2000 GET /latest/meta-data/spot/instance-action");
  EXPECT_TRUE(news.recovered);
}

// given: failures one after the other / expected: pauses that double up to 5 s, a problem each; none once it answers
TEST_F(poll_schedule, failures_make_it_pause) {
  begin(cloud::aws);
  std::vector<std::string> asked;
  for (int i = 0; i < 8; ++i) {
    asked.push_back(step(refused));
    EXPECT_EQ(news.problem, "connection refused");
  }
  for (auto& x : asked)
    x = x.substr(0, x.find(' '));
  EXPECT_THAT(asked, ElementsAre("0", "500", "1500", "3500", "7500", "12500", "17500", "22500"));
  step(token);
  EXPECT_EQ(step(nothing).substr(0, 5), "27500");
  EXPECT_TRUE(news.recovered);
  EXPECT_EQ(step(nothing).substr(0, 5), "28500");
  EXPECT_THAT(news.problem, IsEmpty());
}

metadata_answer of_google(const std::string& body, const std::string& etag) {
  return {.status = 200, .etag = etag, .flavor = "Google", .body = body};
}

// given: GCP / expected: the value first, as it may have changed already; then each question waits for a change, and is
// followed at once; after a failure the value again
TEST_F(poll_schedule, of_gcp) {
  begin(cloud::gcp);
  EXPECT_EQ(header("Metadata-Flavor"), "Google");
  EXPECT_EQ(step(of_google("FALSE", "411261ca6c9e4680")), "0 GET /computeMetadata/v1/instance/preempted");
  EXPECT_EQ(next_poll(series, pace).question.limit, 12s) << "what it is held for, and what an answer may take";
  const auto held = " GET /computeMetadata/v1/instance/preempted?wait_for_change=true&timeout_sec=10&last_etag=";
  EXPECT_EQ(step(of_google("FALSE", "411261ca6c9e4680"), 10s), "1000" + std::string(held) + "411261ca6c9e4680");
  EXPECT_EQ(step(of_google("TRUE", "f00"), 3s), "11000" + std::string(held) + "411261ca6c9e4680");
  ASSERT_TRUE(news.notice);
  EXPECT_EQ(news.notice->left, 29s);
  EXPECT_EQ(step(refused), "14000" + std::string(held) + "f00");
  EXPECT_EQ(step(of_google("TRUE", "f00")), "14500 GET /computeMetadata/v1/instance/preempted");
  EXPECT_FALSE(news.notice) << "told already";
}

// given: GCP with an ETag that is none, and a server that does not wait / expected: once in a second at most
TEST_F(poll_schedule, a_server_that_does_not_wait_is_not_flooded) {
  begin(cloud::gcp, 1);
  EXPECT_EQ(step(of_google("NONE", "a b&c=d\r\n")), "0 GET /computeMetadata/v1/instance/maintenance-event");
  EXPECT_EQ(step(of_google("NONE", "a")), "1000 GET /computeMetadata/v1/instance/maintenance-event");
  for (int second = 2; second < 10; ++second)
    EXPECT_THAT(step(of_google("NONE", "a")), StartsWith(std::to_string(second) + "000 "));
}

// given: GCP's maintenance comes and goes / expected: told when it changes
TEST_F(poll_schedule, risks_come_and_go) {
  begin(cloud::gcp, 1);
  std::vector<std::string> told;
  for (const auto* value : {"NONE", "MIGRATE_ON_HOST_MAINTENANCE", "MIGRATE_ON_HOST_MAINTENANCE", "NONE", "NONE"}) {
    step(of_google(value, "a"));
    if (news.risk)
      told.push_back(*news.risk);
  }
  EXPECT_THAT(told, ElementsAre("GCP: maintenance-event MIGRATE_ON_HOST_MAINTENANCE", ""));
}

metadata_answer azure(const std::string& list) {
  return {.status = 200, .body = R"({"Events": [)" + list + "]}"};
}

// given: Azure / expected: the machine's name, then the events each second, of which the first may take two minutes; a
// notice once, and again when it starts
TEST_F(poll_schedule, of_azure) {
  begin(cloud::azure);
  EXPECT_EQ(header("Metadata"), "true");
  EXPECT_THAT(step(metadata_answer{.status = 200, .body = "vm"}), HasSubstr("/metadata/instance/compute/name"));
  EXPECT_EQ(next_poll(series, pace).question.limit, 150s);
  EXPECT_EQ(step(azure(""), 100s), "0 GET /metadata/scheduledevents?api-version=2020-07-01");
  EXPECT_EQ(next_poll(series, pace).question.limit, 2s);
  const auto event = [](const std::string& status) {
    return R"({"EventId": "e", "EventType": "Preempt", "Resources": ["vm"], "EventStatus": ")" + status +
           R"(", "NotBefore": "Mon, 18 Sep 2017 08:20:30 GMT"})";
  };
  step(azure(event("Scheduled")));
  ASSERT_TRUE(news.notice);
  EXPECT_EQ(news.notice->event, "e");
  step(azure(event("Scheduled")));
  EXPECT_FALSE(news.notice);
  step(azure(event("Started")));
  ASSERT_TRUE(news.notice);
  EXPECT_EQ(news.notice->left, 5s);
}

// given: an event / expected: as it is documented, whatever is in its name
TEST_F(poll_schedule, acknowledges) {
  const auto x = acknowledgement_of("602d\"9444", 2s);
  EXPECT_EQ(x.method, "POST");
  EXPECT_EQ(x.target, "/metadata/scheduledevents?api-version=2020-07-01");
  EXPECT_EQ(x.body, R"({"StartRequests":[{"EventId":"602d\"9444"}]})");
  EXPECT_EQ(x.headers.at(0), std::pair(std::string("Metadata"), std::string("true")));
}

// given: none, and what is not known yet / expected: nobody is asked
TEST_F(poll_schedule, of_no_cloud) {
  EXPECT_TRUE(poll_series(cloud::none, now).empty());
  EXPECT_TRUE(poll_series(cloud::auto_, now).empty());
}

/// What the firmware of a machine says, and whose it is.
struct firmware {
  std::vector<std::pair<const char*, const char*>> files;
  std::optional<cloud> expected;
};

// given: firmware as the clouds have it, of others, none / expected: whose machine it is; nothing where there are no
// files
TEST(cloud_of_dmi, tells_clouds_apart) {
  const firmware machines[] = {
      {{{"sys_vendor", "Amazon EC2"}, {"product_name", "m5.large"}}, cloud::aws},
      {{{"sys_vendor", "Xen"}, {"bios_version", "4.11.amazon"}}, cloud::aws},
      {{{"sys_vendor", "Google"}, {"product_name", "Google Compute Engine"}}, cloud::gcp},
      {{{"sys_vendor", "Microsoft Corporation"},
        {"product_name", "Virtual Machine"},
        {"chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77"}},
       cloud::azure},
      {{{"sys_vendor", "Microsoft Corporation"}, {"product_name", "Virtual Machine"}}, cloud::none}, // any Hyper-V
      {{{"sys_vendor", "QEMU"}, {"product_name", "Standard PC"}}, cloud::none},
      {{}, std::nullopt},
  };
  for (const auto& machine : machines) {
    const scratch_folder folder("parcae-dmi");
    for (const auto& [name, line] : machine.files)
      std::ofstream(folder.path() / name) << line << "\n";
    EXPECT_EQ(cloud_of_dmi(folder.path()), machine.expected);
  }
  EXPECT_EQ(cloud_of_dmi("/no/such/folder"), std::nullopt);
}

// given: names / expected: as written, nothing for others
TEST(cloud_of_dmi, names_are_read_as_written) {
  for (const auto x : {cloud::none, cloud::auto_, cloud::aws, cloud::gcp, cloud::azure})
    EXPECT_EQ(parse_cloud(to_string(x)), x);
  EXPECT_EQ(parse_cloud("ibm"), std::nullopt);
}

} // namespace
} // namespace parcae
