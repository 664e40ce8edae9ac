#pragma once

// Sums over the replicas of a stage, in an order that does not depend on how many there are (HOW_IT_WORKS.md, "What
// makes runs bit-identical").

#include "gpu/dataplane/communicator.hpp"
#include "gpu/device/device.hpp"
#include "protocols/schedule/replica_tree.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace parcae {

/// Sums of gradients while a step computes them: give the virtual replicas' sums left to right, siblings are merged
/// as soon as both are there. Torch-free: works on whatever `Buffer` with `add(left, right)` adding right into left.
template <class Buffer>
class subtree_sums {
public:
  subtree_sums(std::uint32_t virtual_replicas, replica_range owned) :
      targets_(maximal_subtrees(virtual_replicas, owned)), next_(owned.first) {}

  template <class Add>
  void push(Buffer leaf, Add&& add) {
    sums_.push_back({{next_, next_ + 1}, std::move(leaf)});
    ++next_;
    // Merge while the last two sums are the two children of one node that is within a target.
    while (sums_.size() >= 2) {
      auto& left = sums_[sums_.size() - 2];
      auto& right = sums_.back();
      if (!are_siblings(left.range, right.range))
        break;
      add(left.buffer, right.buffer);
      left.range.last = right.range.last;
      sums_.pop_back();
    }
  }

  struct entry {
    replica_range range;
    Buffer buffer;
  };

  /// Once all owned replicas were pushed: exactly maximal_subtrees, in order.
  std::vector<entry>& sums() { return sums_; }
  const std::vector<entry>& sums() const { return sums_; }

  bool complete() const {
    return sums_.size() == targets_.size() && (sums_.empty() || sums_.back().range == targets_.back());
  }

private:
  bool are_siblings(replica_range left, replica_range right) const {
    for (auto target : targets_)
      if (left.first >= target.first && right.last <= target.last)
        return are_siblings_below(target, left, right);
    return false;
  }

  static bool are_siblings_below(replica_range node, replica_range left, replica_range right) {
    while (node.last - node.first > 1) {
      auto middle = node.first + tree_split(node);
      if (node.first == left.first && left.last == middle && right.first == middle && right.last == node.last)
        return true;
      if (right.last <= middle)
        node.last = middle;
      else if (left.first >= middle)
        node.first = middle;
      else
        return false;
    }
    return false;
  }

  std::vector<replica_range> targets_;
  std::uint32_t next_;
  std::vector<entry> sums_;
};

/// Memory of a device for what is on its way; kept for the next use. Nothing is under way when it grows.
class device_scratch {
public:
  /// The device outlives this object. No buffer that is added up is longer than `longest` bytes.
  device_scratch(device& on, std::size_t longest);

  device& on() const { return on_; }
  const reduction_pace& pace() const { return pace_; }
  void grow(std::size_t bytes);
  std::byte* data() const { return memory_.get(); }

private:
  device& on_;
  const reduction_pace pace_;
  device_memory memory_;
  std::size_t bytes_ = 0;
};

/// What sums are made of. In bfloat16 each addition is rounded, wherever it is done.
enum class sum_type { float32, bfloat16 };

/// All-reduces among the pipelines of a stage, while a step still computes: buffers are added as they become complete,
/// in the same order and with the same lengths by every member. Reduce-scatter to chunk owners, who add in tree order,
/// then all-gather; chunks of all buffers follow each other, so that sending, receiving, adding and computing overlap.
/// Buffers are memory of the scratch's device, which adds. What is under way is given in rounds, in each of which all
/// members have something for all.
/// A job that need not be reproducible has a virtual replica for each pipeline: the order then depends on their number.
///
/// One thread, the communicator's. Throws communication_error; abort the communicator then, before buffers go.
class tree_all_reduce {
public:
  /// `group[d]` is pipeline d's participant number; `self` is this one's d. `scratch` outlives this object, and may be
  /// reused.
  tree_all_reduce(communicator& comm, std::vector<std::uint32_t> group, std::uint32_t self,
                  std::uint32_t virtual_replicas, std::uint64_t step, device_scratch& scratch,
                  sum_type type = sum_type::float32);

  /// `sums` are this pipeline's sub-tree sums of a buffer: bytes of whole values, equally many, in order. They stay
  /// where they are until finish(); then sums[0] is the sum over all virtual replicas and the others hold anything.
  void add(const std::vector<std::span<std::byte>>& sums);

  /// Does what can be done without waiting.
  void advance();

  /// Does all that is left. Nothing is added after it.
  void finish();

private:
  /// One partial sum of one chunk, at the chunk's owner.
  struct leaf {
    replica_range range;
    std::uint32_t pipeline = 0;
    std::uint32_t number = 0; ///< among its pipeline's sums
  };

  using chunk = std::vector<std::span<std::byte>>; ///< of this pipeline's sums

  ticket keep(ticket x);
  bool ready(std::size_t turn);
  void take(std::size_t turn);
  void begin_chunk(std::size_t c);
  void end_chunk(std::size_t c);
  void locate(std::size_t c);
  template <class Number>
  void add_up(std::span<std::byte> result);
  std::vector<ticket>& arriving(std::size_t c) { return arriving_[c / width_ % arriving_.size()]; }

  communicator& comm_;
  const std::vector<std::uint32_t> group_;
  const std::uint32_t self_;
  const std::uint64_t step_;
  device_scratch& scratch_;
  const sum_type type_;
  const std::uint32_t width_;
  std::vector<leaf> leaves_;            ///< all pipelines' sums, left to right
  std::optional<addition_order> order_; ///< of the leaves; set once
  std::size_t mine_ = 0;                ///< leaves of this pipeline

  std::vector<chunk> chunks_;
  std::size_t turn_ = 0;                      ///< the next one
  std::vector<std::vector<ticket>> arriving_; ///< foreign sums of owned chunks under way, a ring
  std::vector<ticket> rest_;
  std::vector<ticket> round_;  ///< not yet given
  std::vector<std::byte*> at_; ///< where the leaves of the owned chunk at hand are
};

} // namespace parcae
