// (D, P) of a job that serves, by what fits.

#include "planner/serving/service_grid.hpp"

#include <gmock/gmock.h>

namespace parcae::serving {
namespace {

using testing::HasSubstr;

// An embedding, four blocks, a head.
std::vector<served_layer> layers() {
  std::vector<served_layer> result(6, served_layer{1000, 1, 10, 1});
  result.front() = result.back() = {4000, 10, 0, 1};
  return result;
}

constexpr grid_terms any{1, 64, 1, 64, 32, 1'000'000, 0};

// given: slots / expected: no more stages than needed, and all slots that whole pipelines take
TEST(service_grid, takes_the_fewest_stages_and_all_slots) {
  auto terms = any;
  EXPECT_EQ(choose_grid(layers(), terms, 5).width, 5u);
  EXPECT_EQ(choose_grid(layers(), terms, 5).depth, 1u);
  EXPECT_EQ(choose_grid(layers(), terms, 5).why,
            "5 pipelines of 1 stage: the fewest stages that fit a slot, on 5 slots");
  terms.min_depth = 2;
  const auto x = choose_grid(layers(), terms, 5);
  EXPECT_EQ(x.width, 2u);
  EXPECT_EQ(x.first_layer, (std::vector<std::uint32_t>{0, 3, 6}));
  terms.max_width = 1;
  EXPECT_EQ(choose_grid(layers(), terms, 5).width, 1u);
}

// given: a slot that holds weights twice, caches and a pass, or a byte less / expected: one stage, or two
TEST(service_grid, deepens_where_a_stage_does_not_fit) {
  auto terms = any;
  terms.slot_bytes = 2 * 12'000 + terms.cache_bytes + max_pass_rows * 10;
  EXPECT_EQ(memory_of_stage(layers(), terms).total(), terms.slot_bytes);
  EXPECT_EQ(choose_grid(layers(), terms, 4).depth, 1u);
  --terms.slot_bytes;
  EXPECT_EQ(choose_grid(layers(), terms, 4).depth, 2u);
  EXPECT_EQ(choose_grid(layers(), terms, 4).width, 2u);
  terms.max_depth = 1;
  const auto x = choose_grid(layers(), terms, 4);
  EXPECT_EQ(x.width, 0u);
  EXPECT_THAT(x.why, HasSubstr("nothing fits 4 slots: stage 0 of 1 takes "));
}

// given: caches with room for one longest request in two of four blocks / expected: two stages, and for less nothing
TEST(service_grid, caches_hold_a_longest_request) {
  auto terms = any;
  const std::uint64_t block = 10 * positions_of_block;
  const auto all = layers();
  terms.cache_bytes = 2 * 2 * block; // two layers, 32 positions
  EXPECT_EQ(positions_in(std::span(all).subspan(1, 2), largest_cache(all), terms.cache_bytes), 32u);
  EXPECT_EQ(positions_in(std::span(all).subspan(0, 1), largest_cache(all), terms.cache_bytes), UINT64_MAX);
  EXPECT_EQ(choose_grid(layers(), terms, 4).depth, 2u);
  terms.context = 33;
  EXPECT_EQ(choose_grid(layers(), terms, 6).depth, 5u) << "one with caches in each stage";
  terms.context = 65;
  const auto x = choose_grid(layers(), terms, 6);
  EXPECT_EQ(x.width, 0u);
  EXPECT_THAT(x.why, HasSubstr("and a request may have 65; give more, or a smaller serve.context"));
}

// given: fewer slots than the job asks for / expected: it says of how many
TEST(service_grid, waits_for_slots) {
  auto terms = any;
  terms.min_depth = 2;
  terms.min_width = 2;
  EXPECT_EQ(choose_grid(layers(), terms, 3).width, 0u);
  EXPECT_EQ(choose_grid(layers(), terms, 3).why,
            "waits for slots: 3 of the 4 that parallel.min_width and min_depth ask for");
  EXPECT_EQ(choose_grid(layers(), terms, 4).width, 2u);
}

} // namespace
} // namespace parcae::serving
