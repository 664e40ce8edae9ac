#include "protocols/schedule/replica_tree.hpp"

#include <algorithm>
#include <bit>

namespace parcae {

namespace {

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

std::uint32_t busiest_micro_batches(const job_specification& job, std::uint32_t width) {
  return (job.virtual_replicas + width - 1) / width * (job.micro_batches() / job.virtual_replicas);
}

} // namespace parcae
