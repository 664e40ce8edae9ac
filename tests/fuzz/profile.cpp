// Profiles of workloads, networks and peers. What is read can be planned with.

#include "planner/simulation/simulator.hpp"
#include "planner/simulation/trace.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace parcae {
namespace {

profile small_workload() {
  profile x;
  x.global_batch = 64;
  x.micro_batch = 2;
  x.layers = {{10, 1, 2, 0.5, 1}, {20, 1, 2, 0.5, 0}};
  x.max_depth = 2;
  x.samples_per_s = {{{1, 1}, 3}, {{1, 2}, 5.5}, {{2, 1}, 5.5}};
  x.model_build_ms = {{1, 10}, {2, 5}};
  x.rebuild.add_ms = x.rebuild.remove_ms = 400;
  return x;
}

void simulate(const profile& workload, const network_profile& network) {
  const auto history = parse_trace("0,3\n60,5\n120,1\n180,4\n240,0\n300,5\n");
  for (const char* forecast : {"oracle", "regime"}) {
    published_cost published(workload, network);
    simulator runs[] = {{workload, published, history, {policy::liveput, forecast, 0, 4}},
                        {workload, realistic_options{}, history, {policy::liveput, forecast, 0, 4}}};
    for (auto& x : runs)
      while (!x.done()) {
        x.decide();
        x.advance();
        promise(x.intervals().back().used.slots() <= history[x.intervals().size() - 1].available, "it fits");
      }
  }
}

template <class Read>
void check(Read read) {
  try {
    read();
  } catch (const parse_error& e) {
    promise(*e.what() != 0, "an error says something");
  }
}

} // namespace
} // namespace parcae

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace parcae;
  static const auto workload = small_workload();
  static const network_profile network{{{1'000, 0.14}}};
  const auto text = as_text(data, size);
  check([&] {
    const auto x = parse_profile(text);
    x.fastest(8);
    promise(x.min_depth <= x.max_depth, "there is a depth");
    simulate(x, network);
  });
  check([&] { simulate(workload, parse_network(text)); });
  check([&] { parse_peers(text); });
  return 0;
}
