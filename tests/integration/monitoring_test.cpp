// A real Prometheus (Debian's) that asks `parcae web` of a real cluster; what deploy/monitoring has for it.

#include "tests/support/free_port.hpp"
#include "tests/support/small_market.hpp"
#include "tests/support/web_process.hpp"

#include <cmath>
#include <csignal>
#include <regex>

namespace parcae {
namespace {

using boost::json::value;

const std::filesystem::path programs = PARCAE_PROMETHEUS;
const std::filesystem::path shipped = PARCAE_MONITORING;

std::string encoded(const std::string& x) {
  std::string result;
  for (const unsigned char c : x) {
    constexpr auto digits = "0123456789ABCDEF";
    result += std::string("%") + digits[c / 16] + digits[c % 16];
  }
  return result;
}

struct monitoring : web_cluster {
  void SetUp() override {
    if (!std::filesystem::exists(programs / "prometheus"))
      GTEST_SKIP() << "no " << (programs / "prometheus") << ": ./deploy/setup unpacks it";
    web_cluster::SetUp();
  }

  static bool replace(std::string& text, const std::string& what, const std::string& by) {
    const auto i = text.find(what);
    if (i != text.npos)
      text.replace(i, what.size(), by);
    return i != text.npos;
  }

  /// The configuration that is shipped, but for what is of this cluster, and quicker.
  void start_prometheus() {
    auto text = content(shipped / "prometheus.yml");
    EXPECT_TRUE(replace(text, "scrape_interval: 15s", "scrape_interval: 500ms"));
    EXPECT_TRUE(replace(text, "/etc/parcae/read_token", folder.path() / "read_token"));
    EXPECT_TRUE(replace(text, "127.0.0.1:8080", "127.0.0.1:" + std::to_string(port)));
    std::ofstream(folder.path() / "prometheus.yml") << text;
    std::filesystem::copy(shipped / "alerts.yml", folder.path() / "alerts.yml");
    prometheus_port_ = free_port();
    const auto log = folder.path() / "prometheus.log";
    prometheus_ = std::make_unique<child_process>(
        launch_options{{programs / "prometheus", "--config.file=" + (folder.path() / "prometheus.yml").string(),
                        "--storage.tsdb.path=" + (folder.path() / "data").string(), "--log.level=warn",
                        "--web.listen-address=127.0.0.1:" + std::to_string(prometheus_port_)},
                       log,
                       log});
    ASSERT_TRUE(eventually(
        [&] {
          try {
            return web_client(prometheus_port_).ask({.target = "/-/ready"}).status == 200;
          } catch (const std::exception&) {
            return false;
          }
        },
        limit));
  }

  /// What Prometheus has for a query now.
  boost::json::array query(const std::string& x) {
    const auto reply = web_client(prometheus_port_).ask({.target = "/api/v1/query?query=" + encoded(x)});
    EXPECT_EQ(reply.status, 200u) << x << ": " << reply.body;
    return boost::json::parse(reply.body).at("data").at("result").as_array();
  }

  /// The value of a query of one series; NaN: there is none.
  double value_of(const std::string& x) {
    const auto found = query(x);
    return found.size() == 1 ? std::stod(std::string(found[0].at("value").at(1).as_string())) : std::nan("");
  }

  void expect(const std::string& x, double wanted) {
    double last = 0;
    EXPECT_TRUE(eventually([&] { return std::abs((last = value_of(x)) - wanted) <= 1e-6 * std::abs(wanted); }, limit))
        << x << " is " << last << ", not " << wanted;
  }

  outcome promtool(const std::string& arguments, const std::string& in = "/dev/null") {
    return run_program({"/bin/sh", "-c", "exec \"$0\" " + arguments + " <\"$1\"", programs / "promtool", in});
  }

private:
  std::unique_ptr<child_process> prometheus_;
  std::uint16_t prometheus_port_ = 0;
};

// given: the rules that are shipped / expected: promtool finds nothing wrong, and each fires when it should, and only
// then
TEST_F(monitoring, has_good_rules) {
  const auto here = "cd " + shipped.string() + " && exec \"$0\" ";
  for (const auto* x : {"check rules alerts.yml", "test rules alerts_test.yml"}) {
    const auto done = run_program({"/bin/sh", "-c", here + x, programs / "promtool"});
    EXPECT_EQ(done.status, 0) << done.output << done.error;
  }
  const auto rules = content(shipped / "alerts.yml"), tests = content(shipped / "alerts_test.yml");
  const std::regex alert("alert: (\\w+)");
  for (std::sregex_iterator i(rules.begin(), rules.end(), alert), end; i != end; ++i)
    EXPECT_NE(tests.find("alertname: " + (*i)[1].str() + "\n        exp_alerts"), tests.npos) << (*i)[1];
}

// given: a job on two workers of which one is killed and one leaves with notice, others come; a manager that is killed
// / expected: Prometheus has what status says, each metric that is promised, the counts of the losses, and data for
// each query of the board; promtool finds nothing wrong with the text; the manager's absence
TEST_F(monitoring, has_what_status_has) {
  start_nodes({"a", "b"});
  start_web({"--read-token-file", folder.path() / "read_token"});
  start_prometheus();
  auto job = endless_job();
  job.data.validation = 16;
  job.evaluate_every = 10;
  job.keeper_every = 50; // a keeper has room for three: a busy manager asks for one before that is gone
  const auto id = cluster->client().submit(job);
  wait_for_training(id, 2);
  expect("parcae_preemptions_total{notice=\"no\"}", 0);
  cluster->node("a").signal(SIGKILL);
  cluster->wait_for("the loss", limit, [](const status_reply& x) { return living(x, "worker") == 1; });
  expect("parcae_preemptions_total{notice=\"no\"}", 1);
  wait_for_training(id, 1);
  cluster->start_node("c");
  wait_for_training(id, 2);
  cluster->node("b").signal(SIGTERM);
  cluster->wait_for("the end of the notice", limit, [](const status_reply& x) { return living(x, "worker") == 1; });
  expect("parcae_preemptions_total{notice=\"yes\"}", 1);
  expect("parcae_preemptions_total{notice=\"no\"}", 1);
  wait_for_training(id, 1);
  expect("parcae_instances{role=\"worker\", state=\"alive\"}", 1);
  expect("sum(parcae_instances{role=\"keeper\"})", 1);
  expect("parcae_slots{use=\"training\"}", 1);
  expect("parcae_slots{use=\"spare\"}", 0);
  expect("parcae_manager_up", 1);
  const auto goodput = value_of("parcae_job_goodput_ratio");
  EXPECT_GT(goodput, 0);
  EXPECT_LT(goodput, 1);
  EXPECT_GT(value_of("parcae_job_samples_per_second"), 0);
  wait_for_job(id, "a checkpoint", [](const job_status& j) { return j.checkpoint_steps > 0 && j.evaluated_steps > 0; });

  // Each query of the board, while the job runs.
  const auto board = boost::json::parse(content(shipped / "grafana.json"));
  for (const auto& panel : board.at("panels").as_array())
    for (const auto& target : panel.at("targets").as_array()) {
      const std::string expression(target.at("expr").as_string());
      EXPECT_TRUE(eventually([&] { return !query(expression).empty(); }, limit)) << expression;
    }

  EXPECT_EQ(run({"cancel", std::to_string(id)}).status, 0);
  wait_for_end(id);
  const auto end = job_of(cluster->client().status({.job = id}), id);
  const auto of_job = [&](const std::string& name, const std::string& more = "") {
    return name + "{job=\"" + std::to_string(id) + "\", name=\"small\"" + more + "}";
  };
  expect(of_job("parcae_job_running"), 0);
  expect(of_job("parcae_job_steps_total"), static_cast<double>(end.steps_done));
  expect(of_job("parcae_job_samples_total"), static_cast<double>(end.steps_done * job.global_batch));
  expect(of_job("parcae_job_steps_replayed_total"), static_cast<double>(end.replayed_steps));
  expect(of_job("parcae_job_loss"), end.loss);
  expect(of_job("parcae_job_validation_loss"), end.validation_loss);
  expect(of_job("parcae_protected_step"), static_cast<double>(end.protected_steps));
  expect(of_job("parcae_checkpoint_step"), static_cast<double>(end.checkpoint_steps));
  expect(of_job("parcae_checkpoint_failures_total"), 0);
  double stalls = 0, stalled_s = 0, plans = 0;
  std::map<std::string, double> of_kind;
  for (const auto& x : end.changes) {
    stalls += x.stall_ms >= 0 ? 1 : 0;
    of_kind[x.kind] += x.stall_ms >= 0 ? 1 : 0;
    stalled_s += std::max(0.0, x.stall_ms) / 1000;
    plans += x.planned_ms >= 0 ? 1 : 0;
  }
  EXPECT_GE(stalls, 3);
  expect("sum(parcae_stall_seconds_count)", stalls);
  for (const auto& [kind, count] : of_kind)
    if (count > 0)
      expect(of_job("parcae_stall_seconds_count", ", kind=\"" + kind + "\""), count);
  expect("sum(parcae_stall_seconds_sum)", stalled_s);
  expect(of_job("parcae_decision_seconds_count"), plans);

  const auto metrics = ask({.target = "/metrics"});
  EXPECT_EQ(metrics.headers.at("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  const auto file = folder.path() / "metrics";
  std::ofstream(file) << metrics.body;
  const auto checked = promtool("check metrics", file);
  EXPECT_EQ(checked.status, 0) << checked.output << checked.error;
  EXPECT_THAT(checked.output + checked.error, IsEmpty());
  for (const auto* name :
       {"parcae_job_steps_total", "parcae_job_samples_total", "parcae_job_steps_replayed_total", "parcae_job_loss",
        "parcae_job_samples_per_second", "parcae_job_goodput_ratio", "parcae_stall_seconds_bucket",
        "parcae_preemptions_total", "parcae_instances", "parcae_slots", "parcae_protected_step",
        "parcae_checkpoint_step", "parcae_checkpoint_failures_total", "parcae_decision_seconds_bucket",
        "parcae_manager_up", "parcae_certificate_ending"})
    EXPECT_FALSE(query("last_over_time(" + std::string(name) + "[10m])").empty()) << name;

  kill_manager();
  expect("parcae_manager_up", 0);
}

struct monitoring_of_market : monitoring {
  void SetUp() override {
    monitoring::SetUp();
    if (IsSkipped())
      return;
    market.emplace(folder.path() / "market.toml", small_market::counts{{0ms, 2}});
    cluster_ground ground;
    ground.manager_arguments = market->manager_arguments();
    std::filesystem::create_directory(folder.path() / "rented");
    cluster.emplace(sibling_program(""), folder.path() / "rented", ground);
    cluster->start_keeper();
  }

  void TearDown() override {
    monitoring::TearDown();
    cluster.reset(); // it reads the feed
  }

  std::optional<small_market> market;
};

// given: a manager that rents / expected: Prometheus has what status says that it cost
TEST_F(monitoring_of_market, has_the_cost) {
  start_web({"--read-token-file", folder.path() / "read_token"});
  start_prometheus();
  auto job = small_job(2'000);
  job.budget.deadline_ms = 600'000;
  cluster->client().submit(job);
  const auto spent =
      cluster->wait_for("a cost", limit, [](const status_reply& x) { return x.market.usd > 0; }).market.usd;
  double told = 0;
  EXPECT_TRUE(eventually([&] { return (told = value_of("parcae_cost_dollars_total")) >= spent; }, limit)) << told;
  constexpr double rounded = 1e-15; // prometheus-cpp writes 16 digits
  EXPECT_LE(told, cluster->client().status().market.usd * (1 + rounded));
}

} // namespace
} // namespace parcae
