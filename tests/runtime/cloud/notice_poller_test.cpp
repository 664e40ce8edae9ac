// The poller against a double of the metadata servers: real connections, real time.

#include "protocols/base/locks.hpp"
#include "runtime/child/process.hpp"
#include "runtime/cloud/notice_poller.hpp"
#include "runtime/cloud/poll_schedule.hpp"
#include "tests/support/metadata_double.hpp"
#include "tests/support/names.hpp"

#include <condition_variable>
#include <fstream>

namespace parcae {
namespace {

using clock = std::chrono::steady_clock;

constexpr std::chrono::seconds limit{20}; // the machine may be busy

std::string now_plus(std::chrono::seconds x) {
  const auto at = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now() + x);
  std::tm parts{};
  gmtime_r(&at, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string terminate_in(std::chrono::seconds x) {
  return R"({"action": "terminate", "time": ")" + now_plus(x) + R"("})";
}

struct notice_poller_test : testing::Test {
  metadata_double servers;
  scratch_folder firmware{"parcae-dmi"}; ///< empty: says nothing
  std::unique_ptr<notice_poller> poller;

  void start(cloud of) { start(of, servers.server()); }

  void start(cloud of, const std::string& server) {
    cloud_listener listener;
    listener.notice = [this](std::chrono::milliseconds left, std::string reason) {
      const lock held(mutex_);
      notices_.emplace_back(left, std::move(reason));
      changed_.notify_all();
    };
    listener.risk = [this](std::string reason) {
      const lock held(mutex_);
      risks_.push_back(std::move(reason));
      changed_.notify_all();
    };
    poll_pace pace;
    pace.often = pace.seldom = 20ms;
    pace.answer = pace.first_events = 150ms;
    pace.hold = 1s;
    pace.first_pause = 10ms;
    pace.longest_pause = 40ms;
    poller.reset(); // of the test before
    poller = std::make_unique<notice_poller>(cloud_options{of, server, firmware.path()}, std::move(listener), pace);
  }

  using notice = std::pair<std::chrono::milliseconds, std::string>;

  /// The one that comes next; in vain: one of 0 ms.
  notice next_notice() {
    lock held(mutex_);
    for (const auto end = clock::now() + limit; notices_.empty() && clock::now() < end;)
      held.wait_until(changed_, end);
    if (notices_.empty())
      return {};
    const auto result = notices_.front();
    notices_.erase(notices_.begin());
    return result;
  }

  std::string next_risk() {
    lock held(mutex_);
    for (const auto end = clock::now() + limit; risks_.empty() && clock::now() < end;)
      held.wait_until(changed_, end);
    if (risks_.empty())
      return "none in time";
    const auto result = risks_.front();
    risks_.erase(risks_.begin());
    return result;
  }

  bool heard_nothing() {
    const lock held(mutex_);
    return notices_.empty() && risks_.empty();
  }

  /// Until the servers were asked `n` times more.
  void wait_for_requests(std::size_t n, const std::string& beginning = {}) {
    const auto before = servers.count(beginning);
    for (const auto end = clock::now() + limit; servers.count(beginning) < before + n;) {
      ASSERT_LT(clock::now(), end) << "not asked " << beginning;
      std::this_thread::sleep_for(1ms);
    }
  }

  void change(const std::function<void(metadata_documents&)>& how) { servers.change(how); }

private:
  mutex mutex_;
  std::condition_variable changed_;
  std::vector<notice> notices_ GUARDED_BY(mutex_);
  std::vector<std::string> risks_ GUARDED_BY(mutex_);
};

// given: AWS, then a rebalance recommendation, then an end in 40 s / expected: a token first; a risk; a notice
TEST_F(notice_poller_test, of_aws) {
  start(cloud::aws);
  wait_for_requests(3, "GET /latest/meta-data/spot/instance-action");
  EXPECT_EQ(servers.requests().front(), "PUT /latest/api/token");
  EXPECT_EQ(servers.count("PUT"), 2u) << "one for each topic, for hours";
  EXPECT_TRUE(heard_nothing());
  change([](auto& x) { x.rebalance = R"({"noticeTime": "2020-10-26T10:34:29Z"})"; });
  EXPECT_EQ(next_risk(), "AWS: rebalance recommendation of 2020-10-26T10:34:29Z");
  change([](auto& x) { x.instance_action = terminate_in(40s); });
  const auto [left, reason] = next_notice();
  EXPECT_GT(left, 30s);
  EXPECT_LE(left, 40s);
  EXPECT_THAT(reason, HasSubstr("AWS: instance-action terminate at "));
  wait_for_requests(3, "GET /latest/meta-data/spot/instance-action");
  EXPECT_TRUE(heard_nothing()) << "each is told once";
}

// given: tokens that end before their time / expected: others are asked for, and notices seen
TEST_F(notice_poller_test, of_aws_with_a_token_that_ended) {
  start(cloud::aws);
  wait_for_requests(2, "GET /latest/meta-data/spot/instance-action");
  servers.expire_tokens();
  change([](auto& x) { x.instance_action = terminate_in(40s); });
  EXPECT_GT(next_notice().first, 0s);
  EXPECT_GE(servers.count("PUT"), 3u);
}

// given: a cloud whose clock is 3 hours ahead of this machine's, and an end in 40 s by it / expected: 40 s
TEST_F(notice_poller_test, the_clouds_clock_counts) {
  change([](auto& x) {
    x.clock_ahead = 3h;
    x.instance_action = terminate_in(3h + 40s);
  });
  start(cloud::aws);
  const auto [left, reason] = next_notice();
  EXPECT_GT(left, 30s);
  EXPECT_LE(left, 40s);
  EXPECT_THAT(reason, HasSubstr("; this machine's clock is "));
}

// given: GCP / expected: questions that wait; the change is told at once
TEST_F(notice_poller_test, of_gcp) {
  start(cloud::gcp);
  wait_for_requests(1, "GET /computeMetadata/v1/instance/preempted?wait_for_change=true");
  const auto asked = servers.requests().size();
  EXPECT_LE(asked, 6u) << "it waits";
  change([](auto& x) { x.maintenance = "MIGRATE_ON_HOST_MAINTENANCE"; });
  EXPECT_EQ(next_risk(), "GCP: maintenance-event MIGRATE_ON_HOST_MAINTENANCE");
  change([](auto& x) { x.maintenance = "NONE"; });
  EXPECT_EQ(next_risk(), "");
  change([](auto& x) { x.preempted = "TRUE"; });
  EXPECT_EQ(next_notice(), notice(29s, "GCP: preempted"));
}

// given: GCP, preempted before it was asked / expected: a notice
TEST_F(notice_poller_test, of_gcp_when_it_has_happened) {
  change([](auto& x) { x.preempted = "TRUE"; });
  start(cloud::gcp);
  EXPECT_EQ(next_notice(), notice(29s, "GCP: preempted"));
}

// given: a server that is not Google's / expected: nothing is believed
TEST_F(notice_poller_test, who_does_not_say_that_it_is_google_is_not_believed) {
  change([](auto& x) {
    x.preempted = "TRUE";
    x.says_google = false;
  });
  start(cloud::gcp);
  wait_for_requests(3);
  EXPECT_TRUE(heard_nothing());
}

// given: Azure, an event of another machine, then one of this / expected: a notice of this one; acknowledged when said
TEST_F(notice_poller_test, of_azure) {
  const auto events = [](const std::string& machine, const std::string& id) {
    return R"({"Events":[{"EventId":")" + id + R"(","EventType":"Preempt","EventStatus":"Scheduled","Resources":[")" +
           machine + R"("],"NotBefore":")" + now_plus(40s) + R"("}]})";
  };
  start(cloud::azure);
  wait_for_requests(2, "GET /metadata/scheduledevents");
  poller->acknowledge(1s); // there is nothing to acknowledge yet
  change([&](auto& x) { x.events = events("machine-1", "other"); });
  wait_for_requests(2, "GET /metadata/scheduledevents");
  EXPECT_TRUE(heard_nothing());
  change([&](auto& x) { x.events = events("machine-0", "mine"); });
  EXPECT_GT(next_notice().first, 30s);
  EXPECT_THAT(servers.acknowledged(), IsEmpty());
  poller->acknowledge(5s);
  EXPECT_THAT(servers.acknowledged(), ElementsAre("mine"));
  servers.misbehave(misbehaviour::silence);
  const auto before = clock::now();
  poller->acknowledge(100ms);
  EXPECT_LT(clock::now() - before, 5s) << "in vain, but not for long";
}

/// A cloud, and how its server is broken.
using breakage = std::tuple<cloud, misbehaviour>;

class broken_server : public notice_poller_test, public testing::WithParamInterface<breakage> {};

// given: a server that is broken from the beginning, works, is broken again, and works / expected: while it is broken
// nothing is heard, and it is asked again and again; once it works a notice is seen; the poller ends at once at any
// time
TEST_P(broken_server, is_outlived) {
  const auto [of, how] = GetParam();
  servers.misbehave(how);
  start(of);
  wait_for_requests(2);
  EXPECT_TRUE(heard_nothing());
  const auto before = clock::now();
  start(of);
  EXPECT_LT(clock::now() - before, 2s) << "it ended in the midst of a question";
  servers.misbehave(misbehaviour::none);
  change([](auto& x) {
    x.rebalance = R"({"noticeTime": "2020-10-26T10:34:29Z"})";
    x.maintenance = "MIGRATE_ON_HOST_MAINTENANCE";
    x.events = R"({"Events":[{"EventId":"f","EventType":"Freeze","Resources":["machine-0"]}]})";
  });
  EXPECT_NE(next_risk(), "none in time");
  servers.misbehave(how);
  wait_for_requests(2);
  EXPECT_TRUE(heard_nothing());
  servers.misbehave(misbehaviour::none);
  change([](auto& x) {
    x.instance_action = terminate_in(40s);
    x.preempted = "TRUE";
    x.events =
        R"({"Events":[{"EventId":"p","EventType":"Preempt","EventStatus":"Started","Resources":["machine-0"]}]})";
  });
  EXPECT_GT(next_notice().first, 0s);
}

INSTANTIATE_TEST_SUITE_P(
    ways, broken_server,
    testing::Combine(testing::Values(cloud::aws, cloud::gcp, cloud::azure),
                     testing::Values(misbehaviour::http_500, misbehaviour::http_503, misbehaviour::http_429,
                                     misbehaviour::redirect, misbehaviour::silence, misbehaviour::trickle,
                                     misbehaviour::hang_up, misbehaviour::no_http, misbehaviour::nonsense,
                                     misbehaviour::endless, misbehaviour::long_head, misbehaviour::truncated)),
    [](const auto& x) {
      return to_string(std::get<0>(x.param)) + "_" + std::to_string(static_cast<int>(std::get<1>(x.param)));
    });

// given: redirections / expected: not followed
TEST_F(notice_poller_test, redirections_are_not_followed) {
  servers.misbehave(misbehaviour::redirect);
  start(cloud::aws);
  wait_for_requests(4);
  EXPECT_EQ(servers.count("GET /moved"), 0u);
}

// given: nobody listens / expected: it goes on, and ends at once
TEST_F(notice_poller_test, nobody_listens) {
  std::optional<metadata_double> gone(std::in_place);
  const auto server = gone->server();
  gone.reset();
  for (const auto of : {cloud::aws, cloud::gcp, cloud::azure, cloud::auto_})
    start(of, server);
  EXPECT_TRUE(heard_nothing());
}

// given: firmware of AWS, and a server / expected: AWS is asked, and nobody else
TEST_F(notice_poller_test, firmware_says_whom_to_ask) {
  std::ofstream(firmware.path() / "sys_vendor") << "Amazon EC2\n";
  start(cloud::auto_);
  wait_for_requests(4);
  EXPECT_EQ(servers.count("PUT /latest/") + servers.count("GET /latest/"), servers.requests().size());
}

// given: firmware of no cloud, and a server / expected: nobody is asked. (The next poller shows that this one had
// time.)
TEST_F(notice_poller_test, firmware_of_no_cloud_means_silence) {
  std::ofstream(firmware.path() / "sys_vendor") << "QEMU\n";
  start(cloud::auto_);
  std::this_thread::sleep_for(50ms); // for what must not happen
  EXPECT_THAT(servers.requests(), IsEmpty());
}

// given: no firmware, and a server of one cloud / expected: that cloud is found; of none: it is asked three things,
// once
TEST_F(notice_poller_test, a_server_says_who_it_is) {
  for (const auto of : {cloud::aws, cloud::gcp, cloud::azure}) {
    change([&](auto& x) {
      x.is_aws = of == cloud::aws;
      x.is_gcp = of == cloud::gcp;
      x.is_azure = of == cloud::azure;
    });
    start(cloud::auto_);
    wait_for_requests(2, of == cloud::aws   ? "GET /latest/meta-data/spot/instance-action"
                         : of == cloud::gcp ? "GET /computeMetadata/v1/instance/maintenance-event"
                                            : "GET /metadata/scheduledevents");
  }
  poller.reset();
  change([](auto& x) { x.is_azure = false; });
  const auto before = servers.requests().size();
  start(cloud::auto_);
  wait_for_requests(1, "GET /metadata/instance/compute/name");
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(servers.requests().size(), before + 3);
}

// given: addresses / expected: numeric ones are taken, others refused in one line
TEST(cloud_options, addresses_are_numeric) {
  for (const auto* good : {"169.254.169.254:80", "127.0.0.1:1", "[fd00:ec2::254]:80"})
    EXPECT_EQ(problem_of({cloud::aws, good, {}}), "") << good;
  for (const auto* bad : {"", ":", "metadata.google.internal:80", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536",
                          "127.0.0.1:80x", "http://127.0.0.1:80", "[]:80", "["})
    EXPECT_THAT(problem_of({cloud::aws, bad, {}}), HasSubstr("is no numeric ADDRESS:PORT such as 169.254.169.254:80"))
        << bad;
  EXPECT_THROW(notice_poller({cloud::aws, "localhost:80", {}}, {}), std::invalid_argument);
}

} // namespace
} // namespace parcae
