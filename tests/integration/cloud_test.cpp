// Notices of the clouds: real nodes, which ask a double of the metadata servers.

#include "tests/support/cluster.hpp"
#include "tests/support/metadata_double.hpp"

#include <csignal>
#include <ctime>

namespace parcae {
namespace {

struct clouds : cluster_test {
  metadata_double servers;

  void start_in(const std::string& of, const std::string& name) {
    cluster->start_node(name, {"--cloud", of, "--metadata", servers.server()});
  }

  static std::string time_after(std::chrono::seconds x, const char* form) {
    const auto at = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now() + x);
    std::tm parts{};
    gmtime_r(&at, &parts);
    char text[64];
    std::strftime(text, sizeof text, form, &parts);
    return text;
  }

  /// What this machine's cloud says from now on, whichever it is: it ends after so long. (GCP does not say when.)
  void give_notice(std::chrono::seconds left) {
    servers.change([&](metadata_documents& x) {
      x.instance_action = R"({"action": "terminate", "time": ")" + time_after(left, "%Y-%m-%dT%H:%M:%SZ") + R"("})";
      x.preempted = "TRUE";
      x.events =
          R"({"Events":[{"EventId":"e","EventType":"Preempt","EventStatus":"Scheduled","Resources":["machine-0"],)"
          R"("NotBefore":")" +
          time_after(left, "%a, %d %b %Y %H:%M:%S GMT") + R"("}]})";
    });
  }

  instance_status instance(const std::string& name, const status_reply& s) {
    for (const auto& i : s.instances)
      if (i.name == name)
        return i;
    ADD_FAILURE() << "no instance " << name;
    return {};
  }

  static bool told(const status_reply& s, const std::string& news) {
    return std::ranges::any_of(s.news, [&](const auto& n) { return n.text.find(news) != n.text.npos; });
  }
};

struct cloud_case {
  const char* name;
  const char* reason; ///< begins so
  bool acknowledges;
};

void PrintTo(const cloud_case& x, std::ostream* to) {
  *to << x.name;
}

class every_cloud : public clouds, public testing::WithParamInterface<cloud_case> {};

// given: two workers, one of which its cloud will take / expected: it leaves with status 0, no step is replayed, the
// parameters are those of undisturbed training; people are told why; Azure is told that it may have the machine
TEST_P(every_cloud, notices_cost_no_step) {
  const auto job = endless_job();
  start_nodes({"a"});
  start_in(GetParam().name, "b");
  wait_for_workers(2);
  const auto id = cluster->client().submit(job);
  wait_for_training(id, 2);
  EXPECT_THAT(servers.acknowledged(), IsEmpty());
  give_notice(30s);
  EXPECT_EQ(cluster->node("b").wait(20s), 0);
  cluster->wait_for("news of its end", limit,
                    [](const status_reply& s) { return told(s, "instance b is gone, as announced"); });
  EXPECT_EQ(wait_for_training(id, 1).replayed_steps, 0u);
  const auto now = cluster->client().status();
  EXPECT_TRUE(told(now, "notice: instance b leaves in 2")) << "30 s less what it took";
  EXPECT_TRUE(told(now, GetParam().reason));
  if (!GetParam().acknowledges) {
    EXPECT_THAT(servers.acknowledged(), IsEmpty());
    return;
  }
  EXPECT_THAT(servers.acknowledged(), ElementsAre("e"));
  EXPECT_EQ(expect_undisturbed_bits(id, job).replayed_steps, 0u); // once: a notice is a notice
}

INSTANTIATE_TEST_SUITE_P(clouds, every_cloud,
                         testing::Values(cloud_case{"aws", ": AWS: instance-action terminate at ", false},
                                         cloud_case{"gcp", ": GCP: preempted", false},
                                         cloud_case{"azure", ": Azure: Preempt not before ", true}),
                         [](const auto& x) { return std::string(x.param.name); });

// given: the only worker, which Azure will take in 9 s / expected: it trains on; status says until when what is to be
// moved, and why; it is needed until the keepers have what it made, so the notice is acknowledged then, or if they are
// late not at all; no step is lost
TEST_F(clouds, the_grace_is_used_to_its_end) {
  cluster->start_keeper();
  start_in("azure", "a");
  const auto id = cluster->client().submit(small_job(1'000'000));
  wait_for_training(id, 1);
  give_notice(9s);
  const auto noticed = cluster->wait_for("the notice", limit, [&](const status_reply& s) {
    return instance("a", s).slots_needed == 1 && instance("a", s).state == "leaving";
  });
  EXPECT_THAT(instance("a", noticed).warning, HasSubstr("Azure: Preempt not before "));
  const auto steps_then = job_of(noticed, id).steps_done;
  const auto shown = run({"status"});
  EXPECT_THAT(shown.output, testing::ContainsRegex("instance a .*: leaving in [5-8]s, 1 slot to be moved by then "
                                                   "\\(Azure: Preempt not before "));
  wait_for_job(id, "training on", [&](const job_status& j) { return j.steps_done > steps_then + 50; });
  EXPECT_THAT(servers.acknowledged(), IsEmpty());
  EXPECT_EQ(cluster->node("a").wait(20s), 0);
  EXPECT_THAT(servers.acknowledged(), testing::AnyOf(IsEmpty(), ElementsAre("e")));
  const auto waiting = wait_for_job(id, "waiting", [](const job_status& j) { return j.phase == "waiting"; });
  cluster->start_node("b");
  const auto after = wait_for_training(id, 1);
  EXPECT_GE(after.steps_done, waiting.steps_done);
  EXPECT_EQ(after.replayed_steps, 0u);
}

// given: a rebalance recommendation / expected: no notice, training goes on; status, its JSON and the events say so
TEST_F(clouds, a_risk_is_shown) {
  start_in("aws", "a");
  wait_for_workers(1);
  servers.change([](auto& x) { x.rebalance = R"({"noticeTime": "2020-10-26T10:34:29Z"})"; });
  cluster->wait_for("the risk", limit, [&](const status_reply& s) { return !instance("a", s).warning.empty(); });
  const auto reason = std::string("AWS: rebalance recommendation of 2020-10-26T10:34:29Z");
  EXPECT_THAT(run({"status"}).output, HasSubstr("alive, at risk (" + reason + ")"));
  EXPECT_THAT(run({"status", "--json"}).output, HasSubstr("\"warning\":\"" + reason + "\""));
  EXPECT_THAT(run({"logs"}).output, HasSubstr("instance a is at risk: " + reason));
  EXPECT_EQ(cluster->node("a").poll(), std::nullopt);
}

// given: metadata servers that take questions and say nothing, one where nobody listens / expected: nodes join and
// leave as ever
TEST_F(clouds, broken_servers_cost_nothing) {
  servers.misbehave(misbehaviour::silence);
  start_in("gcp", "a");
  start_in("auto", "b");
  cluster->start_node("c", {"--cloud", "aws", "--metadata", "127.0.0.1:1"});
  wait_for_workers(3);
  for (const auto* name : {"a", "b", "c"})
    cluster->node(name).signal(SIGTERM);
  for (const auto* name : {"a", "b", "c"})
    EXPECT_EQ(cluster->node(name).wait(10s), 0) << name;
}

// given: wrong options / expected: status 2 and what would be right
TEST_F(clouds, wrong_options_are_refused) {
  const auto node = sibling_program("parcae-node").string();
  const auto cloud = run_program({node, "--cloud", "ibm"});
  EXPECT_EQ(cloud.status, 2);
  EXPECT_THAT(cloud.error, HasSubstr("--cloud"));
  const auto server = run_program({node, "--metadata", "metadata.google.internal:80"});
  EXPECT_EQ(server.status, 2);
  EXPECT_THAT(server.error, HasSubstr("is no numeric ADDRESS:PORT such as 169.254.169.254:80"));
}

} // namespace
} // namespace parcae
