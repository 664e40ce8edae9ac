// What snapshots as often as links allow cost steps that need the same links, at 1 Gb/s: four hosts in namespaces of
// this machine, whose cores do all the work of all four, so it is more than it would be on four machines. Prints its
// figures; fails beyond the bound, status 77 where there can be no namespaces.
//
// shared_link_bench [PAIRS]   default 40: single ratios scatter by a tenth on two cores

#include "protocols/base/median.hpp"
#include "runtime/child/process.hpp"
#include "tests/bench/figures.hpp"
#include "tests/support/shared_links.hpp"

#include <cstdlib>
#include <iostream>
#include <vector>

namespace {

constexpr int cannot_run_here = 77;

} // namespace

int main(int count, char** arguments) {
  using namespace parcae;
  const int pairs = count > 1 ? std::atoi(arguments[1]) : 40;
  const scratch_folder folder("parcae-shared-link");
  shared_links hosts(folder.path(), 1'000);
  if (!hosts.problem().empty()) {
    std::cerr << hosts.problem() << "\n";
    return cannot_run_here;
  }
  std::vector<double> ratios, copying_ms;
  for (int i = 0; i < pairs; ++i) {
    const auto x = hosts.measure(i % 2 == 1);
    ratios.push_back(x.ratio());
    copying_ms.push_back(x.with.causes.snapshot_ms);
    std::cerr << x.without.step_ms << " ms without, " << x.with.step_ms << " ms with\n";
  }
  figures shown;
  shown.at_most("step with snapshots as often as links allow over one without, 1 Gb/s", median(ratios), 1.05);
  shown.only_shown("copying for snapshots, ms a step", median(copying_ms));
  return shown.status();
}
