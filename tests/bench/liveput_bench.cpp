// What planning on a distribution is worth, on generated traces of every kind: the samples of `auto` and of the last
// value, 12 intervals ahead, in percent of those with the true future 12 ahead. With --real-time: of `liveput` and of
// `throughput` in percent of the ideal, by link. Prints one JSON object per trace, model, link and notice, for the
// traces of the seeds FIRST … LAST of all kinds, or of those named; then the figures: means over traces and models of
// what planning gains, by kind and notice, or by link. Fails if it loses in one of them:
//   liveput_bench [--real-time] FIRST LAST [KIND …]

#include "planner/simulation/simulator.hpp"
#include "planner/simulation/trace_generator.hpp"
#include "tests/bench/figures.hpp"
#include "tests/planner/published.hpp"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>

using namespace parcae;

namespace {

/// What is gained, in points, by what the means are taken over.
using gains = std::map<std::string, std::vector<double>>;

struct model {
  std::string name;
  profile workload;
  std::unique_ptr<published_cost> costs;
};

const simulator& replayed(simulator& run) {
  while (!run.done()) {
    run.decide();
    run.advance();
  }
  return run;
}

double samples(model& x, const fleet_history& history, const char* forecast, std::uint32_t notice) {
  simulator run(x.workload, *x.costs, history, {policy::liveput, forecast, notice, 12});
  return replayed(run).samples();
}

void published_account(model& x, const fleet_history& history, const std::string& kind, const std::string& trace,
                       gains& all) {
  const double known = samples(x, history, "oracle", 0);
  for (std::uint32_t notice = 0; notice < 3; ++notice) {
    const double last = 100 * samples(x, history, "last", notice) / known;
    const double chosen = 100 * samples(x, history, "auto", notice) / known;
    std::printf("{%s, \"model\": \"%s\", \"notice\": %u, \"last\": %.3f, \"auto\": %.3f}\n", trace.c_str(),
                x.name.c_str(), notice, last, chosen);
    all[kind + ", notice " + std::to_string(notice) + ": auto over last value"].push_back(chosen - last);
  }
}

double share_of_ideal(model& x, const fleet_history& history, policy how, double megabits, std::uint32_t notice) {
  realistic_options options;
  options.announced = notice > 0;
  options.figures.link_bytes_per_ms = megabits * 125;
  options.figures.detect_ms = vanished_ms;
  simulator run(x.workload, options, history, {how, "auto", notice, 12});
  return 100 * replayed(run).samples() / run.ideal();
}

void real_time_account(model& x, const fleet_history& history, const std::string&, const std::string& trace,
                       gains& all) {
  constexpr std::pair<int, const char*> links[] = {
      {50, "0.05 Gb/s"}, {200, "0.2 Gb/s"}, {1'000, "1 Gb/s"}, {10'000, "10 Gb/s"}};
  for (const auto& [megabits, name] : links)
    for (std::uint32_t notice = 0; notice < 2; ++notice) {
      const double fastest = share_of_ideal(x, history, policy::throughput, megabits, notice);
      const double planned = share_of_ideal(x, history, policy::liveput, megabits, notice);
      std::printf("{%s, \"model\": \"%s\", \"link_mbps\": %d, \"notice\": %u, \"throughput\": %.3f, \"liveput\": "
                  "%.3f}\n",
                  trace.c_str(), x.name.c_str(), megabits, notice, fastest, planned);
      all[name + std::string(": liveput over throughput")].push_back(planned - fastest);
    }
}

} // namespace

int main(int argc, char** argv) {
  const bool real_time = argc > 1 && std::string(argv[1]) == "--real-time";
  argv += real_time ? 1 : 0;
  argc -= real_time ? 1 : 0;
  if (argc < 3 || !published::present()) {
    std::fprintf(stderr,
                 "usage: liveput_bench [--real-time] FIRST LAST [KIND ...], with the published profiles beside the "
                 "checkout\n");
    return published::present() ? 2 : 77; // 77: cannot run here
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const auto network = published::network();
  std::vector<model> models;
  for (const char* name : {"bert-large", "gpt2-1.5b", "gpt3-6.7b", "resnet152", "vgg19"})
    models.push_back({name, published::workload(name), nullptr});
  for (auto& x : models)
    x.costs = std::make_unique<published_cost>(x.workload, network);
  gains all;
  const std::vector<std::string> kinds = argc > 3 ? std::vector<std::string>(argv + 3, argv + argc) : trace_kinds();
  for (const auto& kind : kinds)
    for (auto seed = std::strtoull(argv[1], nullptr, 10); seed <= std::strtoull(argv[2], nullptr, 10); ++seed) {
      const auto history = intervals_of(generate_trace(trace_kind(kind), seed));
      const auto trace = "\"trace\": \"" + kind + "\", \"seed\": " + std::to_string(seed);
      for (auto& x : models)
        (real_time ? real_time_account : published_account)(x, history, kind, trace, all);
    }
  figures out;
  for (const auto& [name, points] : all)
    out.at_least(name + ", points, mean of " + std::to_string(points.size()),
                 std::accumulate(points.begin(), points.end(), 0.0) / static_cast<double>(points.size()), 0);
  return out.status();
}
