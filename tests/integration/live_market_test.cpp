// A manager that rents: real nodes come by the hook and go with the market; the job ends in time with the undisturbed
// run's bits, and nothing is left behind, whatever the market does.

#include "tests/support/cluster.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/market_double.hpp"

#include <atomic>

namespace parcae {
namespace {

constexpr double interval_s = 0.5, start_s = 2;

struct live_market : cluster_test {
  void SetUp() override {
    // Two spot instances; then none; then two again.
    market.emplace(
        market_double_options{{{"spot", 3'600, {{0ms, 2}, {1'000ms, 0}, {2'000ms, 2}}}, {"sure", 10'800, {{0ms, 2}}}},
                              sibling_program("parcae-node").string() + " --cloud none --own-machine",
                              [this] { return std::chrono::milliseconds(time); }});
    const auto file = folder.path() / "market.toml";
    std::ofstream(file)
        << "feed = \"" << market->feed() << "\"\n"
        << "[[pool]]\nname = \"spot\"\nplace = \"here\"\nkind = \"k\"\nspot = true\nprice = 3600\nmost = 2\n"
           "start = \"2s\"\n"
        << "[[pool]]\nname = \"sure\"\nplace = \"here\"\nkind = \"k\"\nprice = 10800\nmost = 2\nstart = \"2s\"\n";
    ground.manager_arguments = {"--market",          file.string(), "--provision", market->hook().string(),
                                "--market-interval", "500ms"};
    std::filesystem::create_directory(folder.path() / "rented");
    cluster.emplace(sibling_program(""), folder.path() / "rented", ground);
    cluster->start_keeper();
  }

  void TearDown() override {
    cluster_test::TearDown();
    cluster.reset(); // it reads the feed
  }

  job_specification rented_job() {
    auto x = small_job(2'000);
    x.budget.deadline_ms = 600'000;
    return x;
  }

  job_status wait_for_steps(std::uint64_t id, std::uint64_t steps) {
    return wait_for_job(id, std::to_string(steps) + " steps", [&](const job_status& j) {
      return j.steps_done >= steps || (j.state != "running" && j.state != "queued");
    });
  }

  market_status shown() { return cluster->client().status().market; }

  /// In time, with the undisturbed bits; then everything is given back, and the ledger says what the market billed.
  void expect_good_end(std::uint64_t id, job_specification job) {
    const auto end = wait_for_done(id);
    EXPECT_GT(shown().deadline_us, 0);
    EXPECT_TRUE(eventually([&] { return market->running("spot").empty() && market->running("sure").empty(); }, 5s))
        << "nothing is kept that no job needs";
    EXPECT_LE(market->most("spot"), 2u);
    EXPECT_LE(market->most("sure"), 2u);
    const double billed = market->billed_usd("spot") + market->billed_usd("sure");
    const auto lives = static_cast<double>(market->started("spot") + market->started("sure"));
    // The manager sees an instance from its start to its end within an interval each, and takes its start for the usual
    // one, which is as long as a life here takes to begin.
    EXPECT_NEAR(shown().usd, billed, 0.02 * billed + 3 * (2 * interval_s + start_s) * lives);
    job.budget = {};
    EXPECT_EQ(end.parameters_sha256, undisturbed(job).parameters_sha256);
  }

  std::atomic<int> time = 0; ///< milliseconds of the market
  std::optional<market_double> market;
  cluster_ground ground;
};

// given: spot instances that come, are all taken away, and come back / expected: as above; on demand helps out or the
// job waits, as is cheaper
TEST_F(live_market, a_job_is_rented_for) {
  const auto job = rented_job();
  const auto id = cluster->client().submit(job);
  wait_for_steps(id, 300);
  time = 1'000;
  EXPECT_TRUE(eventually([&] { return market->running("spot").empty(); }, limit));
  const auto before = wait_for_steps(id, 301);
  time = 2'000;
  wait_for_steps(id, before.steps_done + 300);
  EXPECT_FALSE(shown().why.empty());
  expect_good_end(id, job);
}

// given: the manager is killed in the middle / expected: the same ledger and deadline, nothing bought twice
TEST_F(live_market, a_manager_dies) {
  const auto job = rented_job();
  const auto id = cluster->client().submit(job);
  wait_for_steps(id, 300);
  const auto before = shown();
  kill_manager();
  cluster->restart_manager();
  wait_for_steps(id, 600);
  const auto after =
      cluster->wait_for("the market", limit, [](const status_reply& x) { return x.market.job != 0; }).market;
  EXPECT_EQ(after.deadline_us, before.deadline_us);
  EXPECT_GE(after.usd, before.usd);
  expect_good_end(id, job);
}

// given: a hook that answers no JSON and a feed that tells garbage while spot instances go / expected: both are named,
// training goes on; and both are asked again
TEST_F(live_market, hook_and_feed_fail) {
  const auto job = rented_job();
  const auto id = cluster->client().submit(job);
  const auto before = wait_for_steps(id, 200);
  market->be(hook_conduct::nonsense);
  market->be(feed_conduct::garbage);
  time = 1'000;
  EXPECT_TRUE(eventually([&] { return !shown().feed.empty() && !shown().hook.empty(); }, limit));
  wait_for_steps(id, before.steps_done + 300);
  market->be(hook_conduct::good);
  market->be(feed_conduct::good);
  EXPECT_TRUE(eventually([&] { return shown().feed.empty() && shown().hook.empty(); }, limit));
  expect_good_end(id, job);
}

// given: a manager that rents is told to end, without a job and with one / expected: it ends well, at once
TEST_F(live_market, a_manager_ends) {
  cluster->manager().signal(SIGTERM);
  EXPECT_EQ(cluster->manager().wait(limit), 0);
  cluster->restart_manager();
  wait_for_steps(cluster->client().submit(rented_job()), 20);
  cluster->manager().signal(SIGTERM);
  EXPECT_EQ(cluster->manager().wait(limit), 0);
}

} // namespace
} // namespace parcae
