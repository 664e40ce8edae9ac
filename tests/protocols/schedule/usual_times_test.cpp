// How long passes take, and how large one may be beside rows that decode.

#include "protocols/schedule/usual_times.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace parcae {
namespace {

const std::vector<std::uint32_t> sizes{4, 8, 16, 24, 32, 48, 64, 96};

usual_times times_of(double base_ms, double row_ms) {
  usual_times result;
  for (const auto size : sizes)
    result.took(size, base_ms + row_ms * size);
  return result;
}

// given: two sizes / expected: others lie between them or above in proportion; the newest counts for little
TEST(usual_times, of_sizes_that_were_not_seen) {
  usual_times x;
  EXPECT_FALSE(x.of(16));
  x.took(16, 4);
  x.took(32, 6);
  EXPECT_EQ(x.of(16), 4);
  EXPECT_EQ(x.of(24), 5);
  EXPECT_EQ(x.of(64), 12);
  EXPECT_EQ(x.of(4), 4);
  x.took(16, 104);
  EXPECT_EQ(x.of(16), 14);
}

// given: passes that take 1 ms and 0.1 ms a row, as a processor's; four that decode, beside whom 64 rows would be
// computed, in a pass of 96 / expected: a third of the way, 34.7; also where those between were seen at a bad time
TEST(size_beside, a_third_where_rows_cost) {
  auto times = times_of(1, 0.1);
  EXPECT_EQ(size_beside(sizes, times, 4, 64), 32u);
  for (const auto size : {8u, 16u, 24u, 32u, 48u, 64u})
    times.took(size, 1'000);
  EXPECT_EQ(size_beside(sizes, times, 4, 64), 32u);
}

// given: passes that take 10 ms and 0.01 ms a row, as a GPU's / expected: all of it at once; at 0.07 ms a row, 10.28
// and 16.72 ms, what takes half more
TEST(size_beside, more_where_rows_cost_little) {
  EXPECT_EQ(size_beside(sizes, times_of(10, 0.01), 4, 64), 96u);
  EXPECT_EQ(size_beside(sizes, times_of(10, 0.07), 4, 64), 64u);
}

// given: nothing that was seen / expected: a third; but a row has a place however few there are places for
TEST(size_beside, a_row_at_least) {
  EXPECT_EQ(size_beside(sizes, {}, 4, 64), 32u);
  EXPECT_EQ(size_beside(sizes, {}, 4, 1), 8u);
  EXPECT_EQ(size_beside(sizes, {}, 3, 1), 4u);
  EXPECT_EQ(size_beside(sizes, {}, 96, 64), 96u);
}

} // namespace
} // namespace parcae
