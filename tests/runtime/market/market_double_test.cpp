// The double of a market itself, with the product's feed and provisioner before it: nodes are stand-ins.

#include "runtime/market/feed.hpp"
#include "runtime/market/provision.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/market_double.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <fstream>

namespace parcae {
namespace {

using namespace std::chrono_literals;
using testing::IsEmpty;

/// Each call of its hook starts Python twice.
template <class Condition>
bool soon(Condition condition) {
  return eventually(condition, 60s);
}

class market_double_test : public testing::Test {
protected:
  market_double_test() {
    std::ofstream(folder.path() / "node") << "#!/usr/bin/env python3\nimport signal\nsignal.pause()\n";
    std::filesystem::permissions(folder.path() / "node", std::filesystem::perms::owner_all);
  }

  ~market_double_test() override {
    hook.reset();
    feed.reset();
  }

  void open(std::vector<std::pair<std::chrono::milliseconds, unsigned>> available) {
    market.emplace(market_double_options{{{"spot", 3'600, std::move(available)}, {"other", 1, {{0ms, 9}}}},
                                         (folder.path() / "node").string(),
                                         [this] { return std::chrono::milliseconds(time); }});
    provision_options options{market->hook().string(), "boss:4242"};
    options.pace.pause = {10ms, 10ms};
    options.pace.again = 20ms;
    options.pace.call = 20s;
    hook = std::make_unique<provisioner>(options, [this](const provision_answer& x) {
      const std::lock_guard held(mutex);
      answer = x;
      ++answers;
    });
  }

  void want(std::uint32_t n, std::vector<std::string> have = {}, std::vector<std::string> release = {}) {
    hook->want({++requests, {{"spot", "k", "p", n, std::move(have), std::move(release)}}});
  }

  /// An answer to what was wanted last, or later.
  bool answered(const std::function<bool(const provision_answer&)>& condition) {
    return soon([&] {
      const std::lock_guard held(mutex);
      return answer.request == requests && condition(answer);
    });
  }

  bool runs(std::size_t n) {
    return soon([&] { return market->running("spot").size() == n; });
  }

  bool fails_with(const std::string& problem) {
    return answered([&](const auto& x) { return x.problem.find(problem) != std::string::npos; });
  }

  scratch_folder folder{"parcae-market-double-test"};
  std::atomic<int> time = 0; ///< milliseconds of the trace
  std::optional<market_double> market;
  std::unique_ptr<provisioner> hook;
  std::unique_ptr<price_feed> feed;
  std::mutex mutex;
  provision_answer answer;
  feed_report report;
  std::uint64_t requests = 0;
  int answers = 0;
};

// given: a trace of 2, 1, then 3, and 3 that are wanted / expected: so many run, never more; what goes is gone by
// notice and by SIGKILL; they are billed as long as they run; none is left in the end
TEST_F(market_double_test, follows_its_trace) {
  const auto began = std::chrono::steady_clock::now();
  open({{0ms, 2}, {1000ms, 1}, {2000ms, 3}, {3000ms, 0}});
  want(3);
  EXPECT_TRUE(runs(2));
  EXPECT_TRUE(answered([](const auto& x) {
    return x.pools.size() == 1 && x.pools[0] == pool_word{"spot", 2, "capacity-not-available"};
  }));
  time = 1000;
  EXPECT_TRUE(soon([&] { return market->taken("spot") == 1 && market->running("spot").size() == 1; }));
  time = 2000;
  EXPECT_TRUE(runs(3));
  time = 3000;
  EXPECT_TRUE(soon([&] { return market->taken("spot") == 4 && market->running("spot").empty(); }));
  EXPECT_EQ(market->most("spot"), 3u);
  EXPECT_EQ(market->started("spot"), 4u);
  EXPECT_EQ(market->started("other"), 0u);
  EXPECT_GT(market->billed_usd("spot"), 0);
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - began;
  EXPECT_LT(market->billed_usd("spot"), 3 * all.count()) << "a dollar for each second";
  time = 2000;
  EXPECT_TRUE(runs(3));
  hook.reset();
  market.reset();
}

// given: what is released, and what never joined while less is wanted / expected: it goes, the others stay
TEST_F(market_double_test, gives_back) {
  open({{0ms, 9}});
  want(3);
  EXPECT_TRUE(runs(3));
  const auto names = market->running("spot");
  want(1, {names[0]}, {names[1]});
  EXPECT_TRUE(runs(1));
  EXPECT_EQ(market->running("spot").at(0), names[0]);
  want(0, {}, {names[0]});
  EXPECT_TRUE(runs(0));
  EXPECT_EQ(market->started("spot"), 3u);
}

// given: a hook that fails, hangs, talks nonsense, is late, lies, starts twice / expected: it is told or seen; then,
// good again, it does what is wanted, and nothing twice
TEST_F(market_double_test, its_hook_misbehaves) {
  open({{0ms, 9}});
  market->be(hook_conduct::fails);
  want(1);
  EXPECT_TRUE(fails_with("status 1: the double fails"));
  market->be(hook_conduct::lies);
  EXPECT_TRUE(answered([](const auto& x) { return x.problem.empty() && x.pools.at(0).can == 1u; }));
  EXPECT_THAT(market->running("spot"), IsEmpty());
  market->be(hook_conduct::nonsense);
  EXPECT_TRUE(fails_with("its answer is no JSON"));
  EXPECT_TRUE(runs(1)) << "it did what it was told";
  market->be(hook_conduct::starts_twice);
  want(2);
  EXPECT_TRUE(runs(4));
  market->be(hook_conduct::slow);
  EXPECT_TRUE(runs(2)) << "those that did not join and are too many go";
  EXPECT_EQ(market->started("spot"), 4u);
  EXPECT_FALSE(market->requests().empty());
}

// given: a feed that is away, garbage, too long, hangs, jumps / expected: the last good price stays each time
TEST_F(market_double_test, its_feed_misbehaves) {
  open({{0ms, 1}});
  instance_pool pool;
  pool.name = "spot";
  feed_options options{market->feed(), {pool}};
  options.every = 5ms;
  options.limits.idle = options.limits.whole = 2s;
  feed = std::make_unique<price_feed>(options, [this](const feed_report& x) {
    const std::lock_guard held(mutex);
    report = x;
  });
  const auto says = [&](const std::string& problem) {
    return soon([&] {
      const std::lock_guard held(mutex);
      return report.quotes.size() == 1 && report.quotes[0].usd_per_h == 3'600 &&
             (problem.empty() ? report.problem.empty() : report.problem.find(problem) != std::string::npos);
    });
  };
  EXPECT_TRUE(says(""));
  for (const auto& [conduct, problem] :
       {std::pair(feed_conduct::away, "HTTP status 503"), std::pair(feed_conduct::garbage, "line 1: "),
        std::pair(feed_conduct::endless, "cannot be read"), std::pair(feed_conduct::hangs, "cannot be read"),
        std::pair(feed_conduct::jumps, "over 10 times")}) {
    market->be(conduct);
    EXPECT_TRUE(says(problem)) << problem;
    market->be(feed_conduct::good);
    EXPECT_TRUE(says("")) << problem;
  }
}

} // namespace
} // namespace parcae
