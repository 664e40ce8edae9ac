// Which layers each keeper is to hold.

#include "planner/situation/keeper_shares.hpp"
#include "protocols/values/state.hpp"
#include "tests/support/names.hpp"

#include <algorithm>
#include <numeric>
#include <random>

namespace parcae {
namespace {

using shares = std::vector<std::vector<std::uint32_t>>;

shares of(std::vector<keeper_room> keepers, std::vector<std::uint64_t> bytes, std::uint32_t copies) {
  return share_among_keepers(keepers, bytes, copies);
}

/// As if all was brought there.
std::vector<keeper_room> holding(const shares& x) {
  std::vector<keeper_room> result;
  for (const auto& layers : x)
    result.push_back({{layers.begin(), layers.end()}, 0});
  return result;
}

std::uint64_t load_of(const std::vector<std::uint32_t>& share, const std::vector<std::uint64_t>& bytes) {
  return std::accumulate(share.begin(), share.end(), std::uint64_t{0},
                         [&](auto sum, auto layer) { return sum + bytes[layer]; });
}

/// Bytes that have to be brought to somebody.
std::uint64_t moved(const std::vector<keeper_room>& before, const shares& after,
                    const std::vector<std::uint64_t>& bytes) {
  std::uint64_t result = 0;
  for (std::size_t k = 0; k < after.size(); ++k)
    for (const auto layer : after[k])
      result += before[k].held.contains(layer) ? 0 : bytes[layer];
  return result;
}

std::uint32_t copies_of(std::uint32_t layer, const shares& x) {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(x, [&](const auto& share) { return std::ranges::binary_search(share, layer); }));
}

TEST(keeper_shares, small_cases) {
  // given / expected, in the order of the table: nobody; one keeper takes all; two copies, two keepers; spread; what is
  // held stays where it is; a newcomer takes only what balances; who is lost is replaced, the others keep what they
  // have
  EXPECT_THAT(of({}, {1, 1}, 2), ElementsAre());
  EXPECT_THAT(of({{}}, {1, 1, 1}, 2), ElementsAre(ElementsAre(0, 1, 2)));
  EXPECT_THAT(of({{}, {}}, {1, 1, 1}, 2), ElementsAre(ElementsAre(0, 1, 2), ElementsAre(0, 1, 2)));
  EXPECT_THAT(of({{}, {}}, {4, 1, 1, 1, 1}, 1), ElementsAre(ElementsAre(0), ElementsAre(1, 2, 3, 4)));
  EXPECT_THAT(of({{{0, 1}}, {{2, 3}}}, {1, 1, 1, 1}, 1), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(of({{{0, 1, 2, 3}}, {}}, {1, 1, 1, 1}, 1), ElementsAre(ElementsAre(2, 3), ElementsAre(0, 1)));
  EXPECT_THAT(of({{{0, 1}}, {{1, 2}}}, {1, 1, 1}, 2), ElementsAre(ElementsAre(0, 1, 2), ElementsAre(0, 1, 2)));
}

TEST(keeper_shares, memory_is_for_first_copies) {
  // given: room for three of four layers each, for one, and for none at all. expected: two copies of what fits; one of
  // each; all with who has room, though that is too much
  const auto room = [](std::uint64_t bytes) { return keeper_versions * bytes; };
  auto x = of({{{}, room(3)}, {{}, room(3)}}, {1, 1, 1, 1}, 2);
  EXPECT_THAT(x, ElementsAre(ElementsAre(0, 1, 2), ElementsAre(0, 1, 3)));
  x = of({{{}, room(2)}, {{}, room(2)}}, {1, 1, 1, 1}, 2);
  for (std::uint32_t layer = 0; layer < 4; ++layer)
    EXPECT_EQ(copies_of(layer, x), 1u);
  x = of({{{}, 1}}, {1, 1}, 2);
  EXPECT_THAT(x, ElementsAre(ElementsAre(0, 1)));
}

// given / expected, in the order of the table: each machine computes one of two layers; the same where the layers are
// held beside their ranks; of two copies one is elsewhere; all machines compute all; no room elsewhere
TEST(keeper_shares, one_copy_is_apart_from_who_computes_it) {
  const auto on = [](std::set<std::uint32_t> computed, std::set<std::uint32_t> held = {}, std::uint64_t bytes = 0) {
    return keeper_room{std::move(held), bytes, std::move(computed)};
  };
  EXPECT_THAT(of({on({0}), on({1})}, {1, 1}, 1), ElementsAre(ElementsAre(1), ElementsAre(0)));
  EXPECT_THAT(of({on({0}, {0}), on({1}, {1})}, {1, 1}, 1), ElementsAre(ElementsAre(1), ElementsAre(0)));
  EXPECT_THAT(of({on({0}), on({0}), on({})}, {1}, 2), ElementsAre(ElementsAre(0), ElementsAre(), ElementsAre(0)));
  EXPECT_THAT(of({on({0, 1}), on({0, 1})}, {1, 1}, 1), ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_THAT(of({on({0}), on({}, {}, 1)}, {1}, 1), ElementsAre(ElementsAre(0), ElementsAre()));
}

// given: random layers, keepers and grids / expected: no layer only where it is computed while another keeper has room,
// and nothing moves any more
TEST(keeper_shares, random_grids) {
  for (std::uint64_t seed = 1; seed <= 1'000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<std::uint64_t> bytes(2 + random() % 20, 100);
    std::vector<keeper_room> keepers(1 + random() % 8);
    for (auto& x : keepers) {
      const auto from = random() % bytes.size(), to = from + random() % (bytes.size() - from + 1);
      for (auto layer = from; layer < to; ++layer)
        x.computed.insert(static_cast<std::uint32_t>(layer));
      for (auto layer = random() % 3; layer < bytes.size(); layer += 1 + random() % 5)
        x.held.insert(static_cast<std::uint32_t>(layer));
    }
    const auto copies = static_cast<std::uint32_t>(1 + random() % 3);
    const auto now = of(keepers, bytes, copies);
    for (std::uint32_t layer = 0; layer < bytes.size(); ++layer) {
      EXPECT_EQ(copies_of(layer, now), std::min<std::size_t>(copies, keepers.size()));
      bool could_be = false, is = false;
      for (std::size_t k = 0; k < keepers.size(); ++k)
        if (!keepers[k].computed.contains(layer)) {
          could_be = true;
          is |= std::ranges::binary_search(now[k], layer);
        }
      EXPECT_EQ(is, could_be) << "layer " << layer;
    }
    for (std::size_t k = 0; k < keepers.size(); ++k)
      keepers[k].held = {now[k].begin(), now[k].end()};
    EXPECT_EQ(of(keepers, bytes, copies), now) << "it stays";
  }
}

// given: random layers, keepers that come and go, one after the other / expected, after each: as many copies as there
// can be, on different keepers; twice the same, and nothing moves any more; a join brings layers to the newcomer alone,
// no more than its share; with one copy, loads apart by one layer at most, and a loss moves what was lost and at most
// one layer
TEST(keeper_shares, random_comings_and_goings) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<std::uint64_t> bytes(4 + random() % 40);
    for (auto& x : bytes)
      x = seed % 2 ? 100 : 1 + random() % 100;
    const auto largest = *std::ranges::max_element(bytes);
    const auto copies = static_cast<std::uint32_t>(1 + random() % 3);
    shares now(1 + random() % 5);
    now = of(holding(now), bytes, copies);
    for (int i = 0; i < 12; ++i) {
      const bool joins = now.size() < 2 || random() % 2;
      std::uint64_t lost = 0;
      const auto at = static_cast<std::ptrdiff_t>(random() % now.size());
      if (!joins)
        lost = load_of(now[static_cast<std::size_t>(at)], bytes);
      joins ? void(now.insert(now.begin() + at, std::vector<std::uint32_t>{})) : void(now.erase(now.begin() + at));
      const auto before = holding(now);
      const auto after = of(before, bytes, copies);
      EXPECT_EQ(after, of(before, bytes, copies));
      for (std::uint32_t layer = 0; layer < bytes.size(); ++layer)
        EXPECT_EQ(copies_of(layer, after), std::min<std::size_t>(copies, after.size()));
      std::vector<std::uint64_t> loads;
      for (const auto& share : after)
        loads.push_back(load_of(share, bytes));
      const auto [least, most] = std::ranges::minmax(loads);
      if (copies == 1) { // else a layer may be with both already
        EXPECT_LE(most - least, largest);
      }
      EXPECT_EQ(of(holding(after), bytes, copies), after) << "it stays";
      const auto enough = joins && copies < now.size();
      if (enough)
        for (std::size_t k = 0; k < after.size(); ++k)
          if (static_cast<std::ptrdiff_t>(k) != at) {
            EXPECT_TRUE(std::ranges::includes(now[k], after[k])) << "nothing is brought to those that were there";
          }
      if (enough) {
        EXPECT_LE(moved(before, after, bytes), least + largest) << "to the newcomer: its share";
      } else if (!joins && copies == 1) { // else evening out may take more, as above
        EXPECT_LE(moved(before, after, bytes), lost + largest);
      }
      now = after;
    }
  }
}

} // namespace
} // namespace parcae
