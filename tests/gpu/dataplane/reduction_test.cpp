#include "gpu/dataplane/peer_communicator.hpp"
#include "gpu/dataplane/reduction.hpp"
#include "tests/gpu/dataplane/nccl_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

using namespace parcae;
using namespace parcae::rig;

namespace {

using buffer = std::vector<float>;

/// Values whose sum depends on every bit of the order: magnitudes from 1e-30 to 1e30, zeros of both signs.
std::vector<buffer> random_leaves(std::uint32_t count, std::size_t n, std::uint64_t seed) {
  std::mt19937_64 draw(seed);
  std::uniform_real_distribution<double> exponent(-30, 30), mantissa(-1, 1);
  std::vector<buffer> result(count, buffer(n));
  for (auto& leaf : result)
    for (auto& x : leaf)
      switch (draw() % 16) {
      case 0:
        x = 0.0f;
        break;
      case 1:
        x = -0.0f;
        break;
      case 2: // close to each other, so that rounding matters
        x = static_cast<float>(mantissa(draw));
        break;
      default:
        x = static_cast<float>(mantissa(draw) * std::pow(10, exponent(draw)));
      }
  return result;
}

device& processor() {
  static const auto it = make_cpu_device({});
  return *it;
}

template <class Number>
void add_to(std::vector<Number>& left, const std::vector<Number>& right) {
  for (std::size_t i = 0; i < left.size(); ++i)
    left[i] = rounded_to<Number>(to_float(left[i]) + to_float(right[i]));
}

/// The definition: the tree over all leaves, in one process.
template <class Number>
std::vector<Number> tree_sum(const std::vector<std::vector<Number>>& leaves, std::uint32_t first, std::uint32_t last) {
  if (last - first == 1)
    return leaves[first];
  std::uint32_t left_size = 1;
  while (2 * left_size < last - first)
    left_size *= 2;
  auto left = tree_sum(leaves, first, first + left_size), right = tree_sum(leaves, first + left_size, last);
  add_to(left, right);
  return left;
}

/// What a pipeline does while it computes: its replicas' sums merged into sub-tree sums.
template <class Number>
std::vector<std::vector<Number>> own_sums(const std::vector<std::vector<Number>>& leaves, std::uint32_t width,
                                          std::uint32_t d) {
  auto count = static_cast<std::uint32_t>(leaves.size());
  auto owned = owned_replicas(count, width, d);
  subtree_sums<std::vector<Number>> sums(count, owned);
  for (auto v = owned.first; v < owned.last; ++v)
    sums.push(leaves[v], add_to<Number>);
  EXPECT_TRUE(sums.complete());
  std::vector<std::vector<Number>> result;
  for (auto& x : sums.sums())
    result.push_back(std::move(x.buffer));
  return result;
}

template <class Number>
bool same_bits(const std::vector<Number>& a, const std::vector<Number>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(Number)) == 0);
}

template <class Number>
std::vector<std::span<std::byte>> bytes_of(std::vector<std::vector<Number>>& sums) {
  std::vector<std::span<std::byte>> result;
  for (auto& x : sums)
    result.push_back(std::as_writable_bytes(std::span(x)));
  return result;
}

std::vector<std::vector<bfloat16>> rounded(const std::vector<buffer>& leaves) {
  std::vector<std::vector<bfloat16>> result;
  for (const auto& x : leaves) {
    result.emplace_back(x.size());
    round_values(result.back().data(), x.data(), x.size());
  }
  return result;
}

void reduce(communicator& comm, const std::vector<std::uint32_t>& group, std::uint32_t d,
            std::uint32_t virtual_replicas, const std::vector<std::span<std::byte>>& sums, std::uint64_t step,
            sum_type type = sum_type::float32) {
  device_scratch scratch(processor(), sums.empty() ? 0 : sums.front().size());
  tree_all_reduce reduction(comm, group, d, virtual_replicas, step, scratch, type);
  reduction.add(sums);
  reduction.finish();
}

template <class Number>
void reduce_all(cluster& c, std::vector<std::unique_ptr<communicator>>& ends, std::uint32_t width,
                const std::vector<std::vector<Number>>& leaves, const std::vector<Number>& expected,
                std::uint64_t step) {
  std::vector<std::uint32_t> group;
  for (std::uint32_t d = 0; d < width; ++d)
    group.push_back(width - 1 - d); // not the participants' order
  c.each([&](std::uint32_t self) {
    if (self >= width)
      return;
    auto d = width - 1 - self;
    auto sums = own_sums(leaves, width, d);
    reduce(*ends[self], group, d, static_cast<std::uint32_t>(leaves.size()), bytes_of(sums), step,
           sizeof(Number) == sizeof(float) ? sum_type::float32 : sum_type::bfloat16);
    EXPECT_TRUE(same_bits(sums[0], expected)) << "V " << leaves.size() << " D " << width << " d " << d;
  });
}

/// Of a replica each. They repeat themselves, by no length of a chunk.
std::vector<buffer> large_leaves(std::uint32_t count) {
  constexpr std::size_t period = 65'537, large = (std::size_t{40} << 20) / sizeof(float);
  auto result = random_leaves(count, period, count);
  for (auto& x : result)
    for (x.reserve(large); x.size() < large;)
      x.push_back(x[x.size() - period]);
  return result;
}

/// Of 40 MiB, by participants with a late device each, and a replica. `sent`: how many messages all have sent by then.
void expect_few_messages(cluster& c, const std::vector<communicator*>& ends,
                         const std::function<std::uint64_t()>& sent) {
  const auto width = static_cast<std::uint32_t>(ends.size());
  const auto leaves = large_leaves(width);
  const auto expected = tree_sum(leaves, 0, width);
  const auto bytes = expected.size() * sizeof(float);
  std::vector<std::uint32_t> group(width);
  std::iota(group.begin(), group.end(), 0u);
  const auto before = sent();
  c.each([&](std::uint32_t d) {
    auto& on = late_fake_device(d);
    const auto sum = on.allocate(bytes);
    std::memcpy(readable(sum.get()), leaves[d].data(), bytes);
    device_scratch scratch(on, bytes);
    tree_all_reduce reduction(*ends[d], group, d, width, 0, scratch);
    reduction.add({{sum.get(), bytes}});
    reduction.finish();
    EXPECT_TRUE(on.compute().record()->wait(patience));
    EXPECT_EQ(std::memcmp(readable(sum.get()), expected.data(), bytes), 0) << "D " << width << " d " << d;
  });
  EXPECT_EQ(sent() - before, 3 * 2 * (width - 1)) << "each of three chunks to its owner, and back";
}

} // namespace

// given: V, D / expected: the shares are consecutive, cover [0, V), and differ by at most one, the larger first
TEST(reduction, shares_are_consecutive) {
  for (std::uint32_t v = 1; v <= 20; ++v)
    for (std::uint32_t width = 1; width <= v; ++width) {
      std::uint32_t next = 0;
      for (std::uint32_t d = 0; d < width; ++d) {
        auto share = owned_replicas(v, width, d);
        EXPECT_EQ(share.first, next);
        EXPECT_EQ(share.last - share.first, v / width + (d < v % width ? 1 : 0));
        next = share.last;
      }
      EXPECT_EQ(next, v);
    }
}

// given: size / expected: largest power of two below it
TEST(reduction, split) {
  const std::pair<std::uint32_t, std::uint32_t> table[] = {{2, 1}, {3, 2}, {4, 2}, {5, 4}, {8, 4}, {9, 8}, {12, 8}};
  for (auto [size, left] : table) {
    EXPECT_EQ(tree_split({0, size}), left);
    EXPECT_EQ(tree_split({10, 10 + size}), left);
  }
}

// given: V, owned / expected: maximal sub-trees
TEST(reduction, maximal_subtrees) {
  using ranges = std::vector<replica_range>;
  EXPECT_EQ(maximal_subtrees(8, {0, 8}), (ranges{{0, 8}}));
  EXPECT_EQ(maximal_subtrees(8, {0, 3}), (ranges{{0, 2}, {2, 3}}));
  EXPECT_EQ(maximal_subtrees(8, {3, 6}), (ranges{{3, 4}, {4, 6}}));
  EXPECT_EQ(maximal_subtrees(8, {6, 8}), (ranges{{6, 8}}));
  EXPECT_EQ(maximal_subtrees(6, {2, 6}), (ranges{{2, 4}, {4, 6}}));
  EXPECT_EQ(maximal_subtrees(1, {0, 1}), (ranges{{0, 1}}));
  EXPECT_EQ(maximal_subtrees(4, {2, 2}), ranges{});
}

// given: V ≤ 12, D ≤ V, random values / expected: the bits of the single-process tree
TEST(reduction, tree_is_exact_for_every_width) {
  cluster c(12);
  auto ends = c.connect_all();
  for (std::uint32_t v = 1; v <= 12; ++v) {
    auto leaves = random_leaves(v, 777, v);
    auto expected = tree_sum(leaves, 0, v);
    for (std::uint32_t width = 1; width <= v; ++width)
      reduce_all(c, ends, width, leaves, expected, v * 100 + width);
  }
}

// given: the same in bfloat16, by all ranks / expected: the bits of the single-process tree that rounds each of its
// sums, which are not those of the float32 tree, rounded
TEST(reduction, tree_of_rounded_sums_is_exact_for_every_width) {
  cluster c(12);
  auto ends = c.connect_all();
  for (std::uint32_t v = 1; v <= 12; ++v) {
    const auto drawn = random_leaves(v, 777, v);
    const auto leaves = rounded(drawn);
    const auto expected = tree_sum(leaves, 0, v);
    EXPECT_EQ(same_bits(expected, rounded({tree_sum(drawn, 0, v)}).front()), v == 1) << "V " << v;
    for (std::uint32_t width = 1; width <= v; ++width)
      reduce_all(c, ends, width, leaves, expected, v * 100 + width);
  }
}

// given: lengths around chunk borders / expected: the same bits
TEST(reduction, tree_is_exact_for_every_length) {
  cluster c(3);
  auto ends = c.connect_all();
  std::uint64_t step = 0;
  for (std::size_t n : {0u, 1u, 65'535u, 65'536u, 65'537u, 131'072u, 131'073u, 200'000u, 1'500'001u})
    for (std::uint32_t width = 2; width <= 3; ++width) {
      auto leaves = random_leaves(n > 1'000'000 ? 4 : 8, n, n + width);
      const auto count = static_cast<std::uint32_t>(leaves.size());
      reduce_all(c, ends, width, leaves, tree_sum(leaves, 0, count), ++step);
      const auto small = rounded(leaves);
      reduce_all(c, ends, width, small, tree_sum(small, 0, count), ++step);
    }
}

// given: buffers added one by one, members that advance now and then at paces of their own / expected: the same bits
TEST(reduction, buffers_are_added_while_others_are_under_way) {
  cluster c(3);
  auto ends = c.connect_all();
  const std::vector<std::size_t> lengths{70'000, 1, 0, 400'000, 65'536, 12};
  std::vector<std::vector<buffer>> leaves;
  for (std::size_t b = 0; b < lengths.size(); ++b)
    leaves.push_back(random_leaves(5, lengths[b], b));
  for (std::uint32_t width = 1; width <= 3; ++width)
    c.each([&](std::uint32_t self) {
      if (self >= width)
        return;
      std::vector<std::uint32_t> group(width);
      std::iota(group.begin(), group.end(), 0u);
      std::vector<std::vector<buffer>> sums;
      device_scratch scratch(processor(), 1'600'000);
      tree_all_reduce reduction(*ends[self], group, self, 5, width, scratch);
      std::mt19937 draw(self);
      for (const auto& x : leaves) {
        sums.push_back(own_sums(x, width, self));
        reduction.add(bytes_of(sums.back()));
        for (auto n = draw() % 3; n > 0; --n)
          reduction.advance();
      }
      reduction.finish();
      for (std::size_t b = 0; b < leaves.size(); ++b)
        EXPECT_TRUE(same_bits(sums[b][0], tree_sum(leaves[b], 0, 5))) << "D " << width << " buffer " << b;
    });
}

// given: a member that is aborted in the middle / expected: the others' calls end with an error
TEST(reduction, ends_when_a_member_leaves) {
  cluster c(3);
  auto ends = c.connect_all();
  std::vector<std::uint32_t> group{0, 1, 2};
  std::atomic<int> failed = 0;
  c.each([&](std::uint32_t self) {
    if (self == 2)
      return ends[2]->abort();
    auto leaves = own_sums(random_leaves(3, 500'000, 1), 3, self);
    try {
      reduce(*ends[self], group, self, 3, bytes_of(leaves), 0);
    } catch (const communication_error&) {
      ++failed;
      ends[self]->abort();
    }
  });
  EXPECT_EQ(failed, 2);
}

TEST(reduction, wrong_number_of_sums_is_refused) {
  cluster c(1);
  auto comm = c.connect(0);
  std::vector two(2, buffer(4));
  EXPECT_THROW(reduce(*comm, {0}, 0, 4, {}, 0), std::invalid_argument);
  EXPECT_THROW(reduce(*comm, {0}, 0, 4, bytes_of(two), 0), std::invalid_argument);
}

// given: 40 MiB on two and three devices of a process, whose work comes late / expected: the bits of the single-process
// tree; all messages are copies, and few, as each takes the host its time
TEST(reduction, devices_have_large_chunks) {
  for (const std::uint32_t width : {2u, 3u}) {
    peer_meeting meeting; // outlives the communicators
    cluster c(width);
    std::vector<std::unique_ptr<communicator>> all(width);
    c.each([&](std::uint32_t i) {
      auto& on = late_fake_device(i);
      auto place = meeting.enter(purpose::generation, c.plan, c.slot(i), on);
      all[i] = make_peer_communicator(make_staged_communicator(c.connect(i), on), std::move(place), meeting);
    });
    std::vector<communicator*> ends;
    for (const auto& x : all)
      ends.push_back(x.get());
    expect_few_messages(c, ends, copies_between_devices);
  }
}

// given: the same on two, by NCCL / expected: the same
TEST(reduction, nccl_moves_large_chunks) {
  nccl_double world(1);
  cluster c(2);
  std::vector<std::unique_ptr<nccl_member>> members;
  for (std::uint32_t i = 0; i < 2; ++i)
    members.push_back(std::make_unique<nccl_member>(c, i, world));
  c.each([&](std::uint32_t i) { members[i]->connect(); });
  c.each([&](std::uint32_t i) { ASSERT_EQ(members[i]->made().now, nccl_communicator::phase::ready); });
  for (const auto& x : members)
    x->comm->take_over();
  expect_few_messages(c, {members[0]->comm.get(), members[1]->comm.get()},
                      [&] { return world.calls_of(0, nccl_call::send) + world.calls_of(1, nccl_call::send); });
  members.clear();
  EXPECT_THAT(world.violations(), ::testing::IsEmpty());
}
