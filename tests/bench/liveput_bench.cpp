// What planning on a distribution is worth, on generated traces of every kind: the samples of `auto` and of the last
// value, 12 intervals ahead, in percent of those with the true future 12 ahead. Prints one JSON object per trace, model
// and notice, for the traces of the seeds FIRST … LAST of all kinds, or of those named:
//   liveput_bench FIRST LAST [KIND …]

#include "planner/simulator.hpp"
#include "planner/trace_generator.hpp"
#include "tests/planner/published.hpp"

#include <cstdio>
#include <cstdlib>
#include <memory>

using namespace parcae;

namespace {

struct model {
  std::string name;
  profile workload;
  std::unique_ptr<published_cost> costs;
};

double samples(model& x, const fleet_history& history, const char* forecast, std::uint32_t notice) {
  simulator run(x.workload, *x.costs, history, {policy::liveput, forecast, notice, 12});
  while (!run.done()) {
    run.decide();
    run.advance();
  }
  return run.samples();
}

} // namespace

int main(int argc, char** argv) {
  if (argc < 3 || !published::present()) {
    std::fprintf(stderr,
                 "usage: liveput_bench FIRST LAST [KIND ...], with the published profiles beside the checkout\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const auto network = published::network();
  std::vector<model> models;
  for (const char* name : {"bert-large", "gpt2-1.5b", "gpt3-6.7b", "resnet152", "vgg19"})
    models.push_back({name, published::workload(name), nullptr});
  for (auto& x : models)
    x.costs = std::make_unique<published_cost>(x.workload, network);
  const std::vector<std::string> kinds = argc > 3 ? std::vector<std::string>(argv + 3, argv + argc) : trace_kinds();
  for (const auto& kind : kinds)
    for (auto seed = std::strtoull(argv[1], nullptr, 10); seed <= std::strtoull(argv[2], nullptr, 10); ++seed) {
      const auto history = intervals_of(generate_trace(trace_kind(kind), seed));
      for (auto& x : models) {
        const double known = samples(x, history, "oracle", 0);
        for (std::uint32_t notice = 0; notice < 3; ++notice)
          std::printf("{\"trace\": \"%s\", \"seed\": %llu, \"model\": \"%s\", \"notice\": %u, \"last\": %.3f, "
                      "\"auto\": %.3f}\n",
                      kind.c_str(), static_cast<unsigned long long>(seed), x.name.c_str(), notice,
                      100 * samples(x, history, "last", notice) / known,
                      100 * samples(x, history, "auto", notice) / known);
      }
    }
}
