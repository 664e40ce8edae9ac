// A manager that rents: real nodes come by the hook and go with the market; the job ends in time with the undisturbed
// run's bits, and nothing is left behind, whatever the market does, and whoever leads.

#include "tests/support/eventually.hpp"
#include "tests/support/rented_cluster.hpp"
#include "tests/support/small_market.hpp"
#include "tests/support/standby_cluster.hpp"

#include <boost/json.hpp>

#include <spdlog/fmt/fmt.h>

#include <cmath>

namespace parcae {
namespace {

/// A manager whose log is in that folder has welcomed it.
bool has_joined(const std::filesystem::path& logs, const std::string& instance) {
  for (const auto* manager : {"manager", "m0", "m1"})
    if (content(logs / (std::string(manager) + ".log")).find("instance " + instance + " joined") != std::string::npos)
      return true;
  return false;
}

/// Everything is given back, there never was more than may be, and the ledger says what the market billed, but for what
/// ended before it joined.
void expect_given_back(const small_market& market, const std::filesystem::path& logs,
                       const std::function<market_status()>& shown) {
  EXPECT_TRUE(eventually([&] { return market.running().empty(); }, 5s)) << "nothing is kept that no job needs";
  double billed = 0;
  std::string lives;
  std::size_t taken = 0;
  for (const auto& pool : market.seen.pools()) {
    EXPECT_LE(market.seen.most(pool), 2u) << pool;
    taken += market.seen.taken(pool);
    for (const auto& [name, usd] : market.seen.bills_usd(pool)) {
      const bool joined = has_joined(logs, name);
      billed += joined ? usd : 0;
      lives += fmt::format("{} ${:.3f}{}\n", name, usd, joined ? "" : " before it joined");
    }
  }
  // A process that is told by the market to end lets go of the manager first, and is gone up to a second later.
  const double most = 0.02 * billed + 1.0 * static_cast<double>(taken);
  market_status last; // an interval later it has the last ends
  double paid = 0;    // but for what left a place
  EXPECT_TRUE(eventually(
      [&] {
        last = shown();
        paid = 0;
        for (const auto& pool : last.pools)
          paid += pool.usd;
        return std::abs(paid - billed) <= most;
      },
      5s));
  for (const auto& pool : last.pools)
    lives += fmt::format("{} ${:.3f} by the ledger\n", pool.name, pool.usd);
  std::cout << fmt::format("billed ${:.3f}, by the ledger ${:.3f}\n", billed, paid) << lives;
}

struct live_market : rented_cluster {
  void SetUp() override {
    // Two spot instances; then none; then two again.
    begin({{0ms, 2}, {1'000ms, 0}, {2'000ms, 2}});
  }

  void begin(const small_market::counts& spot, const small_market::counts& far = {}) {
    cluster.reset();
    market.reset();
    market.emplace(folder.path() / "market.toml", spot, far);
    begin_rented(market->manager_arguments());
  }

  job_specification rented_job() {
    auto x = small_job(2'000);
    x.budget.deadline_ms = 60'000; // nobody waits for long for what may become cheaper
    return x;
  }

  job_status wait_for_steps(std::uint64_t id, std::uint64_t steps) {
    return wait_for_job(id, std::to_string(steps) + " steps", [&](const job_status& j) {
      return j.steps_done >= steps || (j.state != "running" && j.state != "queued");
    });
  }

  market_status shown() { return cluster->client().status().market; }

  /// It never waits for what may become cheaper: of spot as many as help, or one on demand.
  job_specification impatient_job() {
    auto x = endless_job();
    x.budget.hourly_usd = 11'000;
    x.checkpoint_every = 200;
    x.checkpoints_kept = 10;
    return x;
  }

  void expect_good_end_behind_checkpoint(std::uint64_t id, job_specification job) {
    const auto end = end_behind_checkpoint(id);
    expect_given_back(*market, rented, [this] { return shown(); });
    job.budget = {};
    job.steps = end.steps_done;
    EXPECT_EQ(end.parameters_sha256, undisturbed(job).parameters_sha256);
  }

  /// As many run as are wanted, and nothing else is on its way.
  bool is_at_rest(std::uint64_t job) {
    const auto now = shown();
    std::size_t have = 0;
    for (const auto& pool : now.pools)
      have += pool.want == pool.have ? pool.have : 100;
    return now.job == job && have > 0 && have == market->running().size();
  }

  /// In time, with the undisturbed bits; then everything is given back, and the ledger says what the market billed.
  void expect_good_end(std::uint64_t id, job_specification job) {
    EXPECT_GT(shown().deadline_us, 0);
    const auto end = wait_for_done(id);
    expect_given_back(*market, rented, [this] { return shown(); });
    job.budget = {};
    EXPECT_EQ(end.parameters_sha256, undisturbed(job).parameters_sha256);
  }

  std::optional<small_market> market;
};

// given: spot instances that come, are all taken away, and come back / expected: as above; on demand helps out or the
// job waits, as is cheaper
TEST_F(live_market, a_job_is_rented_for) {
  auto job = rented_job();
  job.budget.deadline_ms = 600'000;
  job.steps = 6'000; // more than who is taken away trains until the end of its notice
  const auto id = cluster->client().submit(job);
  wait_for_steps(id, 300);
  market->time = 1'000;
  EXPECT_TRUE(eventually([&] { return market->seen.running("spot").empty(); }, limit));
  const auto before = wait_for_steps(id, 301);
  market->time = 2'000;
  wait_for_steps(id, before.steps_done + 300);
  const auto now = shown();
  EXPECT_FALSE(now.why.empty());
  EXPECT_GT(now.expected_us_spread.p10, 0);
  EXPECT_LE(now.expected_us_spread.p10, now.expected_us_spread.p90);
  EXPECT_LE(now.expected_usd_spread.p10, now.expected_usd_spread.p90);
  expect_good_end(id, job);
}

// given: spot instances that all go, while cheaper ones come to be had in another place / expected: the job moves
// there; those of two places never train together; the undisturbed run's bits; the way is in the ledger
TEST_F(live_market, a_job_moves_between_places) {
  begin({{0ms, 2}, {1'000ms, 0}}, {{0ms, 0}, {1'000ms, 2}});
  auto job = rented_job();
  const auto id = cluster->client().submit(job);
  const auto is_in = [](const job_status& x, const std::string& pool) {
    return !x.grid.empty() && std::ranges::all_of(x.grid, [&](const auto& slot) { return slot.starts_with(pool); });
  };
  const auto wait_for_place = [&](bool is_far) {
    return wait_for_job(id, is_far ? "training there" : "training here", [&](const job_status& x) {
      const bool far = is_in(x, "far-"),
                 here = std::ranges::none_of(x.grid, [](const auto&slot) { return slot.starts_with("far-"); });
      EXPECT_TRUE(far || here) << "in two places";
      return x.state != "running" || (x.phase == "running" && !x.grid.empty() && is_far == far);
    });
  };
  wait_for_place(false);
  wait_for_steps(id, 200);
  market->time = 1'000;
  const auto before = wait_for_place(true);
  wait_for_steps(id, before.steps_done + 200);
  double instances_usd = 0;
  const auto now = shown();
  for (const auto& pool : now.pools)
    instances_usd += pool.usd;
  EXPECT_GT(now.usd, instances_usd + 0.01) << "there is a price of the way";
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
  market->seen.be(hook_conduct::nonsense);
  market->seen.be(feed_conduct::garbage);
  market->time = 1'000;
  EXPECT_TRUE(eventually([&] { return !shown().feed.empty() && !shown().hook.empty(); }, limit));
  wait_for_steps(id, before.steps_done + 300);
  market->seen.be(hook_conduct::good);
  market->seen.be(feed_conduct::good);
  EXPECT_TRUE(eventually([&] { return shown().feed.empty() && shown().hook.empty(); }, limit));
  expect_good_end(id, job);
}

// given: a job that trains while spot instances come and go, and a hook that starts twice as many, fails, starts
// nothing and says that all is there, answers late; then a feed that is away, jumps, has no end / expected: one line
// says what is wrong until it is over; nobody is kept twice; what is given back costs no step; the undisturbed run's
// bits
TEST_F(live_market, nothing_is_bought_twice_whatever_hook_and_feed_do) {
  begin({{0ms, 2}, {1'000ms, 0}, {2'000ms, 2}, {3'000ms, 0}, {4'000ms, 2}});
  auto job = impatient_job();
  const auto id = cluster->client().submit(job);
  wait_for_steps(id, 200);
  const auto now = [&] { return job_of(cluster->client().status({.job = id}), id); };

  // `line`: what tells of it; none: there is nothing to be told. Whether a step was lost, once it trained again.
  const auto happens = [&](hook_conduct conduct, int time, const std::function<std::string(const market_status&)>& line,
                           const std::string& what) {
    SCOPED_TRACE(what + " from " + std::to_string(time));
    market->seen.be(conduct);
    market->time = time;
    const auto told = [&] { return !line || line(shown()).find(what) != std::string::npos; };
    EXPECT_TRUE(eventually(told, limit));
    if (line)
      market->seen.be(hook_conduct::good);
    const auto before = now().steps_done;
    const auto replayed = wait_for_steps(id, before + 20).replayed_steps;
    EXPECT_TRUE(eventually([&] { return is_at_rest(id); }, limit)) << "as many run as are wanted";
    EXPECT_EQ(now().replayed_steps, replayed);
    EXPECT_TRUE(eventually([&] { return !line || line(shown()).empty(); }, limit));
    for (const auto& pool : market->seen.pools())
      EXPECT_LE(market->seen.most(pool), 2u) << pool;
    market->seen.be(hook_conduct::good);
  };
  const auto of_hook = [](const market_status& x) { return x.hook; };
  const auto of_sure = [](const market_status& x) {
    const auto pool = std::ranges::find(x.pools, "sure", &pool_status::name);
    return pool == x.pools.end() ? "" : pool->why;
  };
  happens(hook_conduct::starts_twice, 1'000, {}, "twice as many");
  EXPECT_EQ(market->seen.most("sure"), 2u) << "one of them is given back";
  const auto replayed = now().replayed_steps;
  happens(hook_conduct::fails, 2'000, of_hook, "the double fails");
  EXPECT_EQ(now().replayed_steps, replayed) << "what is on demand is given back for what is spot";
  happens(hook_conduct::lies, 3'000, of_sure, "asked for did not come");
  happens(hook_conduct::slow, 4'000, {}, "late");

  for (const auto conduct : {feed_conduct::away, feed_conduct::jumps, feed_conduct::endless}) {
    market->seen.be(conduct);
    EXPECT_TRUE(eventually([&] { return !shown().feed.empty(); }, limit)) << static_cast<int>(conduct);
    market->seen.be(feed_conduct::good);
    EXPECT_TRUE(eventually([&] { return shown().feed.empty(); }, limit)) << shown().feed;
  }
  expect_good_end_behind_checkpoint(id, job);
}

// given: one of two spot instances goes while hook and feed hang for longer than they may; reads of a sample take 6 ms,
// so that there are few steps meanwhile / expected: the other trains on; one line each says what is wrong until they
// answer again; then there are as many as are wanted, none of them twice
TEST_F(live_market, hook_and_feed_hang) {
  if (std::string_view(PARCAE_SLOW_DISK).empty())
    GTEST_SKIP() << "nothing can be preloaded before a sanitizer";
  const auto disk = folder.path() / "disk";
  std::filesystem::create_directory(disk);
  std::ofstream{disk.string() + ".slow"};
  std::ofstream{disk / "tokens"};
  std::filesystem::resize_file(disk / "tokens", 33 << 20); // more than is held in memory
  ::setenv("LD_PRELOAD", PARCAE_SLOW_DISK, 1);
  ::setenv("PARCAE_SLOW_DISK", disk.c_str(), 1);
  ::setenv("PARCAE_SLOW_READS", "6000 6000", 1);
  begin({{0ms, 2}, {1'000ms, 1}});
  for (const auto* name : {"LD_PRELOAD", "PARCAE_SLOW_DISK", "PARCAE_SLOW_READS"})
    ::unsetenv(name);
  auto job = impatient_job();
  job.data = {"tokens", disk / "tokens"};
  const auto id = cluster->client().submit(job);
  wait_for_steps(id, 20);
  EXPECT_TRUE(eventually([&] { return is_at_rest(id); }, limit));
  market->seen.be(hook_conduct::hangs);
  market->seen.be(feed_conduct::hangs);
  market->time = 1'000;
  EXPECT_TRUE(eventually([&] { return market->seen.running("spot").size() == 1; }, limit));
  auto steps = job_of(cluster->client().status({.job = id}), id).steps_done;
  for (const auto line : {&market_status::feed, &market_status::hook}) { // 10 s, and 60 s
    EXPECT_TRUE(eventually([&] { return !(shown().*line).empty(); }, 90s));
    steps = wait_for_steps(id, steps + 20).steps_done;
  }
  market->seen.be(hook_conduct::good);
  market->seen.be(feed_conduct::good);
  EXPECT_TRUE(eventually([&] { return shown().feed.empty() && shown().hook.empty() && is_at_rest(id); }, limit));
  expect_good_end_behind_checkpoint(id, job);
}

// given: spot instances go while the hook hangs, and the manager is killed then / expected: the hook's call ends with
// it; the next one asks again, and as many come as are wanted
TEST_F(live_market, a_manager_dies_while_its_hook_hangs) {
  const auto job = impatient_job();
  const auto id = cluster->client().submit(job);
  wait_for_steps(id, 200);
  const auto asked = market->seen.requests().size();
  market->seen.be(hook_conduct::hangs);
  market->time = 1'000;
  EXPECT_TRUE(eventually([&] { return market->seen.requests().size() > asked; }, limit));
  kill_manager();
  market->seen.be(hook_conduct::good);
  cluster->restart_manager();
  // Before spot is asked for again: no money is left of the hour for both, so that the one on demand goes for it.
  EXPECT_TRUE(eventually([&] { return is_at_rest(id); }, limit));
  EXPECT_EQ(market->seen.started("sure"), 1u) << "nothing is bought twice";
  const auto before = wait_for_steps(id, 201);
  wait_for_steps(id, before.steps_done + 200);
  EXPECT_TRUE(eventually([&] { return is_at_rest(id); }, limit));
  expect_good_end_behind_checkpoint(id, job);
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

// given: a job whose hourly limit allows no instance / expected: --check refuses it; submitted anyway, the user is
// warned, and the status has the reason
TEST_F(live_market, what_cannot_be_rented_is_said) {
  const auto file = write("poor.toml", "[job]\nsteps = 5\n[data]\npath = \"/usr/share/common-licenses/GPL-3\"\n"
                                       "[budget]\nhourly = 1\n");
  const auto checked = run({"submit", file, "--check"});
  EXPECT_NE(checked.status, 0);
  EXPECT_THAT(checked.error, HasSubstr("budget.hourly: $1.00 allow no instance"));
  const auto submitted = run_well({"submit", file});
  EXPECT_THAT(submitted.error, HasSubstr("warning: budget.hourly: $1.00 allow no instance"));
  EXPECT_TRUE(eventually([&] { return shown().why.find("budget.hourly") != std::string::npos; }, limit));
  EXPECT_TRUE(market->running().empty());
}

// given: managers whose rented nodes would not find who leads; one that stands by with a market file that is wrong /
// expected: refused at once, not when they are to lead
TEST_F(live_market, what_cannot_be_taken_over_is_refused) {
  const auto refusal = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all{"manager", "--listen", "127.0.0.1:0", "--store", "etcd://127.0.0.1:1", "--standby"};
    all.insert(all.end(), more.begin(), more.end());
    const auto x = run(std::move(all), false);
    EXPECT_NE(x.status.value_or(0), 0);
    return x.error;
  };
  auto arguments = market->manager_arguments();
  EXPECT_THAT(refusal(arguments), HasSubstr("--reached-at"));
  arguments.at(1) = write("wrong.toml", "[[pool]]\nname = 3\n");
  arguments.insert(arguments.end(), {"--reached-at", "127.0.0.1:1,127.0.0.1:2"});
  EXPECT_THAT(refusal(arguments), HasSubstr("wrong.toml"));
}

/// Both managers have the same market.
struct live_market_with_standby : standby_cluster {
  void SetUp() override {
    market.emplace(folder.path() / "market.toml", small_market::counts{{0ms, 2}});
    standby_cluster::SetUp();
  }

  void TearDown() override {
    standby_cluster::TearDown();
    processes.clear(); // they read the feed
  }

  std::vector<std::string> workers() override { return {}; }

  std::vector<std::string> more_of_manager() override {
    auto result = market->manager_arguments();
    result.insert(result.end(), {"--reached-at", both()});
    return result;
  }

  /// When what is rented for the job is there, and nothing else is on its way.
  market_status at_rest(std::uint64_t job) {
    return wait_for(limit, "what is wanted",
                    [&](const status_reply& x) {
                      std::size_t have = 0;
                      for (const auto& pool : x.market.pools)
                        have += pool.want == pool.have ? pool.have : 0;
                      return x.market.job == job && have > 0 && have == market->running().size();
                    })
        .market;
  }

  std::optional<small_market> market;
};

// given: the manager that leads and rents is killed while what it rented trains / expected: the other one goes on with
// the same deadline and ledger; what was rented trains on, and nothing is bought again; the undisturbed run's bits
TEST_F(live_market_with_standby, a_standby_takes_over) {
  auto job = endless_job();
  job.budget.deadline_ms = 36'000'000;
  job.checkpoint_every = 200; // what is seen to be there is there for a while
  job.checkpoints_kept = 10;
  const auto id = submit(job);
  const auto training =
      wait_for_leader_with(id, limit, "300 steps", [](const job_status& j) { return j.steps_done > 300; });
  const auto before = at_rest(id);
  auto names = market->running();
  processes.at(leader()).signal(SIGKILL);
  const auto told = market->seen.requests().size();
  const auto after = at_rest(id);
  EXPECT_EQ(after.deadline_us, before.deadline_us);
  EXPECT_GE(after.job_usd, before.job_usd);
  EXPECT_TRUE(eventually([&] { return market->seen.requests().size() > told; }, limit)) << "the hook is told again";
  std::vector<std::string> have;
  const auto request = boost::json::parse(market->seen.requests().at(told));
  for (const auto& pool : request.at("pools").as_array()) {
    EXPECT_EQ(pool.at("want").to_number<std::size_t>(), pool.at("have").as_array().size()) << "nothing is bought again";
    for (const auto& name : pool.at("have").as_array())
      have.emplace_back(name.as_string());
  }
  EXPECT_THAT(have, testing::UnorderedElementsAreArray(names));
  wait_for_leader_with(id, limit, "more steps",
                       [&](const job_status& j) { return j.steps_done > training.steps_done + 600; });
  const auto end = end_behind_checkpoint(id);
  expect_given_back(*market, folder.path(),
                    [this] { return wait_for(limit, "the market", [](const status_reply&) { return true; }).market; });
  job.budget = {};
  expect_undisturbed_bits_of(end, job);
}

} // namespace
} // namespace parcae
