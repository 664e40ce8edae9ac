// Caches: blocks are reserved or refused, and freed exactly.

#include "gpu/serving/cache_store.hpp"
#include "tests/support/thrown_by.hpp"

#include <ATen/ATen.h>

#include <gmock/gmock.h>

#include <map>
#include <random>
#include <vector>

namespace parcae {
namespace {

using testing::HasSubstr;

constexpr attention_shape small{2, 1, 4}, large{2, 2, 4};
const kept_shapes two_layers{{3, small}, {5, large}};

/// Room for so many blocks of the largest layer, and not quite one more.
std::uint64_t bytes_for(std::size_t blocks) {
  return (blocks + 1) * large.block_values() * sizeof(float) - 1;
}

// given: room for 10 blocks, two layers / expected: positions in whole blocks, all or none; what is given back can be
// had
TEST(cache_store, reserves_or_refuses) {
  cache_store store(two_layers, bytes_for(10), processor());
  EXPECT_EQ(store.blocks(), 10u);
  EXPECT_TRUE(store.reserve(1, 16)); // a block in each layer
  EXPECT_TRUE(store.reserve(1, 10)); // which it has
  EXPECT_EQ(store.free_blocks(), 8u);
  EXPECT_TRUE(store.reserve(1, 17));
  EXPECT_EQ(store.free_blocks(), 6u);
  EXPECT_FALSE(store.reserve(2, 49));
  EXPECT_FALSE(store.reserve(1, 81));
  EXPECT_EQ(store.free_blocks(), 6u);
  EXPECT_TRUE(store.reserve(2, 48));
  EXPECT_EQ(store.free_blocks(), 0u);
  EXPECT_FALSE(store.reserve(3, 1));
  store.release(3);
  store.release(1);
  EXPECT_EQ(store.free_blocks(), 4u);
  store.release(1);
  store.release(2);
  EXPECT_EQ(store.free_blocks(), 10u);
}

// given: three requests, of which one is to stay / expected: it has its blocks, all others are free; a request alone
// may have all of them, in each layer
TEST(cache_store, releases_all_others) {
  cache_store store(two_layers, bytes_for(11), processor());
  EXPECT_EQ(store.positions(), 5 * 16u);
  for (const std::uint64_t id : {1, 2, 3})
    EXPECT_TRUE(store.reserve(id, 16));
  store.release_others({2, 9});
  EXPECT_EQ(store.free_blocks(), 9u);
  store.release_others({});
  EXPECT_EQ(store.free_blocks(), 11u);
  EXPECT_TRUE(store.reserve(4, 5 * 16));
}

// given: requests that come, grow and go at any time / expected: as many free blocks as the others do not have
TEST(cache_store, counts_exactly) {
  std::mt19937_64 draw(1);
  cache_store store(two_layers, bytes_for(101), processor());
  std::map<std::uint64_t, std::size_t> had; // blocks of a layer
  for (int i = 0; i < 10'000; ++i) {
    const auto id = draw() % 12;
    if (draw() % 3 == 0) {
      store.release(id);
      had.erase(id);
    } else {
      const auto positions = static_cast<std::uint32_t>(1 + draw() % 200);
      if (store.reserve(id, positions))
        had[id] = std::max(had[id], (positions + std::size_t{15}) / 16);
    }
    std::size_t sum = 0;
    for (const auto& [request, blocks] : had)
      sum += 2 * blocks;
    ASSERT_EQ(store.free_blocks(), 101 - sum);
  }
}

// given: rows that are not next, without room, or of nobody / expected: said, nothing changes; held follows finish()
TEST(cache_store, holds_what_was_computed) {
  cache_store store(two_layers, bytes_for(10), processor());
  const auto rows = [](std::uint64_t request, std::uint32_t first, std::uint32_t count) {
    std::vector<request_row> result;
    for (std::uint32_t i = 0; i < count; ++i)
      result.push_back({request, first + i, 0});
    return result;
  };
  const auto said = [&](const std::vector<request_row>& x) {
    return thrown_by<std::invalid_argument>([&] { cache_pass(store, x); });
  };
  ASSERT_TRUE(store.reserve(1, 20));
  EXPECT_EQ(said(rows(2, 0, 1)), "position 0 of request 2, of which 0 are held");
  EXPECT_THAT(said(rows(1, 1, 1)), HasSubstr("position 1 of request 1"));
  EXPECT_THAT(said(rows(1, 0, 33)), HasSubstr("position 32 of request 1"));
  EXPECT_THAT(said({{1, 0, 0}, {1, 2, 0}}), HasSubstr("position 2 of request 1"));
  EXPECT_EQ(said(rows(1, 0, 20)), "");
  EXPECT_EQ(store.held(1), 0u);
  cache_pass(store, rows(1, 0, 7)).finish();
  EXPECT_EQ(store.held(1), 7u);
  cache_pass(store, rows(1, 3, 2)).finish(); // computed again
  EXPECT_EQ(store.held(1), 7u);
  EXPECT_EQ(said(rows(1, 7, 1)), "");
  store.release(1);
  EXPECT_EQ(store.held(1), 0u);
}

/// Its positions are computed in all layers that are.
void hold(cache_store& store, std::uint64_t request, std::uint32_t positions) {
  ASSERT_TRUE(store.reserve(request, positions));
  std::vector<request_row> rows;
  for (std::uint32_t i = 0; i < positions; ++i)
    rows.push_back({request, i, 0});
  cache_pass(store, rows).finish();
}

// given: a stage whose layers change / expected: what is held of those that stay, stays; others' blocks are free, and
// what has no layer that keeps anything holds all there is
TEST(cache_store, keeps_what_it_still_computes) {
  cache_store store({{3, small}, {5, large}, {6, small}}, bytes_for(30), processor());
  hold(store, 1, 20);
  EXPECT_EQ(store.free_blocks(), 24u);
  EXPECT_EQ(store.positions(), 160u);
  store.compute(5, 9);
  EXPECT_EQ(store.held(1), 20u);
  EXPECT_EQ(store.free_blocks(), 26u);
  EXPECT_EQ(store.positions(), 240u);
  store.compute(2, 6);
  EXPECT_EQ(store.held(1), 0u); // of layer 3 nothing is left
  EXPECT_EQ(store.free_blocks(), 28u);
  hold(store, 1, 7);
  EXPECT_EQ(store.held(1), 7u);
  store.compute(5, 6);
  EXPECT_EQ(store.held(1), 20u);
  store.compute(0, 3);
  EXPECT_EQ(store.held(1), UINT32_MAX);
  EXPECT_EQ(store.free_blocks(), 30u);
  EXPECT_EQ(store.positions(), UINT64_MAX);
  EXPECT_TRUE(store.reserve(1, 1'000));
}

// given: blocks that are taken from one store, whose values another one gets / expected: it holds them, in layers that
// it computes and has room in; what was taken is nobody's until it is given back
TEST(cache_store, hands_over) {
  const kept_shapes shapes{{3, small}, {5, large}};
  cache_store from(shapes, bytes_for(12), processor()), to(shapes, bytes_for(4), processor());
  hold(from, 1, 17);
  hold(from, 2, 40);
  hold(from, 3, 1);
  EXPECT_EQ(from.held_in(3, 6), (std::vector<held_request>{{2, 40}, {1, 17}, {3, 1}}));
  EXPECT_EQ(from.held_in(4, 5), std::vector<held_request>{});
  EXPECT_EQ(from.keeping(0, 5), std::vector<std::uint32_t>{3});
  to.compute(4, 9);
  const auto gone = from.take(2, 5);
  ASSERT_EQ(gone.size(), 3u);
  EXPECT_EQ(from.free_blocks(), 0u);
  EXPECT_EQ(from.held_in(3, 6), (std::vector<held_request>{{1, 17}, {3, 1}}));
  EXPECT_EQ(from.held_in(3, 4).front(), (held_request{2, 40}));
  EXPECT_EQ(from.take(2, 5), cache_store::block_list{});
  EXPECT_EQ(to.place(2, 3, 40), cache_store::block_list{}); // is not computed there
  const auto came = to.place(2, 5, 40);
  ASSERT_EQ(came.size(), 3u);
  EXPECT_EQ(to.held(2), 0u);
  for (std::size_t i = 0; i < came.size(); ++i)
    to.block(came[i], 5).copy_(from.block(gone[i], 5));
  to.note_held(2, 5, 40);
  EXPECT_EQ(to.held(2), 40u);
  EXPECT_EQ(to.place(2, 5, 40), cache_store::block_list{}); // which it holds
  EXPECT_EQ(to.place(7, 5, 17), cache_store::block_list{});
  EXPECT_EQ(to.free_blocks(), 1u);
  EXPECT_EQ(to.place(2, 5, 41).size(), 3u);
  EXPECT_EQ(to.held(2), 0u);
  to.note_held(2, 5, 0); // nothing came
  EXPECT_EQ(to.free_blocks(), 4u);
  from.give_back(gone);
  EXPECT_EQ(from.free_blocks(), 3u);
}

// given: queries, keys and values in all layouts that layers have, padded / expected: the same, 0 behind the rows
TEST(cache_store, takes_tensors_as_layers_have_them) {
  cache_store store({{0, large}}, bytes_for(10), processor());
  ASSERT_TRUE(store.reserve(1, 3));
  const std::vector<request_row> rows{{1, 0, 0}, {1, 1, 0}, {1, 2, 0}};
  const auto q = at::randn({5, 2, 1, 4}), k = at::randn({5, 2, 1, 4}), v = at::randn({5, 2, 1, 4});
  const auto attend = [&](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
    return cache_pass(store, rows).attend(0, a, b, c, 0.5);
  };
  const auto expected = attend(q, k, v);
  EXPECT_EQ(expected.sizes(), q.sizes());
  EXPECT_TRUE(at::equal(expected.narrow(0, 3, 2), at::zeros({2, 2, 1, 4})));
  EXPECT_TRUE(at::equal(expected.select(0, 0), v.select(0, 0)));  // it sees itself only
  const auto side_by_side = at::stack({q, k, v}, 1).contiguous(); // [rows, 3, heads, 1, size]
  EXPECT_TRUE(
      at::equal(attend(side_by_side.select(1, 0), side_by_side.select(1, 1), side_by_side.select(1, 2)), expected));
  const auto across = [](const at::Tensor& x) { return x.transpose(1, 3).contiguous().transpose(1, 3); };
  EXPECT_TRUE(at::equal(attend(across(q), across(k), side_by_side.select(1, 2)), expected));
  const auto half = [](const at::Tensor& x) { return x.to(at::kBFloat16); };
  const auto of_halves = attend(half(q), half(k), half(v));
  EXPECT_EQ(of_halves.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::allclose(of_halves.to(at::kFloat), expected, 0.1, 0.1));
  EXPECT_THROW(attend(q, k.narrow(1, 0, 1), v.narrow(1, 0, 1)), std::invalid_argument);
}

} // namespace
} // namespace parcae
