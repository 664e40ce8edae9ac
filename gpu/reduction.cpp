#include "gpu/reduction.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace parcae {

namespace {

/// 256 KiB: partial sums are added while they are in the processor's second-level cache.
constexpr std::size_t chunk_floats = std::size_t{64} << 10;

/// Chunks under way at once for each member; enough to hide the time of a round trip.
constexpr std::size_t chunks_ahead = 4;

/// A live peer may compute for minutes; progress is watched elsewhere.
constexpr std::chrono::hours longest_wait{1};

/// to = left + right. `to` may be either of them.
void add(float* to, const float* left, const float* right, std::size_t n) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < n; ++i)
    to[i] = left[i] + right[i];
}

std::span<std::byte> bytes_of(float* x, std::size_t n) {
  return std::as_writable_bytes(std::span(x, n));
}

tag tag_of(std::uint64_t step, std::uint32_t index, std::size_t part) {
  return {channel::reduction, step, index << 16 | static_cast<std::uint32_t>(part & 0xffff)};
}

void grow(std::vector<float>& x, std::size_t n) {
  if (x.size() < n)
    x.resize(n);
}

/// One partial sum of one chunk, at the chunk's owner.
struct leaf {
  replica_range range;
  std::uint32_t pipeline = 0;
  std::uint32_t number = 0; ///< among its pipeline's sums
};

/// All pipelines' sums, left to right.
std::vector<leaf> all_leaves(std::uint32_t virtual_replicas, std::uint32_t width) {
  std::vector<leaf> result;
  for (std::uint32_t d = 0; d < width; ++d) {
    std::uint32_t number = 0;
    for (auto range : maximal_subtrees(virtual_replicas, owned_replicas(virtual_replicas, width, d)))
      result.push_back({range, d, number++});
  }
  return result;
}

/// Adds leaves below `node` in tree order; `at[i]` is where leaf i is. Returns where the sum is.
float* fold(replica_range node, const std::vector<leaf>& leaves, const std::vector<float*>& at, std::size_t& next,
            float* result, std::size_t n) {
  if (leaves[next].range == node)
    return at[next++];
  auto middle = node.first + tree_split(node);
  auto left = fold({node.first, middle}, leaves, at, next, nullptr, n);
  auto right = fold({middle, node.last}, leaves, at, next, nullptr, n);
  auto to = result ? result : left;
  add(to, left, right, n);
  return to;
}

void collect_subtrees(replica_range node, replica_range owned, std::vector<replica_range>& to) {
  if (node.last <= owned.first || node.first >= owned.last)
    return;
  if (node.first >= owned.first && node.last <= owned.last) {
    to.push_back(node);
    return;
  }
  auto middle = node.first + tree_split(node);
  collect_subtrees({node.first, middle}, owned, to);
  collect_subtrees({middle, node.last}, owned, to);
}

} // namespace

replica_range owned_replicas(std::uint32_t virtual_replicas, std::uint32_t width, std::uint32_t pipeline) {
  auto share = virtual_replicas / width, more = virtual_replicas % width;
  auto first = pipeline * share + std::min(pipeline, more);
  return {first, first + share + (pipeline < more ? 1 : 0)};
}

std::uint32_t tree_split(replica_range node) {
  return std::bit_floor(node.last - node.first - 1);
}

std::vector<replica_range> maximal_subtrees(std::uint32_t virtual_replicas, replica_range owned) {
  std::vector<replica_range> result;
  if (owned.first < owned.last)
    collect_subtrees({0, virtual_replicas}, owned, result);
  return result;
}

// Chunk c belongs to pipeline c mod D. In turn t a member sends its sums of chunk t to the owner, and finishes chunk
// t − ahead: as the owner it adds and sends the result to all, else it posts the receive of the result. Every member
// goes through the same turns, which fixes the order of messages between any two.
void all_reduce_tree(communicator& comm, std::span<const std::uint32_t> group, std::uint32_t self,
                     std::uint32_t virtual_replicas, std::span<const std::span<float>> sums, std::uint64_t step,
                     std::uint32_t index, std::vector<float>& scratch) {
  const auto width = static_cast<std::uint32_t>(group.size());
  const auto leaves = all_leaves(virtual_replicas, width);
  const auto mine = static_cast<std::size_t>(
      std::count_if(leaves.begin(), leaves.end(), [&](const leaf& x) { return x.pipeline == self; }));
  if (sums.size() != mine || mine == 0)
    throw std::invalid_argument("all_reduce_tree: " + std::to_string(sums.size()) + " sums, but pipeline " +
                                std::to_string(self) + " has " + std::to_string(mine) + " sub-trees");
  if (width == 1)
    return; // the one sub-tree is the whole tree
  const auto n = sums[0].size();
  const auto chunks = (n + chunk_floats - 1) / chunk_floats;
  const auto ahead = chunks_ahead * width;
  const auto foreign = leaves.size() - mine;
  const auto ring = chunks_ahead + 1; // owned chunks whose sums may be arriving at once
  grow(scratch, ring * foreign * chunk_floats);

  std::vector<std::vector<ticket>> arriving(ring);
  std::vector<ticket> rest;
  std::vector<float*> at(leaves.size());
  auto size_of = [&](std::size_t c) { return std::min(chunk_floats, n - c * chunk_floats); };
  // Where the leaves of an owned chunk are.
  auto locate = [&](std::size_t c) {
    auto slot = scratch.data() + c / width % ring * foreign * chunk_floats;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      auto own = leaves[i].pipeline == self;
      at[i] = own ? sums[leaves[i].number].data() + c * chunk_floats : slot;
      slot += own ? 0 : chunk_floats;
    }
  };

  for (std::size_t t = 0; t < chunks + ahead; ++t) {
    if (auto c = t; c < chunks) {
      auto owner = static_cast<std::uint32_t>(c % width);
      if (owner == self) {
        locate(c);
        for (std::size_t i = 0; i < leaves.size(); ++i)
          if (auto from = leaves[i].pipeline; from != self)
            arriving[c / width % ring].push_back(
                comm.receive(group[from], tag_of(step, index, c), bytes_of(at[i], size_of(c))));
      } else {
        for (auto sum : sums)
          rest.push_back(
              comm.send(group[owner], tag_of(step, index, c), bytes_of(sum.data() + c * chunk_floats, size_of(c))));
      }
    }
    if (t < ahead)
      continue;
    auto c = t - ahead;
    auto owner = static_cast<std::uint32_t>(c % width);
    auto result = sums[0].data() + c * chunk_floats;
    if (owner == self) {
      for (auto& x : arriving[c / width % ring])
        comm.wait(x, longest_wait);
      arriving[c / width % ring].clear();
      locate(c);
      std::size_t next = 0;
      fold({0, virtual_replicas}, leaves, at, next, result, size_of(c));
      for (std::uint32_t d = 0; d < width; ++d)
        if (d != self)
          rest.push_back(comm.send(group[d], tag_of(step, index, c), bytes_of(result, size_of(c))));
    } else {
      // The owner can only send the result after it got this member's sums, so their bytes were taken from here.
      rest.push_back(comm.receive(group[owner], tag_of(step, index, c), bytes_of(result, size_of(c))));
    }
  }
  for (auto& x : rest)
    comm.wait(x, longest_wait);
}

// Baidu's ring: in round r < D − 1 segment (self − r) goes to the next member, who adds it; in the other D − 1 rounds
// the complete segments go round. Segments are cut into parts, each of which is sent on as soon as it is there.
void all_reduce_ring(communicator& comm, std::span<const std::uint32_t> group, std::uint32_t self, std::span<float> sum,
                     std::uint64_t step, std::uint32_t index, std::vector<float>& scratch) {
  const auto width = group.size();
  if (width == 1)
    return;
  const auto next = group[(self + 1) % width], previous = group[(self + width - 1) % width];
  const auto segment_floats = (sum.size() + width - 1) / width;
  const auto parts = (segment_floats + chunk_floats - 1) / chunk_floats;
  const auto rounds = 2 * (width - 1);
  const auto ahead = 2 * chunks_ahead;
  grow(scratch, ahead * chunk_floats);

  // Part i % parts of the segment that is sent in round i / parts; the last segment may be shorter, even empty.
  auto part = [&](std::size_t i, std::size_t member) {
    auto segment = (member + 2 * width - i / parts) % width;
    auto begin = std::min(sum.size(), segment * segment_floats + i % parts * chunk_floats);
    auto end = std::min({sum.size(), (segment + 1) * segment_floats, begin + chunk_floats});
    return sum.subspan(begin, std::max(begin, end) - begin);
  };
  std::vector<ticket> sent, arriving(ahead);
  auto send = [&](std::size_t i) {
    sent.push_back(comm.send(next, tag_of(step, index, i), std::as_bytes(part(i, self))));
  };
  auto receive = [&](std::size_t i) {
    if (i >= rounds * parts)
      return;
    auto to = part(i, self + width - 1);
    if (i / parts < width - 1)
      to = std::span(scratch).subspan(i % ahead * chunk_floats, to.size());
    arriving[i % ahead] = comm.receive(previous, tag_of(step, index, i), std::as_writable_bytes(to));
  };
  for (std::size_t i = 0; i < ahead; ++i)
    receive(i);
  for (std::size_t i = 0; i < parts; ++i)
    send(i);
  for (std::size_t i = 0; i < rounds * parts; ++i) {
    comm.wait(arriving[i % ahead], longest_wait);
    auto to = part(i, self + width - 1);
    if (i / parts < width - 1)
      add(to.data(), to.data(), scratch.data() + i % ahead * chunk_floats, to.size());
    receive(i + ahead);
    if (i / parts + 1 < rounds)
      send(i + parts);
  }
  for (auto& x : sent)
    comm.wait(x, longest_wait);
}

} // namespace parcae
