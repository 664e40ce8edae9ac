// Two kinds of instance of unlike speed, and of as many slots or more, in one place, with real processes: those of one
// kind train at a time, their speed is measured, and what is worth more by it is rented. The job ends in time with the
// undisturbed run's bits.

#include "tests/support/eventually.hpp"
#include "tests/support/market_double.hpp"
#include "tests/support/rented_cluster.hpp"

#include <spdlog/fmt/fmt.h>

#include <atomic>

namespace parcae {
namespace {

constexpr auto deadline = 10min;

/// Of the job's slow layer; the kinds' names are how long it takes: "8ms" by a pass.
constexpr const char *slow = "8ms", *fast = "2ms";

/// With the number of slots of an instance of the fast kind; the slow one's have one.
struct live_kinds : rented_cluster, testing::WithParamInterface<int> {
  void SetUp() override {
    const auto pool = [](const char* name, const char* kind, int slots, int usd_per_h) {
      return fmt::format(
          "[[pool]]\nname = \"{}\"\nplace = \"here\"\nkind = \"{}\"\nslots = {}\nspot = true\nprice = {}\n"
          "most = 2\nstart = \"20s\"\n",
          name, kind, slots, usd_per_h);
    };
    market.emplace(market_double_options{
        {{"slow", 3'600, {{0ms, 2}}}, {"fast", 4'320, {{0ms, 0}, {1'000ms, 2}}}},
        fmt::format("sh -c 'exec env LD_PRELOAD={} PARCAE_PASS_MS={{kind}} {} --cloud none --own-machine --plugin {} "
                    "--slots $(test {{kind}} = {} && echo {} || echo 1) \"$@\"' node",
                    PARCAE_SLOW_LAYERS, sibling_program("parcae-node").string(), PARCAE_SLOW_LAYERS, fast, GetParam()),
        [this] { return std::chrono::milliseconds(time); },
        true});
    const auto file =
        write("market.toml", fmt::format("feed = \"{}\"\n{}{}", market->feed(), pool("slow", slow, 1, 3'600),
                                         pool("fast", fast, GetParam(), 4'320)));
    begin_rented({"--market", file, "--provision", market->hook().string(), "--market-interval", "500ms"});
  }

  std::string job_file(const std::string& name, const std::string& more) {
    const auto x = run_program({sibling_program("parcae-node"), "--plugin", PARCAE_SLOW_LAYERS, "--describe", "slow"});
    EXPECT_EQ(x.status, 0) << x.error;
    return write(name, fmt::format("[job]\nsteps = 400\n[model]\nkind = \"plugin\"\npath = \"{}\"\n[data]\npath = "
                                   "\"/usr/share/common-licenses/GPL-3\"\n[batch]\nglobal = 16\nmicro = 1\n{}",
                                   write("slow.json", x.output), more));
  }

  /// Of which pool all are that train; empty: nobody does.
  static std::string pool_of(const job_status& x) {
    std::set<std::string> pools;
    for (const auto& slot : x.grid)
      pools.insert(slot.substr(0, slot.find('-')));
    EXPECT_LE(pools.size(), 1u) << "two kinds at a time";
    return x.phase != "running" || pools.empty() ? "" : *pools.begin();
  }

  job_status wait_for_measures_of(std::uint64_t id, const std::string& pool) {
    return wait_for_job(id, "measures of " + pool, [&](const job_status& x) {
      const bool is_measured =
          std::ranges::any_of(x.configurations, [](const auto& y) { return y.measured_steps > 5; });
      return x.state == "done" || (pool_of(x) == pool && is_measured);
    });
  }

  std::atomic<int> time = 0; ///< the market's milliseconds
  std::optional<market_double> market;
};

// given: a kind that is there from the beginning, and later one at 1.2 times its price and four times as fast, which
// nobody has measured / expected: the job moves there; one like it, which begins when both are there, has the fast one
// alone, as that is worth more by its measured speed; both end in time with the undisturbed run's bits, and nothing is
// left behind
TEST_P(live_kinds, what_is_worth_more_by_its_speed_is_rented) {
  const auto first = submit(job_file("first.toml", "[budget]\nhourly = 20000\n"));
  EXPECT_EQ(wait_for_measures_of(first, "slow").state, "running");
  time = 1'000;
  const auto moved = wait_for_measures_of(first, "fast");
  EXPECT_EQ(moved.state, "running") << "it was done before";
  EXPECT_EQ(std::ranges::any_of(moved.grid, [](const auto& slot) { return slot.ends_with("/1"); }), GetParam() == 2);
  const auto end = wait_for_end(first);
  EXPECT_EQ(end.state, "done") << end.problem;
  const auto nothing_runs = [this] { return market->running("slow").empty() && market->running("fast").empty(); };
  EXPECT_TRUE(eventually(nothing_runs, limit));

  const auto slow_before = market->started("slow");
  const auto begun = std::chrono::steady_clock::now();
  const auto second = submit(job_file("second.toml", "[budget]\ndeadline = \"10m\"\n"));
  const auto in_time = wait_for_end(second);
  EXPECT_EQ(in_time.state, "done") << in_time.problem;
  EXPECT_LE(std::chrono::steady_clock::now() - begun, deadline);
  EXPECT_EQ(market->started("slow"), slow_before) << "what costs more by the sample";
  EXPECT_TRUE(eventually(nothing_runs, limit));

  const auto alone = undisturbed(job_file("alone.toml", ""), {}, {"--plugin", PARCAE_SLOW_LAYERS});
  EXPECT_EQ(end.parameters_sha256, alone.parameters_sha256);
  EXPECT_EQ(in_time.parameters_sha256, alone.parameters_sha256);
}

INSTANTIATE_TEST_SUITE_P(slots_of_the_fast_kind, live_kinds, testing::Values(1, 2));

} // namespace
} // namespace parcae
