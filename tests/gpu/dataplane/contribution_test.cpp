// What ranks conclude from what all of them say at the end of a step.

#include "gpu/dataplane/contribution.hpp"

#include <gtest/gtest.h>

#include <tuple>

namespace parcae {
namespace {

/// Whether the version that step 4 makes goes to the keepers, if two ranks say so.
bool goes(std::uint64_t every, const contribution& x, const contribution& y = {}) {
  job_specification job;
  job.steps = 100;
  job.keeper_every = every;
  job.virtual_replicas = 2;
  const placement grid{2, 1, {0, 1}, {{}, {}}};
  const exchange_shape shape{job, grid};
  std::vector<contribution> by_rank{x, y};
  for (std::uint32_t r = 0; r < 2; ++r) {
    by_rank[r].squared_norms.resize(shape.layers(r));
    by_rank[r].losses.resize(shape.losses(r));
    by_rank[r] = decode(encode(by_rank[r]), r, shape); // what is not said does not count
  }
  return combine(by_rank, 4, shape).snapshot;
}

// given: snapshots as often as links allow, each fifth step, each thousandth / expected: they are put off while one
// rank is busy, the first also while one rests; one that was asked for does not wait for rest, the last ones for
// nothing
TEST(contribution, says_when_a_snapshot_is_made) {
  const auto with = [](bool wishes::*what) {
    contribution x;
    x.asks.*what = true;
    return x;
  };
  const auto nothing = contribution{}, busy = with(&wishes::busy), rests = with(&wishes::rests),
             due = with(&wishes::due), asked = with(&wishes::snapshot);
  for (const auto& [every, usual, at_rest] : {std::tuple{0u, true, false}, {5u, true, true}, {1000u, false, false}}) {
    EXPECT_EQ(goes(every, nothing), usual) << every;
    EXPECT_EQ(goes(every, nothing, rests), at_rest) << every;
    EXPECT_FALSE(goes(every, nothing, busy)) << every;
    EXPECT_FALSE(goes(every, due, busy)) << every;
    EXPECT_TRUE(goes(every, due, rests)) << every;
    EXPECT_TRUE(goes(every, asked, busy)) << every;
  }
}

} // namespace
} // namespace parcae
