#include "gpu/dataplane/reduction.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace parcae {

namespace {

reduction_pace pace_on(const device& on, std::size_t longest) {
  auto x = on.facts().host ? pace_of_processors : pace_of_devices;
  constexpr std::size_t aligned = 256;
  x.chunk_bytes = std::clamp((longest + aligned - 1) / aligned * aligned, aligned, x.chunk_bytes);
  return x;
}

/// A live peer may compute for minutes; progress is watched elsewhere.
constexpr std::chrono::hours longest_wait{1};

memory_view memory_of(const device_scratch& scratch, std::span<std::byte> bytes) {
  return {bytes, &scratch.on()};
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

tag tag_of(std::uint64_t step, std::size_t chunk) {
  return {channel::reduction, step, static_cast<std::uint32_t>(chunk & 0xffff)};
}

} // namespace

device_scratch::device_scratch(device& on, std::size_t longest) : on_(on), pace_(pace_on(on, longest)) {}

void device_scratch::grow(std::size_t bytes) {
  if (bytes <= bytes_)
    return;
  memory_ = on_.allocate(bytes);
  bytes_ = bytes;
}

// Chunk c belongs to pipeline c mod D. In turn t a member sends its sums of chunk t to the owner, and ends chunk
// t − ahead: as the owner it adds and sends the result to all, else it posts the receive of the result. Every member
// goes through the same turns, which fixes the order of messages between any two. D turns are a round.

tree_all_reduce::tree_all_reduce(communicator& comm, std::vector<std::uint32_t> group, std::uint32_t self,
                                 std::uint32_t virtual_replicas, std::uint64_t step, device_scratch& scratch,
                                 sum_type type) :
    comm_(comm),
    group_(std::move(group)), self_(self), step_(step), scratch_(scratch), type_(type),
    width_(static_cast<std::uint32_t>(group_.size())), arriving_(scratch.pace().ahead + 1) {
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
    scratch_.grow(arriving_.size() * (leaves_.size() - mine_) * scratch_.pace().chunk_bytes);
}

void tree_all_reduce::add(const std::vector<std::span<std::byte>>& sums) {
  if (sums.size() != mine_ || mine_ == 0)
    throw std::invalid_argument("tree_all_reduce: " + std::to_string(sums.size()) + " sums, but pipeline " +
                                std::to_string(self_) + " has " + std::to_string(mine_) + " sub-trees");
  if (width_ == 1)
    return; // the one sub-tree is the whole tree
  const auto chunk_bytes = scratch_.pace().chunk_bytes;
  for (std::size_t begin = 0; begin < sums[0].size(); begin += chunk_bytes) {
    auto& parts = chunks_.emplace_back();
    for (auto sum : sums)
      parts.push_back(sum.subspan(begin, std::min(chunk_bytes, sum.size() - begin)));
  }
}

void tree_all_reduce::advance() {
  while (turn_ < chunks_.size() && ready(turn_))
    take(turn_++);
}

void tree_all_reduce::finish() {
  const auto ahead = chunks_.empty() ? 0 : scratch_.pace().ahead * width_;
  while (turn_ < chunks_.size() + ahead)
    take(turn_++);
  comm_.give(std::exchange(round_, {}));
  for (auto& x : rest_)
    comm_.wait(x, longest_wait);
  rest_.clear();
}

/// Whether the turn would not wait.
bool tree_all_reduce::ready(std::size_t turn) {
  const auto ahead = scratch_.pace().ahead * width_;
  return turn < ahead || (turn - ahead) % width_ != self_ ||
         std::ranges::all_of(arriving(turn - ahead), [this](const ticket& x) { return comm_.done(x); });
}

void tree_all_reduce::take(std::size_t turn) {
  if (turn < chunks_.size())
    begin_chunk(turn);
  if (const auto ahead = scratch_.pace().ahead * width_; turn >= ahead)
    end_chunk(turn - ahead);
  if ((turn + 1) % width_ == 0)
    comm_.give(std::exchange(round_, {}));
}

ticket tree_all_reduce::keep(ticket x) {
  round_.push_back(x);
  return x;
}

void tree_all_reduce::begin_chunk(std::size_t c) {
  const auto owner = static_cast<std::uint32_t>(c % width_);
  const auto& parts = chunks_[c];
  const auto what = tag_of(step_, c);
  if (owner != self_) {
    for (auto part : parts)
      rest_.push_back(keep(comm_.send(group_[owner], what, memory_of(scratch_, part))));
    return;
  }
  locate(c);
  for (std::size_t i = 0; i < leaves_.size(); ++i)
    if (auto from = leaves_[i].pipeline; from != self_)
      arriving(c).push_back(keep(comm_.receive(group_[from], what, memory_of(scratch_, {at_[i], parts[0].size()}))));
}

void tree_all_reduce::end_chunk(std::size_t c) {
  const auto owner = static_cast<std::uint32_t>(c % width_);
  const auto result = chunks_[c][0];
  const auto what = tag_of(step_, c);
  if (owner != self_) {
    // The owner can only send the result after it got this member's sums, so their bytes were taken from here.
    rest_.push_back(keep(comm_.receive(group_[owner], what, memory_of(scratch_, result))));
    return;
  }
  for (auto& x : arriving(c))
    comm_.wait(x, longest_wait);
  arriving(c).clear();
  locate(c);
  type_ == sum_type::float32 ? add_up<float>(result) : add_up<bfloat16>(result);
  for (std::uint32_t d = 0; d < width_; ++d)
    if (d != self_)
      rest_.push_back(keep(comm_.send(group_[d], what, memory_of(scratch_, result))));
}

/// The sum of what is at at_.
template <class Number>
void tree_all_reduce::add_up(std::span<std::byte> result) {
  std::vector<const Number*> sums;
  for (const auto* x : at_)
    sums.push_back(reinterpret_cast<const Number*>(x));
  scratch_.on().compute().add_in_order(*order_, reinterpret_cast<Number*>(result.data()), sums,
                                       result.size() / sizeof(Number));
}

/// Sets at_ for an owned chunk.
void tree_all_reduce::locate(std::size_t c) {
  auto slot = scratch_.data() + c / width_ % arriving_.size() * (leaves_.size() - mine_) * scratch_.pace().chunk_bytes;
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    const auto own = leaves_[i].pipeline == self_;
    at_[i] = own ? chunks_[c][leaves_[i].number].data() : slot;
    slot += own ? 0 : scratch_.pace().chunk_bytes;
  }
}

} // namespace parcae
