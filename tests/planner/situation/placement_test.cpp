#include "planner/situation/placement.hpp"
#include "tests/planner/situation/least_cost.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace parcae {
namespace {

// --- partition_layers

// All partitions in lexicographic order of their boundaries, so that the first best one has the smallest early stages.
std::vector<std::uint32_t> brute_partition(const std::vector<double>& ms, std::uint32_t depth) {
  const auto n = static_cast<std::uint32_t>(ms.size());
  std::vector<std::uint32_t> best, now{0};
  double best_ms = 1e300;
  std::function<void(double)> extend = [&](double slowest) {
    if (now.size() == depth) {
      const double last = std::accumulate(ms.begin() + now.back(), ms.end(), 0.0);
      if (std::max(slowest, last) < best_ms) {
        best_ms = std::max(slowest, last);
        best = now;
        best.push_back(n);
      }
      return;
    }
    double sum = 0;
    for (auto end = now.back() + 1; end + (depth - now.size()) <= n; ++end) {
      sum += ms[end - 1];
      const auto begin = now.back();
      now.push_back(end);
      extend(std::max(slowest, sum));
      now.pop_back();
      EXPECT_EQ(now.back(), begin);
    }
  };
  extend(0);
  return best;
}

TEST(partition_layers, agrees_with_brute_force) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2'000; ++round) {
    const auto n = 1 + random() % 9;
    std::vector<double> ms(n);
    for (auto& x : ms)
      x = round % 2 ? static_cast<double>(random() % 4) : std::uniform_real_distribution(0.0, 1.0)(random);
    for (std::uint32_t depth = 1; depth <= n; ++depth)
      EXPECT_EQ(partition_layers(ms, depth), brute_partition(ms, depth)) << "round " << round << " depth " << depth;
  }
}

TEST(partition_layers, refuses_impossible_depths) {
  const std::vector<double> ms{1, 2};
  EXPECT_THROW(partition_layers(ms, 0), std::invalid_argument);
  EXPECT_THROW(partition_layers(ms, 3), std::invalid_argument);
  const std::vector<double> bad{1, std::nan("")};
  EXPECT_THROW(partition_layers(bad, 1), std::invalid_argument);
}

// --- plan_change

const version now{10, {3}};

candidate worker(const std::string& name, std::uint64_t age, std::uint32_t first = 0, std::uint32_t end = 0) {
  candidate x;
  x.where = {{name, {age + 1}, 0}, "host", 1};
  x.age = age;
  for (auto layer = first; layer < end; ++layer)
    x.held.push_back({layer, now});
  return x;
}

candidate keeper(const std::string& name, std::uint64_t age, std::uint32_t first, std::uint32_t end) {
  auto x = worker(name, age, first, end);
  x.keeper = true;
  return x;
}

std::vector<std::string> names(const placement& x) {
  std::vector<std::string> result;
  for (const auto& p : x.participants)
    result.push_back(p.slot.instance);
  return result;
}

using strings = std::vector<std::string>;

// Every rank ends with all of its layers, from participants that have them; sources are no destinations unless ranks.
void expect_sound(const change_plan& plan, const std::vector<candidate>& candidates, const version& at,
                  std::span<const std::uint64_t> bytes) {
  std::map<slot_id, const candidate*> by_slot;
  for (const auto& x : candidates)
    by_slot[x.where.slot] = &x;
  auto holds = [&](std::uint32_t participant, std::uint32_t layer) {
    const auto& held = by_slot.at(plan.target.participants.at(participant).slot)->held;
    return std::count(held.begin(), held.end(), layer_version{layer, at}) > 0;
  };
  std::set<slot_id> slots;
  for (const auto& p : plan.target.participants)
    EXPECT_TRUE(slots.insert(p.slot).second);
  std::map<std::pair<std::uint32_t, std::uint32_t>, int> arrives;
  std::uint64_t sum = 0;
  std::set<std::uint32_t> sources;
  for (const auto& m : plan.moves) {
    EXPECT_TRUE(holds(m.source, m.layer));
    EXPECT_LT(m.destination, plan.target.ranks());
    EXPECT_EQ(++arrives[std::pair(m.destination, m.layer)], 1);
    sum += bytes[m.layer];
    sources.insert(m.source);
  }
  EXPECT_EQ(sum, plan.bytes);
  for (std::uint32_t rank = 0; rank < plan.target.participants.size(); ++rank) {
    const auto& c = *by_slot.at(plan.target.participants[rank].slot);
    if (rank >= plan.target.ranks()) {
      EXPECT_TRUE(sources.contains(rank));
      continue;
    }
    EXPECT_FALSE(c.leaving || c.keeper);
    const auto stage = plan.target.stage_of(rank);
    for (auto layer = plan.target.first_layer[stage]; layer < plan.target.first_layer[stage + 1]; ++layer)
      EXPECT_EQ(arrives.count(std::pair(rank, layer)),
                !holds(rank, layer) && !std::count(plan.seeded.begin(), plan.seeded.end(), layer) ? 1u : 0u);
  }
}

TEST(plan_change, first_placement_is_seeded) {
  std::vector<candidate> c{worker("b", 1), worker("a", 0), worker("c", 2)};
  const std::vector<std::uint32_t> first{0, 2, 4};
  const std::vector<std::uint64_t> bytes{1, 1, 1, 1};
  const auto plan = plan_change(1, first, c, {}, bytes, nullptr);
  EXPECT_EQ(names(plan.target), (strings{"a", "b"}));
  EXPECT_EQ(plan.seeded, (std::vector<std::uint32_t>{0, 1, 2, 3}));
  EXPECT_TRUE(plan.moves.empty());
  EXPECT_EQ(plan.kind, migration::none);
  EXPECT_THROW(plan_change(2, first, c, {}, bytes, nullptr), std::invalid_argument);
  EXPECT_THROW(plan_change(1, first, c, now, bytes, nullptr), std::invalid_argument);
}

TEST(plan_change, keeps_places_and_says_none) {
  std::vector<candidate> c{worker("a", 0, 0, 2), worker("b", 1, 2, 4), worker("c", 2, 0, 2), worker("d", 3, 2, 4)};
  const std::vector<std::uint32_t> first{0, 2, 4};
  const std::vector<std::uint64_t> bytes{5, 5, 5, 5};
  placement before{2, 2, first, {c[2].where, c[1].where, c[0].where, c[3].where}};
  auto plan = plan_change(2, first, c, now, bytes, &before);
  EXPECT_EQ(names(plan.target), (strings{"c", "b", "a", "d"}));
  EXPECT_EQ(plan.kind, migration::none);
  EXPECT_EQ(plan.bytes, 0u);
}

// given: 2x2 of a b / c d and what happened / expected: kind, bytes
TEST(plan_change, names_the_kind) {
  const std::vector<std::uint32_t> two{0, 2, 4}, one{0, 4}, uneven{0, 1, 4};
  const std::vector<std::uint64_t> bytes{5, 5, 5, 5};
  const auto a = worker("a", 0, 0, 2), b = worker("b", 1, 2, 4), c = worker("c", 2, 0, 2), d = worker("d", 3, 2, 4),
             spare = worker("s", 4);
  placement before{2, 2, two, {a.where, b.where, c.where, d.where}};
  struct {
    std::vector<candidate> left;
    std::uint32_t width;
    std::vector<std::uint32_t> first;
    migration kind;
    std::uint64_t bytes;
  } table[] = {
      {{a, b, c, spare}, 2, two, migration::intra_stage, 10}, // the spare gets stage 1 from its replica
      {{a, b, c}, 1, two, migration::intra_stage, 0},         // narrower
      {{b, c}, 1, two, migration::intra_stage, 0},            // another pipeline, the same stage
      {{a, c, keeper("k", 9, 0, 4)}, 1, two, migration::inter_stage, 10},
      {{a, b, c, d}, 2, uneven, migration::inter_stage, 10}, // layer 1 goes to both replicas of stage 1
      {{a, b, c, d}, 3, one, migration::pipeline, 30},
      {{a, b, c, d}, 4, one, migration::pipeline, 40},
  };
  for (const auto& x : table) {
    const auto plan = plan_change(x.width, x.first, x.left, now, bytes, &before);
    EXPECT_EQ(plan.kind, x.kind) << plan.reason;
    EXPECT_EQ(plan.bytes, x.bytes) << plan.reason;
    expect_sound(plan, x.left, now, bytes);
  }
}

TEST(plan_change, leaving_slots_are_sources_first_and_never_destinations) {
  auto a = worker("a", 0, 0, 4), b = worker("b", 1, 0, 4), fresh = worker("c", 2);
  b.leaving = true;
  const std::vector<std::uint32_t> first{0, 4};
  const std::vector<std::uint64_t> bytes{7, 1, 1, 1};
  const auto plan = plan_change(2, first, {a, b, fresh}, now, bytes, nullptr);
  EXPECT_EQ(names(plan.target), (strings{"a", "c", "b"}));
  for (const auto& m : plan.moves)
    EXPECT_EQ(m.source, m.layer == 0 ? 2u : 0u) << m.layer; // 7 from the leaving one, 3 from the other
}

TEST(plan_change, keepers_send_only_what_no_worker_holds) {
  const std::vector<std::uint32_t> first{0, 2, 4};
  const std::vector<std::uint64_t> bytes{1, 1, 1, 1};
  std::vector<candidate> c{keeper("k", 0, 0, 4), worker("a", 1, 0, 2), worker("b", 2), worker("d", 3)};
  const auto plan = plan_change(1, first, c, now, bytes, nullptr);
  EXPECT_EQ(names(plan.target), (strings{"a", "b", "k"}));
  EXPECT_EQ(plan.moves, (std::vector<shard_move>{{2, 2, 1}, {3, 2, 1}}));
  expect_sound(plan, c, now, bytes);
}

TEST(plan_change, other_versions_do_not_count) {
  auto stale = worker("a", 0);
  stale.held = {{0, {11, {3}}}, {1, {10, {2}}}};
  std::vector<candidate> c{stale, worker("b", 1, 0, 2)};
  const std::vector<std::uint32_t> first{0, 2};
  const std::vector<std::uint64_t> bytes{1, 1};
  const auto plan = plan_change(1, first, c, now, bytes, nullptr);
  EXPECT_EQ(names(plan.target), (strings{"b"}));
}

// Least bytes over all ways to fill the places, and least busiest sender over all ways to choose sources.
TEST(plan_change, agrees_with_brute_force) {
  std::mt19937_64 random(4);
  int optimal = 0, with_moves = 0;
  for (int round = 0; round < 1'000; ++round) {
    const std::uint32_t layers = 2 + random() % 3, depth = 1 + random() % 2, width = 1 + random() % 2;
    std::vector<std::uint32_t> first{0};
    if (depth == 2)
      first.push_back(1 + random() % (layers - 1));
    first.push_back(layers);
    std::vector<std::uint64_t> bytes(layers);
    const bool equal = round % 2 == 0;
    for (auto& x : bytes)
      x = equal ? 8 : 1 + random() % 9;
    std::vector<candidate> c;
    const auto n = width * depth + random() % 3;
    for (std::uint32_t i = 0; i < n; ++i) {
      c.push_back(worker("w" + std::to_string(i), i));
      for (std::uint32_t layer = 0; layer < layers; ++layer)
        if (random() % 3)
          c.back().held.push_back({layer, random() % 5 ? now : version{9, {3}}});
    }
    c.push_back(keeper("k", 99, 0, layers));
    if (random() % 2) {
      c.push_back(worker("leaving", 50, 0, layers));
      c.back().leaving = true;
    }
    const auto plan = plan_change(width, first, c, now, bytes, nullptr);
    expect_sound(plan, c, now, bytes);

    auto holds = [&](const candidate& x, std::uint32_t layer) {
      return std::count(x.held.begin(), x.held.end(), layer_version{layer, now}) > 0;
    };
    std::vector<std::uint32_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::uint64_t least = UINT64_MAX;
    do {
      std::uint64_t sum = 0;
      for (std::uint32_t rank = 0; rank < width * depth; ++rank)
        for (auto layer = first[rank % depth]; layer < first[rank % depth + 1]; ++layer)
          sum += holds(c[order[rank]], layer) ? 0 : bytes[layer];
      least = std::min(least, sum);
    } while (std::next_permutation(order.begin(), order.end()));
    EXPECT_EQ(plan.bytes, least) << "round " << round;

    // Independent of the order of candidates.
    auto shuffled = c;
    std::shuffle(shuffled.begin(), shuffled.end(), random);
    const auto again = plan_change(width, first, shuffled, now, bytes, nullptr);
    EXPECT_EQ(again.target, plan.target);
    EXPECT_EQ(again.moves, plan.moves);

    // Sources.
    if (plan.moves.empty() || plan.moves.size() > 6)
      continue;
    std::map<std::uint32_t, std::uint64_t> load;
    for (const auto& m : plan.moves)
      load[m.source] += bytes[m.layer];
    std::uint64_t busiest = 0;
    for (const auto& [source, sum] : load)
      busiest = std::max(busiest, sum);
    std::vector<std::uint64_t> sent(c.size(), 0);
    std::uint64_t best = UINT64_MAX;
    std::function<void(std::size_t)> choose = [&](std::size_t i) {
      if (i == plan.moves.size()) {
        best = std::min(best, *std::max_element(sent.begin(), sent.end()));
        return;
      }
      const auto layer = plan.moves[i].layer;
      const bool worker_has =
          std::any_of(c.begin(), c.end(), [&](const auto& x) { return !x.keeper && holds(x, layer); });
      for (std::size_t s = 0; s < c.size(); ++s)
        if (holds(c[s], layer) && c[s].keeper != worker_has) {
          sent[s] += bytes[layer];
          choose(i + 1);
          sent[s] -= bytes[layer];
        }
    };
    choose(0);
    ++with_moves;
    optimal += busiest == best;
    EXPECT_GE(busiest, best) << "round " << round;
    if (equal)
      EXPECT_EQ(busiest, best) << "round " << round;
    else
      EXPECT_LE(3 * busiest, 4 * best) << "round " << round;
  }
  EXPECT_GT(with_moves, 300);
  EXPECT_GT(optimal, with_moves * 95 / 100);
}

// --- who gets which place

// given: fleets that hold what an earlier grid, or none, left them with, some of them more or less than others
// expected: the cost of the best assignment of single slots to single places, all three components; then the same again
TEST(plan_change, places_at_least_cost) {
  std::mt19937_64 random(6);
  int moved = 0;
  for (int round = 0; round < 400; ++round) {
    const auto draw = [&](std::uint64_t from, std::uint64_t to) {
      return static_cast<std::uint32_t>(from + random() % (to - from + 1));
    };
    const auto layers = draw(4, 12);
    const auto cut = [&](std::uint32_t depth) {
      std::vector<double> ms(layers);
      for (auto& x : ms)
        x = draw(1, 4);
      return partition_layers(ms, depth);
    };
    std::vector<std::uint64_t> bytes(layers);
    for (auto& x : bytes)
      x = round % 3 ? draw(1, 9) : 5;
    const auto old_depth = draw(1, 4), old_width = draw(1, 5), depth = round % 2 ? old_depth : draw(1, 4);
    const auto old_first = cut(old_depth);
    const auto first = round % 4 == 1 ? old_first : cut(depth);
    placement before{old_width, old_depth, old_first, {}};
    std::vector<candidate> c;
    const auto spares = draw(1, 6);
    for (std::uint32_t i = 0; i < old_width * old_depth + spares; ++i) {
      const auto age = draw(0, 1000) * 1000 + i;
      const bool is_rank = i < old_width * old_depth;
      const auto stage = i % old_depth;
      c.push_back(is_rank ? worker("w" + std::to_string(i), age, old_first[stage], old_first[stage + 1])
                          : worker("s" + std::to_string(i), age));
      if (is_rank)
        before.participants.push_back(c.back().where);
      if (random() % 6 == 0)
        c.back().held.clear();
      if (random() % 8 == 0)
        c.back().held.push_back({draw(0, layers - 1), now});
    }
    for (auto i = draw(0, 3); i > 0 && c.size() > 4; --i)
      c.erase(c.begin() + draw(0, c.size() - 1));
    const auto width = draw(1, c.size() / depth == 0 ? 1 : c.size() / depth);
    if (width * depth > c.size())
      continue;
    auto with_keeper = c;
    with_keeper.push_back(keeper("k", 9'999'999, 0, layers));
    const auto plan = plan_change(width, first, with_keeper, now, bytes, &before);
    expect_sound(plan, with_keeper, now, bytes);

    std::ranges::sort(c, {}, &candidate::age);
    const auto cost_of = [&](std::uint32_t rank, std::size_t column) {
      cost_in_order x{0, 1, static_cast<std::int64_t>(column)};
      const auto stage = plan.target.stage_of(rank);
      for (auto layer = first[stage]; layer < first[stage + 1]; ++layer)
        if (!std::ranges::count(c[column].held, layer_version{layer, now}))
          x[0] += static_cast<std::int64_t>(bytes[layer]);
      for (std::uint32_t old = 0; old < before.ranks(); ++old)
        if (before.participants[old].slot == c[column].where.slot && before.stage_of(old) == stage &&
            before.pipeline_of(old) == plan.target.pipeline_of(rank))
          x[1] = 0;
      return x;
    };
    std::vector<std::vector<cost_in_order>> cost(plan.target.ranks(), std::vector<cost_in_order>(c.size()));
    cost_in_order sum{};
    for (std::uint32_t rank = 0; rank < plan.target.ranks(); ++rank)
      for (std::size_t column = 0; column < c.size(); ++column) {
        cost[rank][column] = cost_of(rank, column);
        if (plan.target.participants[rank].slot == c[column].where.slot)
          for (std::size_t i = 0; i < sum.size(); ++i)
            sum[i] += cost[rank][column][i];
      }
    EXPECT_EQ(sum, least_cost(cost)) << "round " << round;
    moved += plan.bytes > 0;

    auto shuffled = with_keeper;
    std::ranges::shuffle(shuffled, random);
    EXPECT_EQ(plan_change(width, first, shuffled, now, bytes, &before).target, plan.target);
  }
  EXPECT_GT(moved, 100);
}

// A fleet that shrinks and grows at random: places that need not change do not, and no worker that holds what a stage
// needs is passed over for one that does not.
TEST(plan_change, of_a_large_fleet_is_quick_and_stable) {
  std::vector<candidate> c;
  for (std::uint32_t i = 0; i < 96; ++i)
    c.push_back(worker("w" + std::to_string(i), i, i % 8 * 6, i % 8 * 6 + 6));
  std::vector<std::uint32_t> first;
  for (std::uint32_t s = 0; s <= 8; ++s)
    first.push_back(6 * s);
  const std::vector<std::uint64_t> bytes(48, 1'000'000'000'000);
  const auto plan = plan_change(12, first, c, now, bytes, nullptr);
  EXPECT_EQ(plan.bytes, 0u);
  c.erase(c.begin() + 17);
  const auto next = plan_change(11, first, c, now, bytes, &plan.target);
  EXPECT_EQ(next.bytes, 0u);
  EXPECT_EQ(next.kind, migration::intra_stage);
  const auto same = plan_change(11, first, c, now, bytes, &next.target);
  EXPECT_EQ(same.target, next.target);
  EXPECT_EQ(same.kind, migration::none);
}

// Of this thread's processor: others may use the machine.
double processor_ms() {
  timespec x{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &x);
  return 1e3 * static_cast<double>(x.tv_sec) + 1e-6 * static_cast<double>(x.tv_nsec);
}

// given: 1,000 slots in 40×25 / expected: what follows a loss is planned in no time, whatever it is. (A place for each
// row and a slot for each column of one matrix took 1.7 s for another depth.)
TEST(plan_change, of_a_thousand_slots_is_quick) {
  constexpr std::uint32_t width = 40, depth = 25, layers = 100;
  const std::vector<double> ms(layers, 1);
  const auto first = partition_layers(ms, depth);
  const std::vector<std::uint64_t> bytes(layers, 1'000'000'000);
  std::vector<candidate> all;
  placement before{width, depth, first, {}};
  for (std::uint32_t i = 0; i < width * depth; ++i) {
    all.push_back(worker("w" + std::to_string(i), i, first[i % depth], first[i % depth + 1]));
    before.participants.push_back(all.back().where);
  }
  auto lost = all;
  lost.erase(lost.begin() + 500);
  auto replaced = lost;
  replaced.push_back(worker("new", 5'000));
  std::vector<candidate> fresh;
  for (std::uint32_t i = 0; i < width * depth; ++i)
    fresh.push_back(worker("w" + std::to_string(i), i));
  struct {
    const char* what;
    std::uint32_t width, depth;
    const std::vector<candidate>& candidates;
    version at;
  } table[] = {{"narrower", 39, 25, lost, now},          {"a spare takes over", 40, 25, replaced, now},
               {"another depth", 37, 27, lost, now},     {"half the depth", 76, 13, lost, now},
               {"as deep as can be", 9, 100, lost, now}, {"the first start", 40, 25, fresh, {}}};
  for (const auto& x : table) {
    const auto bounds = partition_layers(ms, x.depth);
    const auto began = processor_ms();
    const auto plan = plan_change(x.width, bounds, x.candidates, x.at, bytes, &before);
    const auto took = processor_ms() - began;
    EXPECT_LT(took, 200) << x.what;
    RecordProperty(x.what, std::to_string(took));
    expect_sound(plan, x.candidates, x.at, bytes);
  }
}

} // namespace
} // namespace parcae
