// How requests fare, as a gateway tells it.

#include "gpu/gateway/request_meter.hpp"

#include <gtest/gtest.h>

namespace parcae {
namespace {

// given: a request each half second from 100 s on / expected: two a second; not while fewer than ten seconds have
// passed
TEST(request_meter, a_minute_that_has_not_passed) {
  request_meter x;
  EXPECT_EQ(x.figures(100'000).arrivals_per_s, 0);
  for (int i = 0; i < 200; ++i) {
    const auto now = 100'000 + 500.0 * i;
    x.came(now, 7);
    const auto per_s = x.figures(now).arrivals_per_s;
    if (i == 3) {
      EXPECT_EQ(per_s, 0.4);
    }
    if (i >= 20) {
      EXPECT_NEAR(per_s, 2, 0.11) << i;
    }
  }
  EXPECT_EQ(x.figures(400'000).arrivals_per_s, 0);
}

// given: half of what came was turned away before it was looked at / expected: all of it arrived; prompts are of the
// rest
TEST(request_meter, knows_no_prompts_of_who_is_turned_away) {
  request_meter x;
  for (int i = 0; i < 60; ++i) {
    x.came(100'000 + 500.0 * i, 7);
    x.turned_away(100'000 + 500.0 * i, 1);
  }
  x.turned_away(129'900, 0);
  const auto got = x.figures(130'000);
  EXPECT_NEAR(got.arrivals_per_s, 4, 0.2);
  EXPECT_EQ(got.mean_prompt, 7);
  EXPECT_EQ(got.refused, 60u);
}

// given: more answers than are told of / expected: the newest, in order
TEST(request_meter, the_newest_answers) {
  request_meter x;
  EXPECT_TRUE(x.newest().empty());
  for (std::uint32_t i = 0; i < most_answered_told + 5; ++i)
    x.answered(1000.0 * i, {i, 2 * i});
  const auto newest = x.newest();
  ASSERT_EQ(newest.size(), most_answered_told);
  EXPECT_EQ(newest.front(), (answered_request{5, 10}));
  EXPECT_EQ(newest.back(), (answered_request{most_answered_told + 4, 2 * most_answered_told + 8}));
}

} // namespace
} // namespace parcae
