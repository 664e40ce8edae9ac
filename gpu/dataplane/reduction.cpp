#include "gpu/dataplane/reduction.hpp"

#include <algorithm>
#include <stdexcept>

namespace parcae {

namespace {

constexpr std::size_t chunk_floats = reduction_chunk_floats;

/// Chunks under way at once for each member; enough to hide the time of a round trip.
constexpr std::size_t chunks_ahead = 4;

/// A live peer may compute for minutes; progress is watched elsewhere.
constexpr std::chrono::hours longest_wait{1};

memory_view memory_of(const device_scratch& scratch, std::span<float> values) {
  return {std::as_writable_bytes(values), &scratch.on()};
}

/// The order of additions in the tree below `node`, of which `leaves` are the first, left to right.
void note_joins(std::span<const replica_range>& leaves, replica_range node, std::vector<std::uint8_t>& joins) {
  if (leaves.front() == node) {
    leaves = leaves.subspan(1);
    joins.push_back(0);
    return;
  }
  const auto middle = node.first + tree_split(node);
  note_joins(leaves, {node.first, middle}, joins);
  note_joins(leaves, {middle, node.last}, joins);
  ++joins.back();
}

tag tag_of(std::uint64_t step, std::uint32_t index, std::size_t part) {
  return {channel::reduction, step, index << 16 | static_cast<std::uint32_t>(part & 0xffff)};
}

} // namespace

void device_scratch::grow(std::size_t floats) {
  if (floats <= floats_)
    return;
  memory_ = on_.allocate(floats * sizeof(float));
  floats_ = floats;
}

// Chunk c belongs to pipeline c mod D. In turn t a member sends its sums of chunk t to the owner, and ends chunk
// t − ahead: as the owner it adds and sends the result to all, else it posts the receive of the result. Every member
// goes through the same turns, which fixes the order of messages between any two.

tree_all_reduce::tree_all_reduce(communicator& comm, std::vector<std::uint32_t> group, std::uint32_t self,
                                 std::uint32_t virtual_replicas, std::uint64_t step, device_scratch& scratch) :
    comm_(comm),
    group_(std::move(group)), self_(self), step_(step), scratch_(scratch),
    width_(static_cast<std::uint32_t>(group_.size())), arriving_(chunks_ahead + 1) {
  for (std::uint32_t d = 0; d < width_; ++d) {
    std::uint32_t number = 0;
    for (auto range : maximal_subtrees(virtual_replicas, owned_replicas(virtual_replicas, width_, d)))
      leaves_.push_back({range, d, number++});
    if (d == self)
      mine_ = number;
  }
  at_.resize(leaves_.size());
  std::vector<replica_range> ranges;
  for (const auto& leaf : leaves_)
    ranges.push_back(leaf.range);
  std::span<const replica_range> rest(ranges);
  std::vector<std::uint8_t> joins;
  note_joins(rest, {0, virtual_replicas}, joins);
  order_.emplace(std::move(joins));
  if (width_ > 1)
    scratch_.grow(arriving_.size() * (leaves_.size() - mine_) * chunk_floats);
}

void tree_all_reduce::add(const std::vector<std::span<float>>& sums) {
  if (sums.size() != mine_ || mine_ == 0)
    throw std::invalid_argument("tree_all_reduce: " + std::to_string(sums.size()) + " sums, but pipeline " +
                                std::to_string(self_) + " has " + std::to_string(mine_) + " sub-trees");
  if (width_ == 1)
    return; // the one sub-tree is the whole tree
  for (std::size_t begin = 0; begin < sums[0].size(); begin += chunk_floats) {
    auto& parts = chunks_.emplace_back();
    for (auto sum : sums)
      parts.push_back(sum.subspan(begin, std::min(chunk_floats, sum.size() - begin)));
  }
}

void tree_all_reduce::advance() {
  while (turn_ < chunks_.size() && ready(turn_))
    take(turn_++);
}

void tree_all_reduce::finish() {
  const auto ahead = chunks_.empty() ? 0 : chunks_ahead * width_;
  while (turn_ < chunks_.size() + ahead)
    take(turn_++);
  for (auto& x : rest_)
    comm_.wait(x, longest_wait);
  rest_.clear();
}

/// Whether the turn would not wait.
bool tree_all_reduce::ready(std::size_t turn) {
  const auto ahead = chunks_ahead * width_;
  return turn < ahead || (turn - ahead) % width_ != self_ ||
         std::ranges::all_of(arriving(turn - ahead), [this](const ticket& x) { return comm_.done(x); });
}

void tree_all_reduce::take(std::size_t turn) {
  if (turn < chunks_.size())
    begin_chunk(turn);
  if (const auto ahead = chunks_ahead * width_; turn >= ahead)
    end_chunk(turn - ahead);
}

void tree_all_reduce::begin_chunk(std::size_t c) {
  const auto owner = static_cast<std::uint32_t>(c % width_);
  const auto& parts = chunks_[c];
  const auto what = tag_of(step_, 0, c);
  if (owner != self_) {
    for (auto part : parts)
      rest_.push_back(comm_.send(group_[owner], what, memory_of(scratch_, part)));
    return;
  }
  locate(c);
  for (std::size_t i = 0; i < leaves_.size(); ++i)
    if (auto from = leaves_[i].pipeline; from != self_)
      arriving(c).push_back(comm_.receive(group_[from], what, memory_of(scratch_, {at_[i], parts[0].size()})));
}

void tree_all_reduce::end_chunk(std::size_t c) {
  const auto owner = static_cast<std::uint32_t>(c % width_);
  const auto result = chunks_[c][0];
  const auto what = tag_of(step_, 0, c);
  if (owner != self_) {
    // The owner can only send the result after it got this member's sums, so their bytes were taken from here.
    rest_.push_back(comm_.receive(group_[owner], what, memory_of(scratch_, result)));
    return;
  }
  for (auto& x : arriving(c))
    comm_.wait(x, longest_wait);
  arriving(c).clear();
  locate(c);
  scratch_.on().compute().add_in_order(*order_, result.data(), at_, result.size());
  for (std::uint32_t d = 0; d < width_; ++d)
    if (d != self_)
      rest_.push_back(comm_.send(group_[d], what, memory_of(scratch_, result)));
}

/// Sets at_ for an owned chunk.
void tree_all_reduce::locate(std::size_t c) {
  auto slot = scratch_.data() + c / width_ % arriving_.size() * (leaves_.size() - mine_) * chunk_floats;
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    const auto own = leaves_[i].pipeline == self_;
    at_[i] = own ? chunks_[c][leaves_[i].number].data() : slot;
    slot += own ? 0 : chunk_floats;
  }
}

// Baidu's ring: in round r < D − 1 segment (self − r) goes to the next member, who adds it; in the other D − 1 rounds
// the complete segments go round. Segments are cut into parts, each of which is sent on as soon as it is there.
void all_reduce_ring(communicator& comm, std::span<const std::uint32_t> group, std::uint32_t self, std::span<float> sum,
                     std::uint64_t step, std::uint32_t index, device_scratch& scratch) {
  const auto width = group.size();
  if (width == 1)
    return;
  const auto next = group[(self + 1) % width], previous = group[(self + width - 1) % width];
  const auto segment_floats = (sum.size() + width - 1) / width;
  const auto parts = (segment_floats + chunk_floats - 1) / chunk_floats;
  const auto rounds = 2 * (width - 1);
  const auto ahead = 2 * chunks_ahead;
  scratch.grow(ahead * chunk_floats);

  // Part i % parts of the segment that is sent in round i / parts; the last segment may be shorter, even empty.
  auto part = [&](std::size_t i, std::size_t member) {
    auto segment = (member + 2 * width - i / parts) % width;
    auto begin = std::min(sum.size(), segment * segment_floats + i % parts * chunk_floats);
    auto end = std::min({sum.size(), (segment + 1) * segment_floats, begin + chunk_floats});
    return sum.subspan(begin, std::max(begin, end) - begin);
  };
  std::vector<ticket> sent, arriving(ahead);
  auto send = [&](std::size_t i) {
    sent.push_back(comm.send(next, tag_of(step, index, i), memory_of(scratch, part(i, self))));
  };
  auto receive = [&](std::size_t i) {
    if (i >= rounds * parts)
      return;
    auto to = part(i, self + width - 1);
    if (i / parts < width - 1)
      to = {scratch.data() + i % ahead * chunk_floats, to.size()};
    arriving[i % ahead] = comm.receive(previous, tag_of(step, index, i), memory_of(scratch, to));
  };
  for (std::size_t i = 0; i < ahead; ++i)
    receive(i);
  for (std::size_t i = 0; i < parts; ++i)
    send(i);
  for (std::size_t i = 0; i < rounds * parts; ++i) {
    comm.wait(arriving[i % ahead], longest_wait);
    auto to = part(i, self + width - 1);
    if (i / parts < width - 1)
      scratch.on().compute().add_values(to.data(), to.data(), scratch.data() + i % ahead * chunk_floats, to.size());
    receive(i + ahead);
    if (i / parts + 1 < rounds)
      send(i + parts);
  }
  for (auto& x : sent)
    comm.wait(x, longest_wait);
}

} // namespace parcae
