// Notes of a feed.

#include "gpu/dataplane/feed_note.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace parcae {
namespace {

feed_note back(const feed_note& x) {
  return decode_feed_note(encode(x), 4);
}

// given: a note of each kind / expected: the same after its way, numbers in every bit
TEST(feed_note, is_the_same_after_its_way) {
  for (const auto kind : {feed_kind::base, feed_kind::gradient, feed_kind::buffers, feed_kind::cold}) {
    const auto x = back({.kind = kind, .layer = 3, .at = {7, {9}}});
    EXPECT_EQ(x.kind, kind);
    EXPECT_EQ(x.layer, 3u);
    EXPECT_EQ(x.at, (version{7, {9}}));
    EXPECT_FALSE(x.course);
  }
  EXPECT_EQ(back({.kind = feed_kind::end, .at = {7, {9}}}).at, (version{7, {9}}));
  const double tiny = std::numeric_limits<double>::denorm_min();
  const auto x = back({.kind = feed_kind::commit,
                       .at = {7, {9}},
                       .rate = tiny,
                       .clip = std::nan(""),
                       .skipped = true,
                       .course = validation_course{.best = 2, .worse = 1}});
  EXPECT_EQ(x.rate, tiny);
  EXPECT_TRUE(std::isnan(x.clip));
  EXPECT_TRUE(x.skipped);
  EXPECT_EQ(x.course, (validation_course{2, 1}));
}

// given: another kind, a layer that is none, what only commits have, bytes that are to be zero / expected: refused
TEST(feed_note, is_refused_where_it_means_nothing) {
  const auto usual = encode({.kind = feed_kind::gradient, .layer = 1, .at = {7, {9}}});
  const auto with = [&](std::size_t at, int value) {
    auto x = usual;
    x[at] = static_cast<std::byte>(value);
    return x;
  };
  EXPECT_NO_THROW(decode_feed_note(usual, 4));
  EXPECT_THROW(decode_feed_note(with(0, 0), 4), communication_error);
  EXPECT_THROW(decode_feed_note(with(0, 7), 4), communication_error);
  EXPECT_THROW(decode_feed_note(with(0, 4), 4), communication_error) << "a commit is of no layer";
  EXPECT_THROW(decode_feed_note(with(1, 1), 4), communication_error);
  EXPECT_THROW(decode_feed_note(with(4, 4), 4), communication_error);
  EXPECT_THROW(decode_feed_note(with(63, 1), 4), communication_error);
}

} // namespace
} // namespace parcae
