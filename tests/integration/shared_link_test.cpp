// Snapshots as often as links allow, on links that training needs: the steps are hardly longer. Where the link is no
// limit, two cores that are four hosts are, and ratios scatter too much for a test: shared_link_bench.

#include "protocols/base/median.hpp"
#include "tests/support/cluster.hpp"
#include "tests/support/shared_links.hpp"

#include <iostream>
#include <vector>

namespace parcae {
namespace {

struct shared_link_test : cluster_test {
  void SetUp() override {}
};

// given: two replicas and a keeper behind links of 100 Mb/s / expected: steps take as long with snapshots as without,
// but for a twentieth; and there are snapshots
TEST_F(shared_link_test, snapshots_hardly_make_steps_longer) {
  shared_links hosts(folder.path(), 100);
  if (!hosts.problem().empty())
    GTEST_SKIP() << hosts.problem();
  std::vector<double> ratios, copying_ms;
  for (int round = 0; round < 7; ++round) {
    const auto x = hosts.measure(round % 2 == 1);
    ratios.push_back(x.ratio());
    copying_ms.push_back(x.with.causes.snapshot_ms);
    std::cout << x.without.step_ms << " ms without, of which " << x.without.causes.reduction_ms << " ms are reduction; "
              << x.with.step_ms << " ms and " << x.with.causes.reduction_ms << " ms with, " << x.with.causes.snapshot_ms
              << " ms of copies\n";
  }
  EXPECT_LE(median(ratios), 1.05);
  EXPECT_GT(median(copying_ms), 0);
}

} // namespace
} // namespace parcae
