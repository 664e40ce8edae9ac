// Frames of passes: what they say, and what is not believed.

#include "gpu/dataplane/pass_frames.hpp"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <limits>
#include <random>

namespace parcae {
namespace {

constexpr pass_bounds bounds{.context = 64, .vocabulary = 256};

template <std::size_t Size, class Frame>
Frame back(const Frame& x) {
  std::array<std::byte, Size> bytes;
  encode(x, bytes);
  Frame result;
  decode(std::span<const std::byte, Size>(bytes), bounds, result);
  return result;
}

pass_frame back(const pass_frame& x) {
  return back<pass_frame_bytes>(x);
}

pass_answer back(const pass_answer& x) {
  return back<pass_answer_bytes>(x);
}

cache_frame back(const cache_frame& x) {
  return back<cache_frame_bytes>(x);
}

pass_frame full_pass() {
  pass_frame x{.kind = pass_frame_kind::rows, .epoch = 7, .number = 9, .size = 192};
  for (std::uint32_t i = 0; i < 192; ++i)
    x.rows.push_back({UINT64_MAX - i, i % 64, 255 - i});
  for (std::uint32_t i = 0; i < 64; ++i)
    x.draws.push_back({3 * i, {i, 0.5 * i, 1.0 / (1 + i), i}});
  for (std::uint64_t i = 0; i < 64; ++i)
    x.over.push_back(i << 40);
  return x;
}

// given: caches of as many requests as there may be, of none / expected: the same after their way; who is named twice,
// holds nothing, more than there can be, or more than the one before, is not believed
TEST(cache_frames, say_of_whom_caches_are) {
  cache_frame full;
  for (std::uint32_t i = 0; i < cache_frame::max_requests; ++i)
    full.requests.push_back({UINT64_MAX - i, 64 - i / 16 % 64});
  std::ranges::stable_sort(full.requests, std::greater(), &held_request::positions);
  EXPECT_EQ(back(full), full);
  EXPECT_EQ(back(cache_frame{}), cache_frame{});
  for (const auto& x : std::vector<std::vector<held_request>>{{{1, 0}}, {{1, 65}}, {{1, 4}, {1, 4}}, {{1, 4}, {2, 5}}})
    EXPECT_THROW(back(cache_frame{x}), communication_error);
  std::array<std::byte, cache_frame_bytes> bytes;
  encode(full, bytes);
  for (const std::size_t at : {std::size_t{1}, std::size_t{9}, std::size_t{16 + 13}}) { // how many, and what is zero
    auto other = bytes;
    other[at] = std::byte{0x70};
    cache_frame into;
    EXPECT_THROW(decode(std::span<const std::byte, cache_frame_bytes>(other), bounds, into), communication_error) << at;
  }
}

// given: frames of each kind, with as much as there may be / expected: the same after their way
TEST(pass_frames, are_the_same_after_their_way) {
  EXPECT_EQ(back(full_pass()), full_pass());
  const pass_frame asked{.kind = pass_frame_kind::held,
                         .epoch = 1,
                         .number = 2,
                         .room = ~std::uint64_t{0} >> 1,
                         .rows = {{5, 64, 0}, {6, 0, 0}}};
  EXPECT_EQ(back(asked), asked);
  for (const auto kind : {pass_frame_kind::idle, pass_frame_kind::drained, pass_frame_kind::failed}) {
    const pass_frame x{.kind = kind, .epoch = 3, .number = 4};
    EXPECT_EQ(back(x), x);
    const pass_answer y{.kind = kind, .epoch = 3, .number = 4};
    EXPECT_EQ(back(y), y);
  }
  const pass_answer tokens{
      .kind = pass_frame_kind::rows, .epoch = 3, .number = 4, .tokens = {{1, 64, 255}, {2, 3, pass_answer::no_token}}};
  EXPECT_EQ(back(tokens), tokens);
  const pass_answer held{.kind = pass_frame_kind::held, .epoch = 3, .number = 4, .room = 5, .tokens = {{1, 64, 0}}};
  EXPECT_EQ(back(held), held);
}

// given: frames with one thing that cannot be / expected: refused
TEST(pass_frames, are_refused_where_they_mean_nothing) {
  const auto refuses = [](const std::function<void(pass_frame&)>& spoil) {
    auto x = full_pass();
    spoil(x);
    EXPECT_THROW(back(x), communication_error);
  };
  refuses([](auto& x) { x.kind = static_cast<pass_frame_kind>(0); });
  refuses([](auto& x) { x.kind = static_cast<pass_frame_kind>(6); });
  refuses([](auto& x) { x.kind = pass_frame_kind::idle; });
  refuses([](auto& x) { x.kind = pass_frame_kind::held; });
  refuses([](auto& x) { x.size = 191; });
  refuses([](auto& x) { x.size = 193; });
  refuses([](auto& x) { x.room = 1; });
  refuses([](auto& x) { x.rows.clear(); });
  refuses([](auto& x) { x.rows[7].position = 64; });
  refuses([](auto& x) { x.rows[191].token = 256; });
  refuses([](auto& x) { x.draws[63].row = 192; });
  refuses([](auto& x) { x.draws[1].row = 0; });
  refuses([](auto& x) { x.draws[1].how.temperature = std::numeric_limits<double>::infinity(); });
  refuses([](auto& x) { x.draws[1].how.temperature = -0.5; });
  refuses([](auto& x) { x.draws[1].how.top_p = std::numeric_limits<double>::quiet_NaN(); });
  refuses([](auto& x) { x.draws[1].how.top_p = 0; });
  EXPECT_THROW(back(pass_frame{.kind = pass_frame_kind::held, .room = std::uint64_t{1} << 63}), communication_error);
  EXPECT_THROW(back(pass_frame{.kind = pass_frame_kind::held, .rows = {{1, 65, 0}}}), communication_error);
  EXPECT_THROW(back(pass_frame{.kind = pass_frame_kind::held, .rows = {{1, 1, 1}}}), communication_error);
  EXPECT_THROW(back(pass_answer{.kind = pass_frame_kind::rows, .tokens = {{1, 65, 0}}}), communication_error);
  EXPECT_THROW(back(pass_answer{.kind = pass_frame_kind::rows, .tokens = {{1, 1, 256}}}), communication_error);
  EXPECT_THROW(back(pass_answer{.kind = pass_frame_kind::idle, .tokens = {{1, 1, 0}}}), communication_error);
}

// given: counts beyond what there may be, and drawn bytes / expected: nothing is read beyond the frame
TEST(pass_frames, believe_no_count) {
  std::mt19937_64 draw(1);
  std::array<std::byte, pass_frame_bytes> bytes;
  pass_frame frame;
  for (int i = 0; i < 20'000; ++i) {
    encode(full_pass(), bytes);
    for (auto n = draw() % 4; n > 0; --n)
      bytes[draw() % 48] = static_cast<std::byte>(draw());
    try {
      decode(std::span<const std::byte, pass_frame_bytes>(bytes), bounds, frame);
      EXPECT_LE(frame.rows.size(), pass_frame::max_rows);
      EXPECT_LE(frame.draws.size(), pass_frame::max_draws);
    } catch (const communication_error&) {
    }
  }
}

} // namespace
} // namespace parcae
