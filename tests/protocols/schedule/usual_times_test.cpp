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
// computed / expected: 5.9 ms at most, half-way between 1.4 and 10.6 of the size of 96: 48 rows
TEST(size_beside, half_way_where_rows_cost) {
  EXPECT_EQ(size_beside(sizes, times_of(1, 0.1), 4, 64), 48u);
}

// given: passes that take 10 ms and 0.01 ms a row, as a GPU's / expected: all of it at once
TEST(size_beside, all_where_rows_cost_nothing) {
  EXPECT_EQ(size_beside(sizes, times_of(10, 0.01), 4, 64), 96u);
}

// given: nothing that was seen / expected: all of it; but a row has a place, whatever it costs and however few there
// are places for
TEST(size_beside, a_row_at_least) {
  EXPECT_EQ(size_beside(sizes, {}, 4, 64), 96u);
  usual_times steep;
  double ms = 1;
  for (const auto size : sizes)
    steep.took(size, ms *= 1'000);
  EXPECT_EQ(size_beside(sizes, steep, 4, 64), 64u); // less than half of what 96 take
  EXPECT_EQ(size_beside(sizes, steep, 4, 1), 8u);
  EXPECT_EQ(size_beside(sizes, steep, 3, 1), 4u);
  EXPECT_EQ(size_beside(sizes, steep, 96, 64), 96u);
}

} // namespace
} // namespace parcae
