#pragma once

// Sums over the replicas of a stage, in an order that does not depend on how many there are (design, section 5).

#include "gpu/communicator.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace parcae {

/// Virtual replicas [first, last).
struct replica_range {
  std::uint32_t first = 0;
  std::uint32_t last = 0;

  friend bool operator==(const replica_range&, const replica_range&) = default;
};

/// The virtual replicas that pipeline d of `width` owns: consecutive, the first (V mod D) pipelines own one more.
replica_range owned_replicas(std::uint32_t virtual_replicas, std::uint32_t width, std::uint32_t pipeline);

/// The left part of a node of the fixed binary tree over virtual replicas: the largest power of two smaller than the
/// node's size. Leaves are single replicas.
std::uint32_t tree_split(replica_range node);

/// The maximal sub-trees of the tree over [0, V) that lie within `owned`, left to right. At most 2·log2(V).
std::vector<replica_range> maximal_subtrees(std::uint32_t virtual_replicas, replica_range owned);

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

  bool complete() const { return sums_.size() == targets_.size() && (sums_.empty() || sums_.back().range == targets_.back()); }

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

/// One all-reduce of `n` floats among the pipelines of a stage. `group[d]` is pipeline d's participant number; `self` is
/// this one's d. `sums` are this pipeline's sub-tree sums, n floats each, in order; the sum over all virtual replicas is
/// left in sums[0], the others hold anything afterwards. Reduce-scatter to chunk owners, who add in tree order, then all-gather. Chunks are pipelined so that
/// sending, receiving and adding overlap. `scratch` is grown as needed and may be reused. Every member calls it with the
/// same n and step, reductions in the same order. Throws communication_error;
/// abort the communicator then, before sums or scratch go.
void all_reduce_tree(communicator& comm, std::span<const std::uint32_t> group, std::uint32_t self,
                     std::uint32_t virtual_replicas, std::span<const std::span<float>> sums, std::uint64_t step,
                     std::uint32_t index, std::vector<float>& scratch);

/// The same for `reproducible = false`: a ring all-reduce in place over one sum per pipeline; the order of additions
/// depends on the number of pipelines.
void all_reduce_ring(communicator& comm, std::span<const std::uint32_t> group, std::uint32_t self,
                     std::span<float> sum, std::uint64_t step, std::uint32_t index, std::vector<float>& scratch);

} // namespace parcae
