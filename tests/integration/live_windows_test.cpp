// Windows of a published market, live: real nodes come and go as 16 V100 did, four times fewer and 300 times faster.
// The job ends in time with the undisturbed run's bits, the ledger says what the market billed, and nothing is left
// behind. What it cost is printed beside what `simulate --market` says of the same window with the figures measured
// here; why that is no bound: planner/market/README.md.

#include "planner/market/market_data.hpp"
#include "planner/market/market_runs.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/market_double.hpp"
#include "tests/support/rented_cluster.hpp"

#include <spdlog/fmt/fmt.h>

#include <atomic>
#include <numeric>

namespace parcae {
namespace {

constexpr unsigned times_faster = 300, times_fewer = 4, most = 16 / times_fewer;
constexpr int intervals_of_tick = 5;                 // of the trace, whose ticks are of 300 s
constexpr double tick_s = 300.0 / intervals_of_tick; // between decisions, as by default, in the trace's time
constexpr double interval_s = tick_s / times_faster;
constexpr std::uint64_t deadline_s = 40;
constexpr double spot_usd_per_h = 0.918 * times_faster, sure_usd_per_h = 3.06 * times_faster;
constexpr std::uint64_t global_batch = 16;

using moment = std::chrono::steady_clock::time_point;

double seconds(moment::duration x) {
  return std::chrono::duration<double>(x).count();
}

/// Of the trace; each has changes, and ticks with nothing to be had.
struct window {
  const char* name;
  const char* zone;
  unsigned begin_s;
  const char* kind;
  unsigned pass_ms; ///< that a layer of it takes
  std::uint64_t steps;
};

std::ostream& operator<<(std::ostream& to, const window& x) {
  return to << x.name;
}

/// Time of it runs from begin() on.
class window_market {
public:
  window_market(const std::filesystem::path& file, const window& x, std::vector<std::uint32_t> spot) :
      spot_(std::move(spot)), seen({pools(), node(x), [this] { return time(); }, true}), file_(file) {
    write_file(file,
               fmt::format("feed = \"{}\"\n[[pool]]\nname = \"spot\"\nplace = \"{}\"\nkind = \"{}\"\nspot = true\n"
                           "price = {}\nmost = {}\nstart = \"3s\"\n[[pool]]\nname = \"sure\"\nplace = \"{}\"\n"
                           "kind = \"{}\"\nprice = {}\nmost = {}\nstart = \"3s\"\n",
                           seen.feed(), x.zone, x.kind, spot_usd_per_h, most, x.zone, x.kind, sure_usd_per_h, most));
  }

  void begin() { begun_ = std::chrono::steady_clock::now(); }

  std::vector<std::string> manager_arguments() const {
    return {"--market",           file_.string(),      "--provision",
            seen.hook().string(), "--market-interval", fmt::format("{}ms", 1000 * interval_s)};
  }

  std::vector<std::string> running() const {
    auto result = seen.running("spot");
    for (auto& x : seen.running("sure"))
      result.push_back(std::move(x));
    return result;
  }

  const std::vector<std::uint32_t>& spot() const { return spot_; }

private:
  static std::string node(const window& x) {
    return fmt::format("env LD_PRELOAD={} PARCAE_PASS_MS={} {} --cloud none --own-machine --plugin {}",
                       PARCAE_SLOW_LAYERS, x.pass_ms, sibling_program("parcae-node").string(), PARCAE_SLOW_LAYERS);
  }

  std::vector<pool_trace> pools() const {
    pool_trace result{"spot", spot_usd_per_h, {}};
    for (std::size_t i = 0; i < spot_.size(); ++i)
      result.available.emplace_back(std::chrono::milliseconds(1000 * i * static_cast<std::size_t>(tick_s)), spot_[i]);
    return {result, {"sure", sure_usd_per_h, {{0ms, most}}}};
  }

  std::chrono::milliseconds time() const {
    const auto begun = begun_.load();
    return begun == moment() ? 0ms
                             : std::chrono::duration_cast<std::chrono::milliseconds>(
                                   (std::chrono::steady_clock::now() - begun) * times_faster);
  }

  const std::vector<std::uint32_t> spot_; ///< to be had, by tick
  std::atomic<moment> begun_ = moment();

public:
  market_double seen;

private:
  const std::filesystem::path file_;
};

/// What the simulator wants to know, as it was here.
class live_figures {
public:
  explicit live_figures(unsigned pass_ms) : pass_s_(pass_ms / 1000.0) {}

  void look(const job_status& job, const std::vector<std::string>& running) {
    const auto now = std::chrono::steady_clock::now();
    for (const auto& name : running)
      began_.try_emplace(name, now);
    if (job.phase != "running")
      return;
    for (const auto& slot : job.grid) {
      const auto name = slot.substr(0, slot.find('/'));
      if (const auto began = began_.find(name); began != began_.end())
        starts_s_.try_emplace(name, seconds(now - began->second));
    }
    for (const auto& x : job.configurations)
      if (x.measured_steps > 0)
        measured_[{x.width, x.depth}] = x.samples_per_s;
  }

  double start_s() const {
    double sum = 0;
    for (const auto& [name, s] : starts_s_)
      sum += s;
    return sum / static_cast<double>(std::max<std::size_t>(starts_s_.size(), 1));
  }

  /// Samples/s of 0, 1, … instances, as the manager measured them. Where it did not train, what the passes take, and
  /// besides as much as elsewhere.
  std::vector<double> rates() const {
    std::map<unsigned, double> known;
    double other_s = 0;
    for (const auto& [what, rate] : measured_)
      known[what.first * what.second] = std::max(known[what.first * what.second], rate);
    for (const auto& [n, rate] : known)
      other_s += (static_cast<double>(global_batch) / rate - passes_s(n)) / static_cast<double>(known.size());
    std::vector<double> result{0};
    for (unsigned n = 1; n <= 2 * most; ++n)
      result.push_back(known.contains(n) ? known.at(n)
                                         : static_cast<double>(global_batch) / (passes_s(n) + std::max(other_s, 0.0)));
    return result;
  }

private:
  double passes_s(unsigned n) const { return pass_s_ * static_cast<double>((global_batch + n - 1) / n); }

  const double pass_s_;
  std::map<std::string, moment> began_;
  std::map<std::string, double> starts_s_;                   ///< from its process's start until it trains
  std::map<std::pair<unsigned, unsigned>, double> measured_; ///< samples/s, by width and depth
};

/// Mean of the standstills.
double change_s(const job_status& job) {
  double sum = 0, count = 0;
  for (const auto& x : job.changes)
    if (x.stall_ms >= 0 && !x.waited) {
      sum += x.stall_ms / 1000;
      count += 1;
    }
  return count > 0 ? sum / count : 0;
}

struct live_windows : rented_cluster, testing::WithParamInterface<window> {
  void SetUp() override {
    const auto counts = std::filesystem::path(PARCAE_SOURCE_DIR).parent_path() / "shared/market/v100_16_counts.csv";
    if (!std::filesystem::exists(counts))
      GTEST_SKIP() << "needs " << counts;
    const auto all = market::parse_counts(content(counts), tick_s);
    const auto zone = std::ranges::find(all, GetParam().zone, &market::counts::place);
    ASSERT_NE(zone, all.end());
    std::vector<std::uint32_t> spot;
    for (std::size_t i = 0; i < (deadline_s + 1) * intervals_of_tick; ++i)
      spot.push_back(zone->available.at(GetParam().begin_s / static_cast<unsigned>(tick_s) + i) / times_fewer);
    market.emplace(folder.path() / "market.toml", GetParam(), std::move(spot));
    begin_rented(market->manager_arguments());
  }

  static void TearDownTestSuite() {
    if (all_simulated_usd > 0)
      std::cout << fmt::format("all: billed ${:.3f}, simulated ${:.3f}: ratio {:.3f}\n", all_billed_usd,
                               all_simulated_usd, all_billed_usd / all_simulated_usd);
  }

  std::string job_file(const std::string& name, std::uint64_t steps, const std::string& more) {
    const auto x = run_program({sibling_program("parcae-node"), "--plugin", PARCAE_SLOW_LAYERS, "--describe", "slow"});
    EXPECT_EQ(x.status, 0) << x.error;
    return write(name, fmt::format("[job]\nsteps = {}\n[model]\nkind = \"plugin\"\npath = \"{}\"\n[data]\npath = "
                                   "\"/usr/share/common-licenses/GPL-3\"\n[batch]\nglobal = {}\nmicro = "
                                   "1\n[planning]\ninterval = \"{}ms\"\n{}",
                                   steps, write("slow.json", x.output), global_batch, 1000 * interval_s, more));
  }

  /// Of those that a manager has welcomed: of others it knows nothing.
  double billed_usd() const {
    const auto log = content(rented / "manager.log");
    double result = 0;
    for (const auto& pool : market->seen.pools())
      for (const auto& [name, usd] : market->seen.bills_usd(pool))
        result += log.find("instance " + name + " joined") != std::string::npos ? usd : 0;
    return result;
  }

  /// Once it has seen the last ends.
  double usd_by_ledger() {
    std::this_thread::sleep_for(2s);
    return cluster->client().status().market.usd;
  }

  /// Of the same work, before the window begins: so the manager knows its speed, as the simulator does.
  void measure() {
    const auto id = submit(job_file("first.toml", 12, "[budget]\ndeadline = \"10m\"\n"));
    EXPECT_EQ(wait_for_end(id).state, "done");
    EXPECT_TRUE(eventually([&] { return market->running().empty(); }, 5s));
  }

  /// Until it is over; what it looked like in the end, and when that was.
  job_status watch(std::uint64_t id, live_figures& figures) {
    const auto limit = std::chrono::steady_clock::now() + 3s * deadline_s;
    for (;;) {
      const auto x = job_of(cluster->client().status({.job = id}), id);
      if ((x.state != "running" && x.state != "queued") || std::chrono::steady_clock::now() > limit)
        return x;
      figures.look(x, market->running());
      std::this_thread::sleep_for(20ms);
    }
  }

  /// What the command says of this window, in US-dollars: the mean over when within a tick of the trace it may begin,
  /// and between which figures that is.
  market::spread simulated_usd(const live_figures& figures, const job_status& end) {
    market::rented_job job;
    const auto rates = figures.rates();
    job.instances = most;
    job.gang = {static_cast<double>(GetParam().steps * global_batch) / rates.at(most), static_cast<double>(deadline_s),
                figures.start_s(), 0};
    job.elastic.emplace();
    job.elastic->samples_per_s = rates;
    job.elastic->change_s = [s = change_s(end)](std::uint32_t, std::uint32_t) { return s; };
    std::vector<double> all;
    for (std::ptrdiff_t later = 0; later < intervals_of_tick; ++later) {
      market::elastic_place place{GetParam().zone, {}, {}, most, sure_usd_per_h};
      place.spot.assign(market->spot().begin() + later, market->spot().end() - intervals_of_tick + later);
      place.spot_usd_per_h.assign(place.spot.size(), spot_usd_per_h);
      all.push_back(market::run_policy("budget", {interval_s, {place}, {{0}}, 0}, job).at(0).windows.at(0).usd);
    }
    const auto [least, most] = std::ranges::minmax(all);
    return {least, std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size()), most};
  }

  inline static double all_billed_usd = 0, all_simulated_usd = 0; ///< of the windows so far
  std::optional<window_market> market;
};

std::string text_of(const std::vector<double>& rates) {
  std::string result;
  for (const double x : rates)
    result += fmt::format(" {:.0f}", x);
  return result;
}

TEST_P(live_windows, a_job_is_in_time) {
  measure();
  const double billed_before = billed_usd(), ledger_before = usd_by_ledger();
  const auto file = job_file("job.toml", GetParam().steps, fmt::format("[budget]\ndeadline = \"{}s\"\n", deadline_s));
  live_figures figures(GetParam().pass_ms);
  market->begin();
  const auto begun = std::chrono::steady_clock::now();
  const auto id = submit(file);
  const auto end = watch(id, figures);
  const double finish_s = seconds(std::chrono::steady_clock::now() - begun);
  ASSERT_EQ(end.state, "done") << end.problem;
  EXPECT_LE(finish_s, deadline_s) << "in time";
  EXPECT_TRUE(eventually([&] { return market->running().empty(); }, 5s)) << "nothing is kept that no job needs";

  for (const auto& pool : market->seen.pools())
    EXPECT_LE(market->seen.most(pool), most) << pool;
  const double paid = usd_by_ledger() - ledger_before, billed = billed_usd() - billed_before;
  const auto expected = simulated_usd(figures, end);
  std::cout << fmt::format(
      "{}: in {:.1f} s of {}; billed ${:.3f}, by the ledger ${:.3f} ({:.3f}); simulated ${:.3f} (${:.3f} to ${:.3f}): "
      "ratio {:.3f}\n  start {:.2f} s, change {:.2f} s, {} changes, {} steps lost, samples/s{}\n",
      GetParam().name, finish_s, deadline_s, billed, paid, paid / billed, expected.p50, expected.p10, expected.p90,
      billed / expected.p50, figures.start_s(), change_s(end), end.change_count, end.replayed_steps,
      text_of(figures.rates()));
  // A process that the market tells to end lets go of the manager first, and is gone up to a second later.
  const auto taken = static_cast<double>(market->seen.taken("spot"));
  EXPECT_NEAR(paid, billed, 0.02 * billed + taken * spot_usd_per_h / 3600) << "the ledger";
  all_billed_usd += billed;
  all_simulated_usd += expected.p50;
  const auto alone = undisturbed(job_file("alone.toml", GetParam().steps, ""), {}, {"--plugin", PARCAE_SLOW_LAYERS});
  EXPECT_EQ(end.parameters_sha256, alone.parameters_sha256);
}

INSTANTIATE_TEST_SUITE_P(counts, live_windows,
                         testing::Values(window{"east_2b", "us-east-2b", 300'000, "fast", 20, 150},
                                         window{"east_2b_later", "us-east-2b", 642'000, "slow", 40, 75},
                                         window{"west_2a", "us-west-2a", 99'000, "fast", 20, 150},
                                         window{"west_2a_later", "us-west-2a", 705'000, "slow", 40, 75},
                                         window{"west_2c", "us-west-2c", 732'000, "fast", 20, 150}),
                         [](const auto& x) { return x.param.name; });

} // namespace
} // namespace parcae
